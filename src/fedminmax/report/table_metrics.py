"""Metrics by group of a saved model on test rows: as plain data, and as cells of tables."""

import math
from collections.abc import Sequence
from typing import Any

from fedminmax.core.examples import Examples
from fedminmax.report.bootstrap import CONFIDENCE, RESAMPLES
from fedminmax.report.group_metrics import measure_scores
from fedminmax.report.metric_by_group import NO_ESTIMATE, Estimate, GroupMetrics, MetricByGroup
from fedminmax.report.model_scores import RISKS, ScoredRows, score_rows
from fedminmax.report.saved_model import SavedModel

RISK = "risk"
# In place of metrics where there are no test rows.
NOT_MEASURED: dict[str, Any] = {"rows": 0, "metrics": {}}


def measure(saved: SavedModel, parts: Sequence[Examples], seed: int) -> dict[str, Any]:
    """Measure the model on all rows of these parts; risks are Brier or squared error.

    The squared error is in the target's own unit. Bootstrap intervals are drawn with ``seed``.
    """
    if not any(len(part) for part in parts):
        return NOT_MEASURED
    return measure_scored(score_rows([(saved, part) for part in parts]), saved.groups, seed)


def measure_scored(rows: ScoredRows, groups: Sequence[str], seed: int) -> dict[str, Any]:
    """Measure rows that are scored already."""
    found = measure_scores(rows.scores, rows.group, RESAMPLES, CONFIDENCE, seed)
    return measured_content(found, groups)


def measured_content(found: GroupMetrics, groups: Sequence[str]) -> dict[str, Any]:
    """Return metrics of groups that are known by their numbers as plain data."""
    return {
        "rows": sum(found.counts.values()),
        "confidence": found.confidence,
        "resamples": found.resamples,
        "metrics": _metrics_as_json(found, groups),
    }


def metric_cells(
    groups: Sequence[str], test: dict[str, Any], metrics: Sequence[str] | None = None
) -> tuple[list[str], list[list[str]]]:
    """Return headers and lines: a line per group, then all rows and the gap."""
    shown = [name for name in test["metrics"] if metrics is None or name in metrics]
    columns = [test["metrics"][name] for name in shown]
    first = next(iter(test["metrics"].values()))
    lines = [
        [
            group,
            f"{first['by_group'][number]['rows']:,}",
            *(
                estimate_words(column["by_group"][number]) + " *" * (column["worst_group"] == group)
                for column in columns
            ),
        ]
        for number, group in enumerate(groups)
    ]
    overall = [estimate_words(column["overall"]) for column in columns]
    gaps = [estimate_words(column["gap"]) for column in columns]
    headers = ["group", "rows", *(name.replace("_", " ") for name in shown)]
    return headers, [*lines, ["all", f"{test['rows']:,}", *overall], ["gap", "", *gaps]]


def estimate_words(estimate: dict[str, Any], like: dict[str, Any] | None = None) -> str:
    """Show a value with its interval in four digits; nothing where there is no value.

    With ``like`` it has as many decimals as that one.

    >>> estimate_words({"value": 0.25, "low": 0.2, "high": 0.31})
    '0.2500 (0.2000 to 0.3100)'
    >>> large = {"value": 1234.56, "low": 999.9, "high": 20123.4}
    >>> estimate_words(large), estimate_words({"value": 0.0, "low": -1.0, "high": 1.0}, like=large)
    ('1,235 (1,000 to 20,123)', '0 (-1 to 1)')
    """
    values = [estimate[name] for name in ("value", "low", "high")]
    if None in values:
        return ""
    decimals = _decimals(like or estimate)
    value, low, high = (f"{number:z,.{decimals}f}" for number in values)
    return f"{value} ({low} to {high})"


def _decimals(estimate: dict[str, Any]) -> int:
    largest = max(abs(estimate[name] or 0.0) for name in ("value", "low", "high")) or 1.0
    return max(0, 3 - math.floor(math.log10(largest)))


def _metrics_as_json(found: GroupMetrics, groups: Sequence[str]) -> dict[str, Any]:
    return {
        RISK if name in RISKS else name: _metric_as_json(metric, found, groups)
        for name, metric in found.metrics.items()
    }


def _metric_as_json(
    metric: MetricByGroup, found: GroupMetrics, groups: Sequence[str]
) -> dict[str, Any]:
    """Name the groups, which the metrics know by their numbers."""
    return {
        "overall": estimate_as_json(metric.overall),
        "by_group": [
            estimate_as_json(metric.by_group.get(str(number), NO_ESTIMATE))
            | {"rows": found.counts.get(str(number), 0)}
            for number in range(len(groups))
        ],
        "worst_group": None if metric.worst_group is None else groups[int(metric.worst_group)],
        "gap": estimate_as_json(metric.gap),
    }


def estimate_as_json(estimate: Estimate) -> dict[str, float | None]:
    """Return a value and its interval as plain data; None for NaN."""
    values = {"value": estimate.value, "low": estimate.low, "high": estimate.high}
    return {name: None if math.isnan(value) else value for name, value in values.items()}
