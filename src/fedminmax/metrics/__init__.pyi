from fedminmax.report.advice import Advice, advise
from fedminmax.report.group_metrics import group_metrics, regression_group_metrics
from fedminmax.report.group_metrics_table import group_metrics_as_markdown
from fedminmax.report.metric_by_group import GroupMetrics

__all__ = [
    "Advice",
    "GroupMetrics",
    "advise",
    "group_metrics",
    "group_metrics_as_markdown",
    "regression_group_metrics",
]
