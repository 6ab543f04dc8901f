"""What `fedminmax train` does, for Python: from a configuration to a model with its results.

The command line goes through the same steps, and shows each round in between.
"""

import math
import tempfile
import time
import tomllib
import warnings
from collections.abc import Generator
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path

from fedminmax.core.certificate import Certificate
from fedminmax.core.errors import InputError
from fedminmax.data.tables.config import TableConfig, adjusted, read_config
from fedminmax.data.tables.config_text import with_seed
from fedminmax.data.tables.load import load_federated_tables
from fedminmax.report.model_file import load_model
from fedminmax.report.run_folder_records import Results
from fedminmax.report.saved_model import SavedModel
from fedminmax.report.table_results import finished_results
from fedminmax.studies.change_of_run import add_change
from fedminmax.studies.table_federation import federate
from fedminmax.studies.table_runs import TableRun, plan_table_runs
from fedminmax.studies.train_table import TableJob, TableTick, is_finished, open_runs, train_table


@dataclass(frozen=True, eq=False)
class TableTraining:
    """The runs of a configuration over the same tables: the method's, then the baseline's."""

    job: TableJob
    runs: tuple[TableRun, ...]

    @property
    def is_finished(self) -> bool:
        """Whether all runs got as far as asked."""
        return all(is_finished(run) for run in self.runs)

    @property
    def results(self) -> list[Results]:
        """The results of the runs that are finished, the method's first."""
        return [finished_results(run.folder) for run in self.runs if is_finished(run)]


@dataclass(frozen=True, eq=False)
class TrainedTables:
    """A model that was trained on tables, and how it does by group.

    ``certificate`` is what is proved of the model's training risks, if anything is; ``baseline``
    are the results of the method that it is compared with; ``folder`` is the run folder, if one was
    asked for.
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
    rounds: int | None = None,
    seed: int | None = None,
    validation: float | None = None,
    patience: int | None = None,
    gap: float | None = None,
    certify: bool = False,
    device: str = "cpu",
) -> TrainedTables:
    """Train the method of a configuration and its baseline, as `fedminmax train` does.

    Args:
        config: a `fedminmax.toml` (`fedminmax init` writes one), or what ``read_config`` read.
        folder: the run folder; interrupt the call at any time, and the same call goes on from
            there. None leaves no files.
        rounds: instead of those in the configuration, as are all that follow.
        seed: of the split into training and test rows, and of whatever is drawn.
        validation: the share of rows to choose the round by.
        patience: stop after so many rounds in a row that are no better on validation rows.
        gap: stop when no more than this share of the worst risk is left to gain.
        certify: prove how low the worst group's training risk can be.
        device: where to train, such as "cpu" or "cuda".
    """
    read = config if isinstance(config, TableConfig) else read_config(config)
    read = adjusted(
        read,
        rounds=rounds,
        seed=seed,
        validation=validation,
        patience=patience,
        gap=gap,
        certify=certify,
    )
    if folder is not None and not read.text:
        raise InputError(
            "a run folder keeps the configuration's file, and this one has none; give what "
            "read_config read, or no folder"
        )
    with tempfile.TemporaryDirectory() if folder is None else nullcontext(folder) as own:
        training = open_training(read, Path(own) / "run" if folder is None else Path(own), device)
        for warning in training.job.tables.warnings:
            warnings.warn(warning, stacklevel=2)
        with closing(training_rounds(training)) as steps:
            for _, tick in steps:
                if tick.complaint:
                    warnings.warn(tick.complaint, stacklevel=2)
        results, *others = training.results
        return TrainedTables(
            load_model(training.runs[0].folder),
            results,
            results.proof.certificate if results.proof else None,
            others[0] if others else None,
            None if folder is None else Path(folder),
        )


def open_training(config: TableConfig, folder: Path, device: str = "cpu") -> TableTraining:
    """Read all tables and open the run folder; a mistake shows before anything is written."""
    tables = load_federated_tables(config)
    job = TableJob(config, _text(config), tables, federate(config, tables, device), device)
    runs = tuple(plan_table_runs(config, tables, folder))
    open_runs(job, runs)
    return TableTraining(job, runs)


def training_rounds(
    training: TableTraining, seconds: float = math.inf
) -> Generator[tuple[TableRun, TableTick]]:
    """Yield each round of each run that is left, and leave models, results and cards behind.

    No round begins after ``seconds``, except for the first one.
    """
    deadline = time.monotonic() + seconds
    for run in training.runs:
        with closing(train_table(training.job, run, deadline - time.monotonic())) as ticks:
            for tick in ticks:
                yield run, tick
        if not is_finished(run):
            return
    add_change(training.job, training.runs)


def _text(config: TableConfig) -> str:
    """Return the configuration's file, with the seed that is used."""
    stated = tomllib.loads(config.text).get("data", {}).get("seed", 0)
    unchanged = not config.text or stated == config.seed
    return config.text if unchanged else with_seed(config.text, config.seed)
