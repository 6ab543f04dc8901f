"""What follows a run's last round: its answer, its scores on test rows, its files.

When the baseline is finished, too, the method's results say how they differ from it.

Measure models by group on further rows: those of other files, and each site's own.

The sites' personal models are each measured on their own site's test rows.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fedminmax.config.file_format import FormatChanges
from fedminmax.config.read import Source, read_config
from fedminmax.core.errors import InputError
from fedminmax.core.examples import Examples
from fedminmax.core.text import counted, quoted
from fedminmax.data.tables.census import census_of
from fedminmax.data.tables.encode import distance_warnings, drop_unknown_groups, encode
from fedminmax.data.tables.load import FederatedTables
from fedminmax.data.tables.odd_rows import shown_here
from fedminmax.data.tables.read_file import name_without_ending
from fedminmax.data.tables.sources import format_of_file, read_source
from fedminmax.exports.effects import departures_of
from fedminmax.exports.saved_model import SavedModel, load_model
from fedminmax.findings.records import Measured, Results
from fedminmax.methods.shared.servers import ProvedBoundary
from fedminmax.metrics.code_sums import code_shape, code_sums, no_code_sums
from fedminmax.metrics.sums import empty_sums, metric_names, score_table, sum_by_group, sum_scores
from fedminmax.runs.assemble import (
    FinishedRun,
    assemble,
    finished_run,
    write_run,
)
from fedminmax.runs.folder import CONFIG_FILE, claim_run, finished_results
from fedminmax.runs.measured import identify, measured
from fedminmax.runs.plan import TableRun, TableTraining
from fedminmax.runs.privacy import privacy_of_run
from fedminmax.training.progress import Progress, personal_models, run_answer
from fedminmax.training.round_record import ROUNDS_FILE, read_rounds
from fedminmax.training.simulation import Simulation


def measure(scored: Sequence[tuple[nn.Module, Examples]], saved: SavedModel) -> Measured:
    """Measure each part's model on its rows; groups and targets are those of the saved model."""
    encoding = saved.encoding
    names, groups = metric_names(encoding), len(encoding.groups)
    sums = empty_sums(groups, names, 1)
    for model, rows in scored:
        sums += sum_scores(score_table(model, rows, encoding), rows.group, groups, names)
    return measured(sums, encoding, saved.groups, saved.small_group_numbers)


def measure_personal(
    common: SavedModel,
    tables: FederatedTables,
    federation: Simulation,
    kept: Tensor,
) -> tuple[Measured, list[str]]:
    """Return metrics by group over all sites' test rows, and notes about them.

    ``kept`` has what each site keeps; ``common`` is the shared model.
    """
    models = {
        site: personal_models(federation, own)
        for site, own in zip(tables.sites, kept.cpu(), strict=True)
    }
    scored = [
        (model.cpu(), part.examples.rows(groups[part.examples.group]))
        for part in tables.test
        for model, groups in models.get(part.owner, ())
    ]
    others = [part.owner for part in tables.test if part.owner not in models]
    notes = []
    if others:
        notes.append(
            f"test rows of {quoted(others)} belong to no site: personal models are not measured "
            "on them"
        )
    return measure(scored, common), notes


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
    test = measure([(saved.model, rows) for rows in examples], saved)
    return MeasuredFiles(test, dict(skipped), tuple(warnings))


def _skipped_text(source: str, unknown: Mapping[str, int]) -> str:
    names = quoted([f"{name} ({rows:,})" for name, rows in unknown.items()])
    return (
        f"{source}: {counted(sum(unknown.values()), 'row is', 'rows are')} skipped, because "
        f"training had no row of such groups: {names}"
    )


def finish_run(
    training: TableTraining, run: TableRun, progress: Progress[Any], *, certified: bool
) -> FinishedRun:
    """Return a run whose rounds are done; with ``certified``, prove a bound for its answer."""
    config, tables, federation = training.config, training.tables, training.federation
    rounds = read_rounds(run.folder / ROUNDS_FILE)
    answer = run_answer(progress, run.iterate, federation.validation_rows.tolist())
    done = finished_run(
        run,
        rounds,
        answer,
        lambda parameters: federation.model(parameters).cpu(),
        tables.encoding,
        config,
    )
    # The method may have proved it already.
    if certified and not (done.certificate and done.certificate.is_of_groups):
        from fedminmax.training.certify import certify

        proved = certify(federation, answer.members[0])
        done = replace(done, certificate=proved.in_units(tables.encoding.risk_unit))
    personal, notes = None, list(tables.notes)
    if progress.kept.numel():
        personal, further = measure_personal(done.saved, tables, federation, progress.kept)
        notes += further
    # Remarks depend on single rows, without noise: the screen of a private run has shown them.
    is_private = config.privacy is not None
    train = [part.examples for part in tables.train]
    shape = code_shape(tables.encoding, int(len(answer.members) == 1 and not is_private))
    by_code = [code_sums([done.saved.model], rows, shape) for rows in train]
    departures = departures_of(tables.encoding, reduce(add, by_code, no_code_sums(shape)))
    return replace(
        done,
        scores=_scores(tables, done.saved),
        personal=personal,
        notes=() if is_private else tuple(notes),
        warnings=() if is_private else tables.kept_warnings,
        departures=departures[0] if departures else None,
    )


def _read_finished(training: TableTraining, run: TableRun) -> FinishedRun:
    """Read a run that an earlier call has finished."""
    results, saved = finished_results(run.folder), load_model(run.folder)
    rounds = read_rounds(run.folder / ROUNDS_FILE)
    return FinishedRun(
        run,
        [record for record in rounds if record.round <= results.method.rounds],
        saved=saved,
        scores=_scores(training.tables, saved),
        validation=results.validation,
        certificate=results.proof,
        boundary=_kept_boundary(results),
        personal=results.personal,
        notes=results.notes,
        warnings=results.warnings,
        departures=results.departures,
        finished=results.finished,
    )


def _kept_boundary(results: Results) -> ProvedBoundary | None:
    kept = results.boundary
    return None if kept is None else ProvedBoundary(kept.mean, kept.worst, 0.0, kept.lines)


def _scores(tables: FederatedTables, saved: SavedModel) -> list[Tensor]:
    """Score the model on each part of the test rows."""
    return [score_table(saved.model, part.examples, saved.encoding) for part in tables.test]


def add_change(training: TableTraining, trained: Sequence[FinishedRun | None]) -> None:
    """Write the method's results once more, with their change from the baseline.

    If a call ends before that, the next one adds it.
    """
    method, baseline = (finished_results(run.folder) for run in training.runs)
    known = method.change is not None and method.change.baseline == identify(baseline)
    if known or not method.test.rows:
        return
    with claim_run(training.runs[0].folder) as ours:
        # A process that holds the run is training it further, and will add a later change.
        if ours:
            pairs = zip(training.runs, trained, strict=True)
            write_finished(training, [done or _read_finished(training, run) for run, done in pairs])


def write_finished(training: TableTraining, runs: Sequence[FinishedRun]) -> None:
    """Write the first of these runs; a second one is its baseline."""
    config, tables = training.config, training.tables
    encoding, found = tables.encoding, runs[0].frontier
    scored = [run.scores for run in runs]
    if found is not None:
        scored = [_scores(tables, saved) for saved in found.saved]
    lines = len(encoding.groups) + len(encoding.merged_groups)
    sums = empty_sums(lines, metric_names(encoding), len(scored))
    by_site: dict[str, Tensor] = {}
    for number, part in enumerate(tables.test):
        scores = torch.cat([own[number] for own in scored], dim=1)
        own_sums = sum_by_group(scores, part.examples.group, part.merged, encoding)
        by_site[part.owner] = by_site.get(part.owner, 0.0) + own_sums.totals
        sums += own_sums
    census = census_of(tables)
    if found is not None:
        from fedminmax.runs.frontier import write_frontier

        write_frontier(runs[0], found, sums, config, census, unit=encoding.risk_unit)
        return
    privacy = None if config.privacy is None else privacy_of_run(config, training.federation)
    results = assemble(runs, sums, config, census, privacy=privacy, by_site=by_site)
    write_run(runs[0], results[0], config, census)
    if config.logging.mlflow_uri:
        from fedminmax.exports.mlflow import log_model

        log_model(config.logging.mlflow_uri, runs[0].table_run.folder)
