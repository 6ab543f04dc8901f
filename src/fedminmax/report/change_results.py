"""The section "change" of results.json: risks of the method minus its baseline's, row by row."""

from fedminmax.report.bootstrap import CONFIDENCE, RESAMPLES
from fedminmax.report.paired_change import ROWS, RiskSums, paired_change
from fedminmax.report.run_folder_records import (
    RISK,
    BaselineOfChange,
    ChangeOfMetric,
    ChangeOfRun,
    Results,
)
from fedminmax.report.table_metrics import interval_of


def with_change(results: Results, after: RiskSums, before: RiskSums, baseline: Results) -> Results:
    """Add the change from the baseline with these results."""
    change = paired_change(after, before, CONFIDENCE)
    rows = after.observed[:, ROWS].astype(int).tolist()
    metric = ChangeOfMetric(
        overall=interval_of(change.overall),
        by_group=tuple(
            interval_of(own, count) for own, count in zip(change.by_group, rows, strict=True)
        ),
        worst=interval_of(change.worst),
    )
    section = ChangeOfRun(
        baseline=_named(baseline),
        confidence=CONFIDENCE,
        resamples=RESAMPLES,
        metrics={RISK: metric},
    )
    return results.model_copy(update={"change": section})


def change_from(results: Results, baseline: Results) -> ChangeOfMetric | None:
    """Return a run's change in risk from this baseline; None if there is none, or of another."""
    change = results.change
    return change.risk if change is not None and change.baseline == _named(baseline) else None


def _named(baseline: Results) -> BaselineOfChange:
    """Tell a baseline from another, and from itself after more rounds."""
    method = baseline.method
    return BaselineOfChange(key=method.key, name=method.name, rounds=method.rounds)
