"""Metrics by group as a table in Markdown: a line per group, then all rows and the gap."""

import math

from fedminmax.report.markdown import markdown_table
from fedminmax.report.metric_by_group import Estimate, GroupMetrics


def group_metrics_as_markdown(found: GroupMetrics) -> str:
    """Return the table; a star marks the worst group of each metric.

    >>> from fedminmax.report.group_metrics import group_metrics
    >>> print(group_metrics_as_markdown(group_metrics([0, 1, 2], y_pred=[0, 1, 0],
    ...     sensitive_features=["a", "a", "b"])))
    | group | rows | accuracy |
    |---|---|---|
    | a | 2 | 1.000 (1.000 to 1.000) |
    | b | 1 | 0.000 (0.000 to 0.000) * |
    | all | 3 | 0.667 (0.667 to 0.667) |
    | gap |  | 1.000 (1.000 to 1.000) |
    """
    metrics = found.metrics.values()
    lines = [
        [
            group,
            f"{rows:,}",
            *(
                _shown(metric.by_group[group]) + " *" * (metric.worst_group == group)
                for metric in metrics
            ),
        ]
        for group, rows in found.counts.items()
    ]
    overall = [_shown(metric.overall) for metric in metrics]
    gaps = [_shown(metric.gap) for metric in metrics]
    return markdown_table(
        ["group", "rows", *(name.replace("_", " ") for name in found.metrics)],
        [*lines, ["all", f"{sum(found.counts.values()):,}", *overall], ["gap", "", *gaps]],
    )


def _shown(estimate: Estimate) -> str:
    """Show the value with its interval; nothing where there is no value."""
    if math.isnan(estimate.value):
        return ""
    return f"{estimate.value:.3f} ({estimate.low:.3f} to {estimate.high:.3f})"
