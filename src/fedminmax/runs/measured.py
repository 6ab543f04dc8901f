"""Put metrics and their changes, computed from sums of scores, into the records of results.json."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from torch import Tensor

from fedminmax.data.tables.encoding import Encoding
from fedminmax.findings import records
from fedminmax.metrics.by_group import BOUNDS, GroupMetrics, MetricByGroup
from fedminmax.metrics.intervals import CONFIDENCE, MIN_ROWS, NO_ESTIMATE, Estimate
from fedminmax.metrics.paired_change import PairedChange, paired_changes
from fedminmax.metrics.parity import ParityMeasure
from fedminmax.metrics.row_scores import RISKS
from fedminmax.metrics.sums import (
    ScoreSums,
    metric_names,
    metrics_from_sums,
    paired_sums_of,
    parity_from_totals,
    positives_of,
    within_groups,
)


def measured(
    sums: ScoreSums,
    encoding: Encoding,
    groups: Sequence[str],
    small: Collection[int],
    model: int = 0,
) -> records.Measured:
    """Return one model's metrics from sums of scores; ``small`` groups were not trained for."""
    if not bool(sums.counts.any()):
        return records.Measured(rows=0, min_rows=MIN_ROWS, metrics={})
    names = metric_names(encoding)
    metrics = metrics_from_sums(names, sums, model, small)
    optional: dict[str, Any] = {
        "parity": _parity(metrics.parity, groups),
        "positives": positives_of(names, sums),
    }
    return records.Measured(
        rows=sum(metrics.counts.values()),
        confidence=metrics.confidence,
        min_rows=MIN_ROWS,
        metrics={
            records.RISK if name in RISKS else name: _metric(metric, metrics, groups, small)
            for name, metric in metrics.metrics.items()
        },
        **{name: own for name, own in optional.items() if own},
    )


def _parity(
    measures: Mapping[str, ParityMeasure], groups: Sequence[str]
) -> dict[str, records.Parity]:
    """Return the measures of groups that are named by their numbers."""

    def name(number: str | None) -> str | None:
        return None if number is None else groups[int(number)]

    return {
        measure: records.Parity(
            difference=interval_of(own.difference),
            ratio=interval_of(own.ratio),
            highest=name(own.highest),
            lowest=name(own.lowest),
            left_out=tuple(groups[int(number)] for number in own.left_out),
        )
        for measure, own in measures.items()
    }


def site_parity(
    sites: Mapping[str, Tensor], encoding: Encoding
) -> dict[str, dict[str, records.Parity]] | None:
    """Return the first model's differences and ratios at each site with two groups to compare.

    ``sites`` have the totals of scores by line, those of merged groups after all groups.
    """
    small, names = tuple(map(encoding.groups.index, encoding.small_groups)), encoding.group_names
    found = {
        site: _parity(
            parity_from_totals(metric_names(encoding), within_groups(totals, encoding), small),
            names,
        )
        for site, totals in sites.items()
    }
    return {
        site: own
        for site, own in found.items()
        if any(measure.highest is not None for measure in own.values())
    } or None


def _metric(
    metric: MetricByGroup, metrics: GroupMetrics, groups: Sequence[str], small: Collection[int]
) -> records.Metric:
    return records.Metric(
        overall=interval_of(metric.overall),
        by_group=tuple(
            interval_of(
                metric.by_group.get(str(number), NO_ESTIMATE),
                metrics.counts.get(str(number), 0),
                small=number in small,
            )
            for number in range(len(groups))
        ),
        worst_group=None if metric.worst_group is None else groups[int(metric.worst_group)],
        difference=interval_of(metric.difference),
        worst=None if metric.worst is None else interval_of(metric.worst),
    )


def interval_of(
    estimate: Estimate, rows: int | None = None, *, small: bool = False
) -> records.Interval:
    """Return an estimate as a record, for a group with its rows; None for NaN."""
    interval = records.Interval(value=estimate.value, low=estimate.low, high=estimate.high)
    of_group = {} if rows is None else {"rows": rows} | ({"small": True} if small else {})
    return interval.model_copy(update=of_group)


def change_from(
    baseline: records.Results, encoding: Encoding, sums: ScoreSums
) -> records.ChangeOfRun | None:
    """Return the change from this baseline, measured row by row on the same test rows."""
    if not bool(sums.counts.any()):
        return None
    small = tuple(map(encoding.groups.index, encoding.small_groups))
    pairs = paired_sums_of(metric_names(encoding), sums)
    curves = sums.curves.numpy() if sums.curves.shape[1] else None
    changes = paired_changes(pairs, BOUNDS, CONFIDENCE, small, curves)

    def of_metric(change: PairedChange) -> records.ChangeOfMetric:
        return records.ChangeOfMetric(
            overall=interval_of(change.overall, sum(change.rows)),
            by_group=tuple(
                interval_of(estimate, rows, small=number in small)
                for number, (estimate, rows) in enumerate(
                    zip(change.by_group, change.rows, strict=True)
                )
            ),
            worst=interval_of(change.worst),
        )

    return records.ChangeOfRun(
        baseline=identify(baseline),
        confidence=CONFIDENCE,
        comparisons=changes.comparisons,
        min_rows=MIN_ROWS,
        metrics={
            records.RISK if name in RISKS else name: of_metric(change)
            for name, change in changes.metrics.items()
        },
    )


def identify(baseline: records.Results) -> records.BaselineOfChange:
    """Identify a baseline; after more rounds it is a different one."""
    method = baseline.method
    return records.BaselineOfChange(
        key=method.key,
        name=method.name,
        rounds=method.rounds,
        converged=baseline.converged,
    )
