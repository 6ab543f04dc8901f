"""Metrics by group as a table in Markdown: groups, all rows, the gap, groups of few rows."""

import math

from fedminmax.report.markdown import markdown_table
from fedminmax.report.mean_interval import MIN_ROWS, Estimate
from fedminmax.report.metric_by_group import GroupMetrics


def group_metrics_as_markdown(found: GroupMetrics) -> str:
    """Return the table; a star marks the worst group of each metric.

    >>> from fedminmax.report.group_metrics import group_metrics
    >>> print(group_metrics_as_markdown(group_metrics([0, 1] * 60, y_pred=[0, 1] * 29 + [0, 0] * 31,
    ...     sensitive_features=["few"] + ["a"] * 57 + ["b"] * 62, classes=[0, 1, 2])))
    | group | rows | accuracy |
    |---|---|---|
    | a | 57 | 1.000 (0.948 to 1.000) |
    | b | 62 | 0.500 (0.365 to 0.635) * |
    | all | 120 | 0.742 (0.656 to 0.823) |
    | gap |  | 0.500 (0.356 to 0.635) |
    | few | 1 | 1.000 (0.000 to 1.000) |
    """
    metrics = found.metrics.values()
    lines = {
        group: [
            group,
            f"{rows:,}",
            *(
                _shown(metric.by_group[group]) + " *" * (metric.worst_group == group)
                for metric in metrics
            ),
        ]
        for group, rows in found.counts.items()
    }
    small = [group for group, rows in found.counts.items() if rows < MIN_ROWS]
    overall = [_shown(metric.overall) for metric in metrics]
    gaps = [_shown(metric.gap) for metric in metrics]
    return markdown_table(
        ["group", "rows", *(name.replace("_", " ") for name in found.metrics)],
        [
            *(line for group, line in lines.items() if group not in small),
            ["all", f"{sum(found.counts.values()):,}", *overall],
            ["gap", "", *gaps],
            *(lines[group] for group in small),
        ],
    )


def _shown(estimate: Estimate) -> str:
    """Show the value with its interval, as far as they are known."""
    if math.isnan(estimate.value):
        return ""
    if math.isnan(estimate.low):
        return f"{estimate.value:.3f} (no interval)"
    return f"{estimate.value:.3f} ({estimate.low:.3f} to {estimate.high:.3f})"
