"""The section "change" of results.json: the method's metrics minus its baseline's, row by row."""

from collections.abc import Collection, Mapping

from fedminmax.core.score_sums import ScoreSums
from fedminmax.report.mean_interval import CONFIDENCE, MIN_ROWS
from fedminmax.report.metric_by_group import BOUNDS
from fedminmax.report.model_scores import RISKS
from fedminmax.report.paired_change import paired_change
from fedminmax.report.run_folder_records import (
    RISK,
    BaselineOfChange,
    ChangeOfMetric,
    ChangeOfRun,
    Results,
)
from fedminmax.report.table_metrics import interval_of


def with_change(results: Results, pairs: Mapping[str, ScoreSums], baseline: Results) -> Results:
    """Add the change from the baseline with these results; ``pairs`` has sums of each metric."""
    small = [number for number, own in enumerate(results.risk.by_group) if own.small]
    section = ChangeOfRun(
        baseline=_named(baseline),
        confidence=CONFIDENCE,
        min_rows=MIN_ROWS,
        metrics={
            RISK if name in RISKS else name: _change(name, sums, small)
            for name, sums in pairs.items()
        },
    )
    return results.model_copy(update={"change": section})


def _change(metric: str, sums: ScoreSums, small: Collection[int]) -> ChangeOfMetric:
    change = paired_change(sums, BOUNDS[metric], small=small)
    return ChangeOfMetric(
        overall=interval_of(change.overall),
        by_group=tuple(
            interval_of(own, int(sums.counts[number]), small=number in small)
            for number, own in enumerate(change.by_group)
        ),
        worst=interval_of(change.worst),
    )


def change_from(results: Results, baseline: Results) -> ChangeOfMetric | None:
    """Return a run's change in risk from this baseline; None if there is none, or of another."""
    change = results.change
    return change.risk if change is not None and change.baseline == _named(baseline) else None


def _named(baseline: Results) -> BaselineOfChange:
    """Tell a baseline from another, and from itself after more rounds."""
    method = baseline.method
    return BaselineOfChange(
        key=method.key,
        name=method.name,
        rounds=method.rounds,
        converged=baseline.converged,
    )
