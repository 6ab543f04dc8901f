"""Train from Python as `fedminmax train` does: from a configuration to a model with its results.

The command line takes the same steps and shows each round. An interrupted run continues from its
last checkpoint and ends with the same numbers.
"""

import math
import tempfile
import time
import tomllib
import warnings
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, closing, nullcontext
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from fedminmax import __version__
from fedminmax.config.overrides import Overrides, with_seed
from fedminmax.config.read import TableConfig, read_config
from fedminmax.core.certificate import Certificate
from fedminmax.core.errors import InputError
from fedminmax.core.files import write_json, write_text
from fedminmax.core.iterates import Iterate
from fedminmax.data.tables.census import FORMAT, census_of
from fedminmax.data.tables.load import FederatedTables, load_federated_tables
from fedminmax.data.tables.sources import HELD_OUT_FILE, write_held_out
from fedminmax.exports.saved_model import SavedModel, load_model, mixed_model
from fedminmax.findings.records import PlannedFile, PrivacyOfRun, Results, record_as_json
from fedminmax.metrics.score_rows import metric_names, score_table, sum_by_group
from fedminmax.metrics.sums import empty_sums
from fedminmax.runs.assemble import FinishedRun, assemble, identify, validation_of, write_run
from fedminmax.runs.folder import (
    BASELINE_FOLDER,
    CENSUS_FILE,
    CONFIG_FILE,
    PLANNED_FILE,
    claim_folder,
    claim_run,
    finished_results,
    read_results,
)
from fedminmax.runs.measure import measure_personal
from fedminmax.runs.plan import CHOSEN, TableRun, federate, identity, plan_table_runs
from fedminmax.runs.privacy import (
    check_limit,
    forget_noise_key,
    keep_noise_key,
    name_of_key,
    noise_key_of,
    privacy_of_run,
    spend,
)
from fedminmax.training.certify import certify, check_certifiable, check_single_answer
from fedminmax.training.progress import Progress, answer_of, initial_progress, members_of
from fedminmax.training.resume import RunSoFar, resume_run
from fedminmax.training.round_record import ROUNDS_FILE, RoundRecord, read_rounds
from fedminmax.training.simulation import Simulation


@dataclass(frozen=True, eq=False)
class TableTraining:
    """The runs of a configuration over the same tables: the method's, then the baseline's."""

    config: TableConfig
    runs: tuple[TableRun, ...]
    _: KW_ONLY
    tables: FederatedTables = field(repr=False)
    federation: Simulation
    device: str
    noise_key: bytes | None = field(default=None, repr=False)

    @property
    def is_finished(self) -> bool:
        """Whether all runs are finished."""
        return all(is_finished(run) for run in self.runs)

    @property
    def results(self) -> list[Results]:
        """The results of the finished runs, the method's first."""
        return [finished_results(run.folder) for run in self.runs if is_finished(run)]


@dataclass(frozen=True, eq=False)
class TrainedTables:
    """A model trained on tables, and its results by group.

    ``certificate`` is what is proved about the model's training risks, if anything; ``baseline``
    are the results of the method that it is compared with; ``folder`` is the run folder, if one was
    given.
    """

    model: SavedModel
    results: Results
    certificate: Certificate | None
    baseline: Results | None
    folder: Path | None


def train_tables(
    config: str | Path | TableConfig,
    *,
    folder: str | Path | None = None,
    device: str = "cpu",
    **overrides: Any,
) -> TrainedTables:
    """Train the method of a configuration and its baseline, as `fedminmax train` does.

    Args:
        config: a `fedminmax.toml` (`fedminmax init` writes one), or what ``read_config`` read.
        folder: the run folder; interrupt the call at any time, and the same call continues from
            there. None writes no files.
        device: where to train, such as "cpu" or "cuda".
        overrides: settings that replace those of the configuration, as ``Overrides`` has them:
            rounds, seed, validation, patience, optimality_gap, certify.
    """
    read = config if isinstance(config, TableConfig) else read_config(config)
    read = Overrides(**overrides).apply(read)
    if folder is not None and not read.text:
        raise InputError(
            "a run folder keeps the configuration's file, and this one has none; give what "
            "read_config read, or no folder"
        )
    with tempfile.TemporaryDirectory() if folder is None else nullcontext(folder) as parent:
        where = Path(parent) / "run" if folder is None else Path(parent)
        training = open_training(read, where, device)
        for warning in training.tables.warnings:
            warnings.warn(warning, stacklevel=2)
        with closing(training_rounds(training)) as steps:
            for _, so_far in steps:
                if so_far.warning:
                    warnings.warn(so_far.warning, stacklevel=2)
        results, *others = training.results
        return TrainedTables(
            load_model(training.runs[0].folder),
            results,
            results.proof.certificate if results.proof else None,
            others[0] if others else None,
            None if folder is None else Path(folder),
        )


def open_training(config: TableConfig, folder: Path, device: str = "cpu") -> TableTraining:
    """Read all tables and open the run folder; mistakes are found before anything is written."""
    tables = load_federated_tables(config)
    key = None if config.privacy is None else noise_key_of(folder)
    federation = federate(config, tables, device, key)
    runs = tuple(plan_table_runs(config, federation, folder))
    training = TableTraining(
        config, runs, tables=tables, federation=federation, device=device, noise_key=key
    )
    if config.method.certify:
        check_certifiable(federation.census)
        check_single_answer(runs[0].method, runs[0].rounds)
    for run in runs:
        initial_progress(federation, run.method)
    for run in runs:
        _claim(training, run)
    return training


def _claim(training: TableTraining, run: TableRun) -> None:
    """Claim the folder for this run, or refuse it."""
    config = training.config
    method = {
        "key": run.card.key,
        "options": run.options_that_matter,
        "participation": run.participation,
        "iterate": run.iterate.value,
    }
    configuration = identity(config, training.tables, training.device) | {"method": method}
    key = None if is_finished(run) else training.noise_key
    if key is not None:
        check_limit(config, name_of_key(key))
    claim_folder(run.folder, {"version": __version__, "configuration": configuration})
    if key is not None:
        keep_noise_key(run.folder, key)
        spend(config, name_of_key(key))


def is_finished(run: TableRun, *, certified: bool = False) -> bool:
    """Whether the run has all its rounds, or met its stopping rule, and is proved if required."""
    results = read_results(run.folder)
    proof = results.proof if results else None
    if certified and not (proof and proof.certificate.is_of_groups):
        return False
    if results is None or results.method.rounds >= run.rounds:
        return results is not None
    reached = (
        run.optimality_gap > 0
        and results.gap_left is not None
        and results.gap_left <= run.optimality_gap
    )
    validation = results.validation
    return reached or (validation is not None and validation.exhausts(run.patience))


def training_rounds(
    training: TableTraining, seconds: float = math.inf
) -> Generator[tuple[TableRun, RunSoFar[Any]]]:
    """Yield each remaining round of each run, and write models, results and cards.

    No round starts after ``seconds``, except for the first one. When the baseline is finished, too,
    the method's results say how they differ from it.
    """
    deadline = time.monotonic() + seconds
    trained: list[FinishedRun | None] = []
    for run in training.runs:
        with ExitStack() as stack:
            if not stack.enter_context(claim_run(run.folder)):
                raise InputError(
                    f"another process is training in {run.folder}; wait, or choose another --out"
                )
            # The baseline only serves for comparison.
            certified = training.config.method.certify and run.folder.name != BASELINE_FOLDER
            finished = is_finished(run, certified=certified)
            _write_inputs(training, run, finished=finished)
            trained.append(None)
            if not finished:
                left = deadline - time.monotonic()
                done = yield from _train_run(training, run, left, certified=certified)
                if done is None:
                    return
                trained[-1] = done
                _write(training, [done])
                # From now on the results say all that.
                (run.folder / PLANNED_FILE).unlink(missing_ok=True)
            # Only now: without its key, an unfinished run could not go on.
            forget_noise_key(run.folder)
    if len(trained) > 1:
        _add_change(training, trained)


def _train_run(
    training: TableTraining, run: TableRun, seconds: float, *, certified: bool
) -> Generator[tuple[TableRun, RunSoFar[Any]], None, FinishedRun | None]:
    """Yield each round up to the run's last one; return the run if it is finished."""
    config, tables = training.config, training.tables
    write_json(run.folder / PLANNED_FILE, record_as_json(_planned(training, run)))
    rounds = resume_run(
        run.folder,
        training.federation,
        run.method,
        rounds=run.rounds,
        seed=config.seed,
        participation=run.participation,
        patience=run.patience,
        needs_patience=config.method.patience is not None,
        seconds=seconds,
        unit=tables.encoding.risk_unit,
    )
    with ExitStack() as stack:
        stack.enter_context(closing(rounds))
        so_far = next(rounds)
        yield run, so_far
        sinks = list(_further_sinks(training, run, so_far.round, stack))
        for so_far in rounds:
            if so_far.record is not None:
                for sink in sinks:
                    sink.add(so_far.record)
            yield run, so_far
    if not so_far.is_finished or so_far.progress is None:
        return None
    return _finished_run(training, run, so_far.progress, certified=certified)


def _finished_run(
    training: TableTraining, run: TableRun, progress: Progress[Any], *, certified: bool
) -> FinishedRun:
    """Return a run whose rounds are done; with ``certified``, prove a bound for its answer."""
    config, tables, federation = training.config, training.tables, training.federation
    rounds = read_rounds(run.folder / ROUNDS_FILE)
    answer, members = answer_of(progress, run.iterate), members_of(progress, run.iterate)
    saved = _saved_model(training, members, CHOSEN if answer is None else answer.value)
    certificate = rounds[-1].certificate
    # The method may have proved it already.
    if certified and not (certificate and certificate.is_of_groups):
        certificate = certify(federation, members[0]).in_units(tables.encoding.risk_unit)
    validation = alternative = None
    if tables.validation:
        best = progress.iterates.best
        validation = validation_of(
            best.chosen,
            best.latest,
            rows=federation.validation_rows.tolist(),
            groups=federation.group_names,
            unit=tables.encoding.risk_unit,
            patience=run.patience,
        )
        if validation.chosen is not None:
            other = Iterate.LAST if answer is Iterate.BEST else Iterate.BEST
            parameters = progress.iterates.parameters(other).unsqueeze(0)
            alternative = _saved_model(training, parameters, other.value)
    personal, notes = None, list(tables.notes)
    if progress.kept.numel():
        personal, further = measure_personal(saved, tables, federation, progress.kept)
        notes += further
    # Remarks depend on single rows, without noise: the screen of a private run has shown them.
    is_private = config.privacy is not None
    return FinishedRun(
        run,
        rounds,
        saved=saved,
        scores=_scores(tables, saved),
        alternative=alternative,
        validation=validation,
        certificate=certificate,
        personal=personal,
        notes=() if is_private else tuple(notes),
        warnings=() if is_private else tables.kept_warnings,
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
        certificate=results.proof.certificate if results.proof else None,
        personal=results.personal,
        notes=results.notes,
        warnings=results.warnings,
        finished=results.finished,
    )


def _saved_model(training: TableTraining, members: Tensor, name: str) -> SavedModel:
    models = [training.federation.model(parameters).cpu() for parameters in members]
    config = training.config
    return mixed_model(models, training.tables.encoding, config.model, name, config.format)


def _scores(tables: FederatedTables, saved: SavedModel) -> list[Tensor]:
    """Score the model on each part of the test rows."""
    return [score_table(saved.model, part.examples, saved.encoding) for part in tables.test]


def _add_change(training: TableTraining, trained: Sequence[FinishedRun | None]) -> None:
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
            _write(training, [done or _read_finished(training, run) for run, done in pairs])


def _write(training: TableTraining, runs: Sequence[FinishedRun]) -> None:
    """Write the first of these runs; a second one is its baseline."""
    config, tables = training.config, training.tables
    encoding = tables.encoding
    columns = 2 * len(metric_names(encoding)) * len(runs)
    sums = empty_sums(len(encoding.groups) + len(encoding.merged_groups), columns)
    for number, part in enumerate(tables.test):
        scores = torch.cat([run.scores[number] for run in runs], dim=1)
        sums += sum_by_group(scores, part.examples.group, part.merged, encoding)
    census = census_of(tables)
    privacy = None if config.privacy is None else privacy_of_run(config, training.federation)
    results = assemble(runs, sums, config, census, privacy=privacy)
    write_run(runs[0], results[0], config, census)
    if config.logging.mlflow_uri:
        from fedminmax.exports.mlflow_log import log_model

        log_model(config.logging.mlflow_uri, runs[0].table_run.folder)


def _write_inputs(training: TableTraining, run: TableRun, *, finished: bool) -> None:
    """Write the census, which rows were held out, and the configuration."""
    config, tables = training.config, training.tables
    write_json(run.folder / CENSUS_FILE, record_as_json(census_of(tables)))
    # Under a privacy guarantee each row is drawn by what it contains, and a list would tell of it.
    held_out, set_aside = tables.held_out, tables.set_aside
    if config.privacy is None and (len(held_out) or len(set_aside)):
        write_held_out(run.folder / HELD_OUT_FILE, config.seed, held_out, set_aside)
    # A finished run keeps the configuration that produced its results.
    if not finished or not (run.folder / CONFIG_FILE).exists():
        stated = tomllib.loads(config.text).get("data", {}).get("seed", 0)
        unchanged = not config.text or stated == config.seed
        text = config.text if unchanged else with_seed(config.text, config.seed)
        write_text(run.folder / CONFIG_FILE, text)


def _planned(training: TableTraining, run: TableRun) -> PlannedFile:
    config = training.config
    known: dict[str, PrivacyOfRun] = {}
    if config.privacy is not None:
        known["privacy"] = privacy_of_run(config, training.federation)
    later = training.runs[training.runs.index(run) + 1 :]
    return PlannedFile(
        format=FORMAT,
        key=run.card.key,
        name=run.method.name,
        rounds=run.rounds,
        may_stop_early=run.optimality_gap > 0 or run.patience is not None,
        rounds_after=sum(other.rounds for other in later),
        **known,
    )


class RoundSink(Protocol):
    """A further destination for rounds."""

    def add(self, record: RoundRecord) -> None:
        """Write a round."""
        ...


def _further_sinks(
    training: TableTraining, run: TableRun, start: int, stack: ExitStack
) -> Iterator[RoundSink]:
    """Open the further destinations for rounds that the user asked for."""
    logging, groups = training.config.logging, training.tables.group_names
    if logging.tensorboard:
        from fedminmax.exports.tensorboard_log import TensorBoardLog

        board = TensorBoardLog(run.folder / "tensorboard", groups, start)
        yield stack.enter_context(closing(board))
    if logging.mlflow_uri:
        from fedminmax.exports.mlflow_log import MlflowLog

        tracked = MlflowLog(logging.mlflow_uri, run.folder, groups, run.options)
        yield stack.enter_context(closing(tracked))
