from fedminmax.metrics.by_group import (
    GroupMetrics,
    group_metrics,
    group_metrics_as_markdown,
    regression_group_metrics,
)
from fedminmax.runs.advice import Advice, advise

__all__ = [
    "Advice",
    "GroupMetrics",
    "advise",
    "group_metrics",
    "group_metrics_as_markdown",
    "regression_group_metrics",
]
