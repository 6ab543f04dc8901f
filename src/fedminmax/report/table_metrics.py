"""Metrics by group of a saved model on test rows: as records, and as cells of tables."""

import math
from collections.abc import Collection, Sequence

from torch import Tensor

from fedminmax.core.counted import counted
from fedminmax.core.examples import Examples
from fedminmax.core.small_groups import MERGED_NAME
from fedminmax.report.group_metrics import measure_scores
from fedminmax.report.mean_interval import MIN_ROWS, NO_ESTIMATE, Estimate
from fedminmax.report.metric_by_group import GroupMetrics, MetricByGroup
from fedminmax.report.model_scores import RISKS, ScoredRows, score_rows
from fedminmax.report.run_folder_records import (
    NOT_MEASURED,
    RISK,
    Interval,
    Measured,
    MergedOfRun,
    Metric,
    Results,
)
from fedminmax.report.saved_model import SavedModel


def measure(saved: SavedModel, parts: Sequence[Examples]) -> Measured:
    """Measure the model on all rows of these parts; risks are Brier or squared error.

    The squared error is in the target's own unit.
    """
    if not any(len(part) for part in parts):
        return NOT_MEASURED
    return measure_scored(score_rows([(saved, part) for part in parts]), saved)


def measure_scored(rows: ScoredRows, saved: SavedModel) -> Measured:
    """Measure rows that are scored already."""
    small = saved.small_group_numbers
    found = measure_scores(rows.scores, rows.group, small=list(map(str, small)))
    return measured(found, saved.groups, small)


def measure_merged(
    saved: SavedModel, parts: Sequence[tuple[Examples, Tensor]]
) -> MergedOfRun | None:
    """Measure each of the groups that were merged into one by itself; None if there are none.

    Beside each part's rows is which of the merged groups they are of, -1 for none.
    """
    names = saved.encoding.merged_group_names
    if not names:
        return None
    rows = [
        (saved, Examples(part.x[own >= 0], part.y[own >= 0], own[own >= 0]))
        for part, own in parts
        if bool((own >= 0).any())
    ]
    if not rows:
        return MergedOfRun(groups=names, test=NOT_MEASURED)
    scored = score_rows(rows)
    everyone = range(len(names))
    found = measure_scores(scored.scores, scored.group, small=list(map(str, everyone)))
    return MergedOfRun(groups=names, test=measured(found, names, everyone))


def measured(found: GroupMetrics, groups: Sequence[str], small: Collection[int]) -> Measured:
    """Name the groups, which the metrics know by their numbers.

    Small ones were not trained for.
    """
    return Measured(
        rows=sum(found.counts.values()),
        confidence=found.confidence,
        min_rows=MIN_ROWS,
        metrics={
            RISK if name in RISKS else name: _metric(metric, found, groups, small)
            for name, metric in found.metrics.items()
        },
    )


def metric_cells(
    groups: Sequence[str], test: Measured, metrics: Sequence[str] | None = None
) -> tuple[list[str], list[list[str]]]:
    """Return headers and lines: a line per group, all rows, the gap, then groups of few rows."""
    shown = [name for name in test.metrics if metrics is None or name in metrics]
    columns = [test.metrics[name] for name in shown]
    first = next(iter(test.metrics.values()))
    small = test.small_groups(groups)
    lines = {
        group: [
            group,
            f"{first.by_group[number].rows:,}",
            *(
                interval_words(column.by_group[number]) + " *" * (column.worst_group == group)
                for column in columns
            ),
        ]
        for number, group in enumerate(groups)
    }
    overall = [interval_words(column.overall) for column in columns]
    gaps = [interval_words(column.gap) for column in columns]
    headers = ["group", "rows", *(name.replace("_", " ") for name in shown)]
    return headers, [
        *(line for group, line in lines.items() if group not in small),
        ["all", f"{test.rows:,}", *overall],
        ["gap", "", *gaps],
        *(line for group, line in lines.items() if group in small),
    ]


def small_groups_words(groups: Sequence[str], test: Measured) -> str:
    """Say which groups have too few rows for a verdict; nothing if there are none."""
    small = test.small_groups(groups)
    few = [f"{name} ({rows:,})" for name, rows in small.items() if rows < MIN_ROWS]
    untrained = [name for name, rows in small.items() if rows >= MIN_ROWS]
    sentences = []
    if few:
        sentences.append(f"Too few test rows to say, under {MIN_ROWS}: {', '.join(few)}.")
    if untrained:
        sentences.append(f"Too few training rows to be trained for: {', '.join(untrained)}.")
    return " ".join(sentences)


def merged_words(results: Results) -> str:
    """Say which groups were merged into one, and the risk of each; nothing if none were."""
    merged = results.merged
    if merged is None:
        return ""
    told = ", ".join(merged.groups)
    if merged.test.rows:
        risks = merged.test.metrics[RISK].by_group
        told = "; ".join(
            f"{name} {interval_words(own)}, {counted(own.rows, 'test row')}"
            if own.rows
            else f"{name}, no test row"
            for name, own in zip(merged.groups, risks, strict=True)
        )
    return f"'{MERGED_NAME}' are {len(merged.groups)}, each too small to be trained for: {told}."


def interval_words(interval: Interval, like: Interval | None = None) -> str:
    """Show a value with its interval in four digits, as far as they are known.

    With ``like`` it has as many decimals as that one.

    >>> interval_words(Interval(value=0.25, low=0.2, high=0.31))
    '0.2500 (0.2000 to 0.3100)'
    >>> large = Interval(value=1234.56, low=999.9, high=20123.4)
    >>> interval_words(large), interval_words(Interval(value=0.0, low=-1.0, high=1.0), like=large)
    ('1,235 (1,000 to 20,123)', '0 (-1 to 1)')
    >>> interval_words(Interval(value=7.5, low=None, high=None, rows=3))
    '7.500 (no interval)'
    """
    if interval.value is None:
        return ""
    decimals = _decimals(like or interval)
    value = f"{interval.value:z,.{decimals}f}"
    if interval.low is None or interval.high is None:
        return f"{value} (no interval)"
    return f"{value} ({interval.low:z,.{decimals}f} to {interval.high:z,.{decimals}f})"


def _decimals(interval: Interval) -> int:
    largest = max(abs(end or 0.0) for end in (interval.value, interval.low, interval.high)) or 1.0
    return max(0, 3 - math.floor(math.log10(largest)))


def _metric(
    metric: MetricByGroup, found: GroupMetrics, groups: Sequence[str], small: Collection[int]
) -> Metric:
    return Metric(
        overall=interval_of(metric.overall),
        by_group=tuple(
            interval_of(
                metric.by_group.get(str(number), NO_ESTIMATE),
                found.counts.get(str(number), 0),
                small=number in small,
            )
            for number in range(len(groups))
        ),
        worst_group=None if metric.worst_group is None else groups[int(metric.worst_group)],
        gap=interval_of(metric.gap),
    )


def interval_of(estimate: Estimate, rows: int | None = None, *, small: bool = False) -> Interval:
    """Return an estimate as files have it, of a group with its rows; None for NaN."""
    interval = Interval(value=estimate.value, low=estimate.low, high=estimate.high)
    of_group = {} if rows is None else {"rows": rows} | ({"small": True} if small else {})
    return interval.model_copy(update=of_group)
