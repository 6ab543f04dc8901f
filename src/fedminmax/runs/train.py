"""Train from Python as `fedminmax train` does: from a configuration to a model with its results.

The command line takes the same steps and shows each round.
"""

import math
import tempfile
import time
import tomllib
import warnings
from collections.abc import Generator, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedminmax.config.overrides import Overrides, with_seed
from fedminmax.config.read import TableConfig, read_config
from fedminmax.core.certificate import Certificate
from fedminmax.core.errors import InputError
from fedminmax.data.tables.census import census_of
from fedminmax.data.tables.load import load_federated_tables
from fedminmax.exports.saved_model import SavedModel, load_model
from fedminmax.findings.records import Results
from fedminmax.runs.layout import claim_run
from fedminmax.runs.measure import change_from, paired_sums, score_rows, with_change
from fedminmax.runs.plan import TableRun, federate, plan_table_runs
from fedminmax.runs.privacy import noise_key_of
from fedminmax.runs.results import finished_results, write_card, write_results
from fedminmax.runs.table_run import TableJob, is_finished, open_runs, train_table
from fedminmax.training.resume import RunSoFar


def add_change(job: TableJob, runs: Sequence[TableRun]) -> None:
    """Add the change to the results and the card of the first run, if the second is a baseline.

    The change is the method's risk minus its baseline's, measured row by row on the same test rows.
    It is added when both runs are finished; if a call ends before that, the next one adds it.
    """
    parts = [part.examples for part in job.tables.test]
    if len(runs) == 1 or not any(len(part) for part in parts):
        return
    chosen, baseline = runs
    with claim_run(chosen.folder) as ours:
        results, before = (finished_results(run.folder) for run in runs)
        # A process that holds the run is training it further, and will add a later change.
        if not ours or change_from(results, before) is not None:
            return
        saved = load_model(chosen.folder)
        own, other = (
            score_rows([(model, part) for part in parts])
            for model in (saved, load_model(baseline.folder))
        )
        results = with_change(results, paired_sums(own, other, len(saved.groups)), before)
        census, section = census_of(job.tables), job.config.report
        write_card(
            chosen.folder,
            results,
            saved.encoding,
            census=census,
            card=chosen.card,
            section=section,
        )
        write_results(chosen.folder, results)


@dataclass(frozen=True, eq=False)
class TableTraining:
    """The runs of a configuration over the same tables: the method's, then the baseline's."""

    job: TableJob
    runs: tuple[TableRun, ...]

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
    with tempfile.TemporaryDirectory() if folder is None else nullcontext(folder) as own:
        where = Path(own) / "run" if folder is None else Path(own)
        training = open_training(read, where, device)
        for warning in training.job.tables.warnings:
            warnings.warn(warning, stacklevel=2)
        with closing(training_rounds(training)) as steps:
            for _, tick in steps:
                if tick.warning:
                    warnings.warn(tick.warning, stacklevel=2)
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
    job = TableJob(
        config,
        _text(config),
        tables=tables,
        federation=federation,
        device=device,
        noise_key=key,
    )
    runs = tuple(plan_table_runs(config, federation, folder))
    open_runs(job, runs)
    return TableTraining(job, runs)


def training_rounds(
    training: TableTraining, seconds: float = math.inf
) -> Generator[tuple[TableRun, RunSoFar[Any]]]:
    """Yield each remaining round of each run, and write models, results and cards.

    No round starts after ``seconds``, except for the first one.
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
    """Return the text of the configuration's file, with the seed in use."""
    stated = tomllib.loads(config.text).get("data", {}).get("seed", 0)
    unchanged = not config.text or stated == config.seed
    return config.text if unchanged else with_seed(config.text, config.seed)
