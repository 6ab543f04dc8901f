"""Names of metrics for readers: rates and calibration name the class that they are about."""

from collections.abc import Sequence

MISSED, FALSE_ALARMS = "false_negative_rate", "false_positive_rate"
OF_A_CLASS = ("selection_rate", FALSE_ALARMS, MISSED, "calibration")


def metric_name(metric: str, classes: Sequence[str]) -> str:
    """Return a metric's name; of two classes the second is the positive one.

    >>> metric_name("false_negative_rate", ("well", "ill")), metric_name("accuracy", ("a", "b"))
    ('false negative rate of “ill”', 'accuracy')
    """
    name = metric.replace("_", " ")
    return f"{name} of “{classes[1]}”" if metric in OF_A_CLASS and len(classes) == 2 else name
