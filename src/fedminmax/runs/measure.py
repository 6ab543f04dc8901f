"""Measure saved models by group on test rows, for results.json and for tables.

Four things are measured here: a model on its own test rows, its change from the baseline, the
sites' personal models, and a trained model on further files. The change (section "change" of
results.json) is the method's metrics minus its baseline's, row by row. Each personal model is
measured on its own site's test rows.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedminmax.config.file_format import FormatChanges
from fedminmax.config.read import Source, read_config
from fedminmax.core.errors import InputError
from fedminmax.core.examples import Examples
from fedminmax.core.text import counted, quoted
from fedminmax.data.tables.encode import distance_warnings, drop_unknown_groups, encode
from fedminmax.data.tables.load import FederatedTables
from fedminmax.data.tables.odd_rows import shown_here
from fedminmax.data.tables.read_file import name_without_ending
from fedminmax.data.tables.sources import format_of_file, read_source
from fedminmax.exports.saved_model import SavedModel, load_model
from fedminmax.findings.records import (
    NOT_MEASURED,
    RISK,
    BaselineOfChange,
    ChangeOfMetric,
    ChangeOfRun,
    Interval,
    Measured,
    MergedOfRun,
    Metric,
    Results,
)
from fedminmax.metrics.by_group import BOUNDS, GroupMetrics, MetricByGroup, measure_scores
from fedminmax.metrics.intervals import CONFIDENCE, MIN_ROWS, NO_ESTIMATE, Estimate
from fedminmax.metrics.paired_change import paired_change
from fedminmax.metrics.row_scores import PAIRED, RISKS, RowScore
from fedminmax.metrics.score_rows import score_predictions
from fedminmax.metrics.sums import ScoreSums, sum_scores
from fedminmax.runs.layout import CONFIG_FILE
from fedminmax.training.simulation import Simulation

OWN_MODEL = "the site's own model"


@dataclass(frozen=True, eq=False)
class ScoredRows:
    """Metrics by name, with what each row adds to them, and each row's group."""

    scores: dict[str, RowScore]
    group: NDArray[np.int64]


def score_rows(measured: Sequence[tuple[SavedModel, Examples]]) -> ScoredRows:
    """Score each part's rows with its model; squared errors are in the target's unit."""
    scores = np.concatenate([saved.scores(part.x) for saved, part in measured])
    target = torch.cat([part.y for _, part in measured])
    group = np.concatenate([part.group.numpy() for _, part in measured])
    return ScoredRows(score_predictions(scores, target, measured[0][0].encoding), group)


def paired_sums(after: ScoredRows, before: ScoredRows, groups: int) -> dict[str, ScoreSums]:
    """Sum two models' scores on the same rows over each group, by metric."""
    group = torch.from_numpy(after.group)
    return {
        name: sum_scores(_side_by_side(after.scores[name], before.scores[name]), group, groups)
        for name in after.scores
        if name in PAIRED
    }


def _side_by_side(after: RowScore, before: RowScore) -> torch.Tensor:
    return torch.from_numpy(np.stack([after.numerators, before.numerators], axis=1))


def measure(saved: SavedModel, parts: Sequence[Examples]) -> Measured:
    """Measure the model on all rows of these parts; risks are Brier or squared error.

    The squared error is in the target's unit.
    """
    if not any(len(part) for part in parts):
        return NOT_MEASURED
    return measure_scored(score_rows([(saved, part) for part in parts]), saved)


def measure_scored(rows: ScoredRows, saved: SavedModel) -> Measured:
    """Compute the metrics of rows that are already scored."""
    small = saved.small_group_numbers
    found = measure_scores(rows.scores, rows.group, small=list(map(str, small)))
    return measured(found, saved.groups, small)


def measure_merged(
    saved: SavedModel, parts: Sequence[tuple[Examples, Tensor]]
) -> MergedOfRun | None:
    """Measure each of the merged groups separately; None if there are none.

    Each part comes with its rows' merged group, -1 for none.
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
    """Return metrics by group name instead of number; ``small`` groups were not trained for."""
    return Measured(
        rows=sum(found.counts.values()),
        confidence=found.confidence,
        min_rows=MIN_ROWS,
        metrics={
            RISK if name in RISKS else name: _metric(metric, found, groups, small)
            for name, metric in found.metrics.items()
        },
    )


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
        worst=None if metric.worst is None else interval_of(metric.worst),
    )


def interval_of(estimate: Estimate, rows: int | None = None, *, small: bool = False) -> Interval:
    """Return an estimate as a record, for a group with its rows; None for NaN."""
    interval = Interval(value=estimate.value, low=estimate.low, high=estimate.high)
    of_group = {} if rows is None else {"rows": rows} | ({"small": True} if small else {})
    return interval.model_copy(update=of_group)


def with_change(results: Results, pairs: Mapping[str, ScoreSums], baseline: Results) -> Results:
    """Add the change from this baseline; ``pairs`` has the paired sums of each metric."""
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
    """Return a run's change in risk from this baseline; None if it has none from this one."""
    change = results.change
    return change.risk if change is not None and change.baseline == _named(baseline) else None


def _named(baseline: Results) -> BaselineOfChange:
    """Identify a baseline; after more rounds it is a different one."""
    method = baseline.method
    return BaselineOfChange(
        key=method.key,
        name=method.name,
        rounds=method.rounds,
        converged=baseline.converged,
    )


def measure_personal(
    common: SavedModel,
    tables: FederatedTables,
    federation: Simulation,
    kept: Tensor,
) -> tuple[Measured, list[str]]:
    """Return metrics by group over all sites' test rows, and notes about them.

    ``kept`` has a row of parameters for each site; ``common`` is the shared model.
    """
    own_models = {
        site: replace(common, model=federation.model(own).cpu(), members=1, iterate=OWN_MODEL)
        for site, own in zip(tables.sites, kept, strict=True)
    }
    measured = [
        (own_models[part.owner], part.examples)
        for part in tables.test
        if part.owner in own_models and len(part.examples)
    ]
    others = [part.owner for part in tables.test if part.owner not in own_models]
    notes = []
    if others:
        notes.append(
            f"test rows of {quoted(others)} belong to no site: personal models are not measured "
            "on them"
        )
    if not measured:
        return NOT_MEASURED, notes
    return measure_scored(score_rows(measured), common), notes


@dataclass(frozen=True)
class MeasuredFiles:
    """Metrics by group, the skipped rows of unknown groups, and warnings."""

    test: Measured
    skipped: Mapping[str, int]
    warnings: tuple[str, ...]


def measure_files(folder: Path, files: Sequence[Path], changes: FormatChanges) -> MeasuredFiles:
    """Return metrics by group over all rows of these files whose group training saw.

    Rows of other groups are skipped, counted and named: they belong to no group risk.
    """
    saved = load_model(folder)
    config = read_config(folder / CONFIG_FILE).for_measuring
    formats = [format_of_file(path, config, changes) for path in files]
    read = [
        read_source(Source(path, name_without_ending(path), own), config)
        for path, (own, _) in zip(files, formats, strict=True)
    ]
    warnings = [
        *(warning for _, chosen in formats for warning in chosen),
        *shown_here(found for source in read for found in source.odd),
    ]
    skipped: Counter[str] = Counter()
    examples = []
    for part in (part for source in read for part in source.parts):
        if part.left_out:
            without = counted(part.left_out, "row is", "rows are")
            warnings.append(
                f"{part.source}: {without} skipped, as in training: no protected value, or one "
                "that is not listed"
            )
        rows, unknown = drop_unknown_groups(part.rows, saved.encoding)
        warnings.extend(distance_warnings(rows.features, saved.encoding, part.source))
        examples.append(encode(rows, saved.encoding, part.source))
        skipped.update(unknown)
        if unknown:
            warnings.append(_skipped_text(part.source, unknown))
    if skipped and not any(map(len, examples)):
        raise InputError(
            f"no row is of a group that training saw ({quoted(saved.groups)}); the groups are "
            f"{quoted(list(skipped))}: give rows of the trained groups"
        )
    return MeasuredFiles(measure(saved, examples), dict(skipped), tuple(warnings))


def _skipped_text(source: str, unknown: Mapping[str, int]) -> str:
    names = quoted([f"{name} ({rows:,})" for name, rows in unknown.items()])
    return (
        f"{source}: {counted(sum(unknown.values()), 'row is', 'rows are')} skipped, because "
        f"training had no row of such groups: {names}"
    )
