from fedminmax.advice.counts import Advice, advise
from fedminmax.metrics.by_group import (
    GroupMetrics,
    group_metrics,
    group_metrics_as_markdown,
    regression_group_metrics,
)

__all__ = [
    "Advice",
    "GroupMetrics",
    "advise",
    "group_metrics",
    "group_metrics_as_markdown",
    "regression_group_metrics",
]
