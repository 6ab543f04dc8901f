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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from fedminmax import __version__
from fedminmax.config.messages import with_settings
from fedminmax.config.read import Overrides, TableConfig, read_config
from fedminmax.core.certificate import Certificate
from fedminmax.core.errors import InputError
from fedminmax.core.files import JsonLog, write_json, write_text
from fedminmax.data.tables.census import FORMAT, census_of
from fedminmax.data.tables.load import load_federated_tables
from fedminmax.data.tables.sources import HELD_OUT_FILE, write_held_out
from fedminmax.exports.saved_model import SavedModel, load_model
from fedminmax.findings.frontier import FrontierFile
from fedminmax.findings.records import PrivacyOfRun, Results, record_as_json
from fedminmax.runs import privacy
from fedminmax.runs.assemble import FinishedRun
from fedminmax.runs.finish import add_change, finish_run, write_finished
from fedminmax.runs.folder import (
    BASELINE_FOLDER,
    CENSUS_FILE,
    CONFIG_FILE,
    PLANNED_FILE,
    PlannedFile,
    claim_folder,
    claim_run,
)
from fedminmax.runs.plan import (
    TableRun,
    TableTraining,
    federate,
    identity,
    is_finished,
    plan_table_runs,
    with_class,
)
from fedminmax.training.checkpoint import RunSoFar, resume_run
from fedminmax.training.progress import initial_progress
from fedminmax.training.round_record import ROUNDS_FILE, RoundRecord, scalars


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
            rounds, seed, validation, patience, optimality_gap, certify, frontier.
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
            results.proof,
            others[0] if others else None,
            None if folder is None else Path(folder),
        )


def frontier(
    config: str | Path | TableConfig,
    *,
    folder: str | Path,
    device: str = "cpu",
    **overrides: Any,
) -> FrontierFile:
    """Find the models between the plain and the minimax one, as `fedminmax frontier` does.

    Args:
        config: a `fedminmax.toml`, or what ``read_config`` read.
        folder: the run folder; ``choose_point`` makes one of a single model from it.
        device: where to train, such as "cpu" or "cuda".
        overrides: as for ``train_tables``.
    """
    from fedminmax.runs.frontier import read_frontier

    train_tables(config, folder=folder, device=device, frontier=True, **overrides)
    return read_frontier(Path(folder))


def open_training(config: TableConfig, folder: Path, device: str = "cpu") -> TableTraining:
    """Read all tables and open the run folder; mistakes are found before anything is written."""
    if config.audit:
        raise InputError(
            "the configuration has a section [audit]: nothing is trained; measure the predictions "
            "with 'fedminmax federation audit' or 'federation local', or remove the section"
        )
    tables, prepared = with_class(config, load_federated_tables(config))
    key = None if config.privacy is None else privacy.noise_key_of(folder)
    federation = federate(config, tables, device, key, prepared)
    runs = tuple(plan_table_runs(config, federation, folder))
    training = TableTraining(
        config, runs, tables=tables, federation=federation, device=device, noise_key=key
    )
    if config.method.certify:
        from fedminmax.training.certify import check_certifiable, check_single_answer

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
        privacy.check_limit(config, privacy.name_of_key(key))
    claim_folder(run.folder, {"version": __version__, "configuration": configuration})
    if key is not None:
        privacy.keep_noise_key(run.folder, key)
        privacy.spend(config, privacy.name_of_key(key))


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
                done = yield from _train_run(training, run, left, stack, certified=certified)
                if done is None:
                    return
                trained[-1] = done
                write_finished(training, [done])
                # From now on the results say all that.
                (run.folder / PLANNED_FILE).unlink(missing_ok=True)
            # Only now: without its key, an unfinished run could not go on.
            privacy.forget_noise_key(run.folder)
    if len(trained) > 1:
        add_change(training, trained)


def _train_run(
    training: TableTraining, run: TableRun, seconds: float, stack: ExitStack, *, certified: bool
) -> Generator[tuple[TableRun, RunSoFar[Any]], None, FinishedRun | None]:
    """Yield each round up to the run's last one; return the run if it is finished.

    The ``stack`` closes the further destinations for rounds, after the results are written.
    """
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
    with closing(rounds):
        so_far = next(rounds)
        yield run, so_far
        log = JsonLog(run.folder / ROUNDS_FILE, RoundRecord)
        sinks = (log, *_further_sinks(training, run, so_far.round, stack))
        for so_far in rounds:
            if so_far.record is not None:
                for sink in sinks:
                    sink.add(so_far.record)
            yield run, so_far
    if not so_far.is_finished or so_far.progress is None:
        return None
    return finish_run(training, run, so_far.progress, certified=certified)


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
        text = (
            config.text if unchanged else with_settings(config.text, [f"data.seed={config.seed}"])
        )
        write_text(run.folder / CONFIG_FILE, text)


def _planned(training: TableTraining, run: TableRun) -> PlannedFile:
    config = training.config
    known: dict[str, PrivacyOfRun] = {}
    if config.privacy is not None:
        known["privacy"] = privacy.privacy_of_run(config, training.federation)
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


class TensorBoardLog:
    """Event files in a folder; earlier events after ``restored_round`` are purged."""

    def __init__(self, folder: Path, groups: Sequence[str], restored_round: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._groups = groups
        self._writer = SummaryWriter(folder, purge_step=restored_round + 1)

    def add(self, record: RoundRecord) -> None:
        """Write a round."""
        for name, value in scalars(record, self._groups).items():
            self._writer.add_scalar(name, value, record.round)

    def close(self) -> None:
        """Flush and close the event file."""
        self._writer.close()


def _further_sinks(
    training: TableTraining, run: TableRun, start: int, stack: ExitStack
) -> Iterator[RoundSink]:
    """Open the further destinations for rounds that the user asked for."""
    logging, groups = training.config.logging, training.tables.group_names
    if logging.tensorboard:
        board = TensorBoardLog(run.folder / "tensorboard", groups, start)
        yield stack.enter_context(closing(board))
    if logging.mlflow_uri:
        from fedminmax.exports.mlflow import MlflowLog

        tracked = MlflowLog(logging.mlflow_uri, run.folder, groups, run.options)
        yield stack.enter_context(closing(tracked))
