"""Metrics by group of a saved model on test rows: as plain data, and as cells of tables."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedminmax.core.examples import Examples
from fedminmax.report.group_metrics import group_metrics, regression_group_metrics
from fedminmax.report.metric_by_group import Estimate, GroupMetrics, MetricByGroup
from fedminmax.report.saved_model import SavedModel

RISK = "risk"
# What the metrics' own names for it are.
RISKS = ("brier_risk", "squared_error")
NOTHING = Estimate(math.nan, math.nan, math.nan)


def measure(saved: SavedModel, parts: Sequence[Examples], seed: int) -> dict[str, Any]:
    """Measure the model on all rows of these parts; risks are Brier or squared error.

    The squared error is in the target's own unit. Bootstrap intervals are drawn with ``seed``.
    """
    rows = sum(len(part) for part in parts)
    if rows == 0:
        return {"rows": 0, "metrics": {}}
    scores = np.concatenate([saved.scores(part.x) for part in parts])
    target = np.concatenate([part.y.numpy() for part in parts])
    group = np.concatenate([part.group.numpy() for part in parts])
    scale = saved.encoding.target_scale
    if scale is None:
        found = group_metrics(
            target,
            y_prob=scores,
            classes=range(len(saved.classes)),
            sensitive_features=group,
            seed=seed,
        )
    else:
        true = target.astype(np.float64) * scale.deviation + scale.mean
        found = regression_group_metrics(true, scores, sensitive_features=group, seed=seed)
    return {
        "rows": rows,
        "confidence": found.confidence,
        "resamples": found.resamples,
        "metrics": _metrics_as_json(found, saved.groups),
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


def estimate_words(estimate: dict[str, Any]) -> str:
    """Show a value with its interval in four digits; nothing where there is no value.

    >>> estimate_words({"value": 0.25, "low": 0.2, "high": 0.31})
    '0.2500 (0.2000 to 0.3100)'
    >>> estimate_words({"value": 1234.56, "low": 999.9, "high": 20123.4})
    '1,235 (1,000 to 20,123)'
    """
    values = [estimate[name] for name in ("value", "low", "high")]
    if None in values:
        return ""
    largest = max(map(abs, values)) or 1.0
    decimals = max(0, 3 - math.floor(math.log10(largest)))
    value, low, high = (f"{number:,.{decimals}f}" for number in values)
    return f"{value} ({low} to {high})"


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
        "overall": _estimate_as_json(metric.overall),
        "by_group": [
            _estimate_as_json(metric.by_group.get(str(number), NOTHING))
            | {"rows": found.counts.get(str(number), 0)}
            for number in range(len(groups))
        ],
        "worst_group": None if metric.worst_group is None else groups[int(metric.worst_group)],
        "gap": _estimate_as_json(metric.gap),
    }


def _estimate_as_json(estimate: Estimate) -> dict[str, float | None]:
    values = {"value": estimate.value, "low": estimate.low, "high": estimate.high}
    return {name: None if math.isnan(value) else value for name, value in values.items()}
