"""Train a run on tables to its end, and write its model, results and card.

An interrupted run continues from its last checkpoint and ends with the same numbers.
"""

import math
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Protocol

from torch import Tensor

from fedminmax import __version__
from fedminmax.advice.advise import task_of_tables
from fedminmax.config.read import TableConfig
from fedminmax.core.certificate import Certificate
from fedminmax.core.errors import InputError
from fedminmax.core.files import write_json, write_text
from fedminmax.core.iterates import Iterate
from fedminmax.data.tables.census import FORMAT, census_of
from fedminmax.data.tables.load import FederatedTables
from fedminmax.data.tables.sources import HELD_OUT_FILE, write_held_out
from fedminmax.exports.saved_model import MODEL_FILE, SavedModel, mixed_model, save_model
from fedminmax.findings.records import (
    Measured,
    PlannedFile,
    PrivacyOfRun,
    ValidationOfRun,
    record_as_json,
)
from fedminmax.network.planned_runs import planned_runs
from fedminmax.runs.assemble import add_advice
from fedminmax.runs.layout import (
    BASELINE_FOLDER,
    CENSUS_FILE,
    CONFIG_FILE,
    PLANNED_FILE,
    claim_folder,
    claim_run,
)
from fedminmax.runs.measure import measure, measure_merged, measure_personal
from fedminmax.runs.plan import CHOSEN, TableRun, identity
from fedminmax.runs.privacy import (
    check_limit,
    forget_noise_key,
    keep_noise_key,
    name_of_key,
    privacy_of_run,
    spend,
)
from fedminmax.runs.remarks import validation_of, with_proof
from fedminmax.runs.results import (
    Remarks,
    TrainingFacts,
    read_results,
    results_of,
    today,
    write_card,
    write_results,
)
from fedminmax.training.certify import certify, check_certifiable, check_single_answer
from fedminmax.training.progress import Progress, answer_of, initial_progress, members_of
from fedminmax.training.resume import RunSoFar, resume_run
from fedminmax.training.round_record import ROUNDS_FILE, RoundRecord, read_rounds
from fedminmax.training.simulation import Simulation


@dataclass(frozen=True, eq=False)
class TableJob:
    """What the runs of one configuration share; ``config_text`` is the file's text."""

    config: TableConfig
    config_text: str
    _: KW_ONLY
    tables: FederatedTables = field(repr=False)
    federation: Simulation
    device: str
    noise_key: bytes | None = field(default=None, repr=False)


def finish_table(
    job: TableJob,
    run: TableRun,
    progress: Progress[Any],
    *,
    rounds: Sequence[RoundRecord],
    seconds: float,
    certified: bool = False,
) -> None:
    """Write the model, its card and, last, the results, which mark the run as finished.

    With ``certified``, prove a bound for the answer unless the method has already done so.
    """
    config, tables, federation = job.config, job.tables, job.federation
    answer = answer_of(progress, run.iterate)
    members = members_of(progress, run.iterate)
    name = CHOSEN if answer is None else answer.value
    saved = _saved_model(job, members, name)
    last = rounds[-1]
    if certified and not (last.certificate and last.certificate.is_of_groups):
        last = replace(last, certificate=_certificate(job, members))
    census = census_of(tables)
    validation: ValidationOfRun | None = None
    if tables.validation:
        validation = validation_of(
            progress.iterates.best.chosen,
            progress.iterates.best.latest,
            rows=federation.validation_rows.tolist(),
            groups=federation.group_names,
            unit=tables.encoding.risk_unit,
            patience=run.patience,
        )
    facts = TrainingFacts(
        run.trained_for(progress.round),
        config.seed,
        seconds=seconds,
        gradient_evaluations=progress.gradient_evaluations,
        # Sums with noise tell nothing about convergence.
        convergence=None
        if config.privacy
        else run.judge(rounds, census, saved.iterate, validation),
        finished=today(),
    )
    test = measure(saved, [part.examples for part in tables.test])
    personal: Measured | None = None
    notes: list[str] = []
    if progress.kept.numel():
        personal, notes = measure_personal(saved, tables, federation, progress.kept)
    remarks = Remarks((*tables.notes, *notes), tables.kept_warnings)
    if config.privacy is not None:
        # They depend on single rows, without noise: the screen of this run has shown them.
        remarks = Remarks((), ())
    results = with_proof(results_of(saved, facts, test, remarks), last)
    task = task_of_tables(config.model, tables.encoding)
    results = add_advice(
        results,
        run,
        task=task,
        encoding=tables.encoding,
        census=census,
        rounds=rounds,
        fixed_rounds=config.privacy is not None,
    )
    if personal is not None:
        results = results.model_copy(update={"personal": personal})
    merged = measure_merged(saved, [(part.examples, part.merged) for part in tables.test])
    if merged is not None:
        results = results.model_copy(update={"merged": merged})
    if validation is not None:
        results = results.model_copy(update={"validation": validation})
        other = Iterate.LAST if answer is Iterate.BEST else Iterate.BEST
        if validation.chosen is not None:
            alternative = progress.iterates.parameters(other).unsqueeze(0)
            save_model(
                run.folder / f"{other.value}.safetensors",
                _saved_model(job, alternative, other.value),
            )
    if config.privacy is not None:
        results = results.model_copy(update={"privacy": privacy_of_run(config, federation)})
    save_model(run.folder / MODEL_FILE, saved)
    write_card(
        run.folder, results, saved.encoding, census=census, card=run.card, section=config.report
    )
    write_results(run.folder, results)
    # Only now: without its key, an unfinished run could not go on.
    forget_noise_key(run.folder)


def _certificate(job: TableJob, members: Tensor) -> Certificate:
    return certify(job.federation, members[0]).in_units(job.tables.encoding.risk_unit)


def _saved_model(job: TableJob, members: Tensor, name: str) -> SavedModel:
    models = [job.federation.model(parameters).cpu() for parameters in members]
    config = job.config
    return mixed_model(models, job.tables.encoding, config.model, name, config.format)


class RoundSink(Protocol):
    """A destination for rounds."""

    def add(self, record: RoundRecord) -> None:
        """Write a round."""
        ...


def open_runs(job: TableJob, runs: Sequence[TableRun]) -> None:
    """Initialise all runs, so that mistakes are found before anything is written."""
    if job.config.method.certify:
        check_certifiable(job.federation.census)
        check_single_answer(runs[0].method, runs[0].rounds)
    for run in runs:
        initial_progress(job.federation, run.method)
    for run in runs:
        _open_run(job, run)


def _open_run(job: TableJob, run: TableRun) -> None:
    """Claim the folder for this run, or refuse it."""
    own = {
        "key": run.card.key,
        "options": run.options_that_matter,
        "participation": run.participation,
        "iterate": run.iterate.value,
    }
    configuration = identity(job.config, job.tables, job.device) | {"method": own}
    key = None if is_finished(run) else job.noise_key
    if key is not None:
        check_limit(job.config, name_of_key(key))
    claim_folder(run.folder, {"version": __version__, "configuration": configuration})
    if key is not None:
        keep_noise_key(run.folder, key)
        spend(job.config, name_of_key(key))


def is_finished(run: TableRun, *, certified: bool = False) -> bool:
    """Whether the run has all its rounds, or met its stopping rule, and is proved if required."""
    results = read_results(run.folder)
    proof = results.proof if results else None
    if certified and not (proof and proof.certificate.is_of_groups):
        return False
    if results is None or results.method.rounds >= run.rounds:
        return results is not None
    reached = run.gap > 0 and results.gap_left is not None and results.gap_left <= run.gap
    found = results.validation
    return reached or (found is not None and found.exhausts(run.patience))


def train_table(
    job: TableJob, run: TableRun, seconds: float = math.inf
) -> Generator[RunSoFar[Any]]:
    """Yield each round up to the run's last one, then write its model, results and card."""
    with ExitStack() as stack:
        if not stack.enter_context(claim_run(run.folder)):
            raise InputError(
                f"another process is training in {run.folder}; wait, or choose another --out"
            )
        # The baseline only serves for comparison.
        certified = job.config.method.certify and run.folder.name != BASELINE_FOLDER
        finished = is_finished(run, certified=certified)
        write_json(run.folder / CENSUS_FILE, record_as_json(census_of(job.tables)))
        _write_held_out(job, run)
        # A finished run keeps the configuration that produced its results.
        if not finished or not (run.folder / CONFIG_FILE).exists():
            write_text(run.folder / CONFIG_FILE, job.config_text)
        if finished:
            forget_noise_key(run.folder)
            return
        write_json(run.folder / PLANNED_FILE, record_as_json(_planned(job, run)))
        training = resume_run(
            run.folder,
            job.federation,
            run.method,
            rounds=run.rounds,
            seed=job.config.seed,
            participation=run.participation,
            patience=run.patience,
            needs_patience=job.config.method.patience is not None,
            seconds=seconds,
            unit=job.tables.encoding.risk_unit,
        )
        so_far = next(training)
        yield so_far
        sinks = list(_further_sinks(job, run, so_far.round, stack))
        for so_far in stack.enter_context(closing(training)):
            if so_far.record is not None:
                for sink in sinks:
                    sink.add(so_far.record)
            yield so_far
        if so_far.is_finished and so_far.progress is not None:
            finish_table(
                job,
                run,
                so_far.progress,
                rounds=read_rounds(run.folder / ROUNDS_FILE),
                seconds=so_far.seconds,
                certified=certified,
            )
            if job.config.logging.mlflow_uri:
                from fedminmax.exports.mlflow_log import log_model

                log_model(job.config.logging.mlflow_uri, run.folder)
            # From now on the results say all that.
            (run.folder / PLANNED_FILE).unlink(missing_ok=True)


def _planned(job: TableJob, run: TableRun) -> PlannedFile:
    known: dict[str, PrivacyOfRun] = {}
    if job.config.privacy is not None:
        known["privacy"] = privacy_of_run(job.config, job.federation)
    return PlannedFile(
        format=FORMAT,
        key=run.card.key,
        name=run.method.name,
        rounds=run.rounds,
        may_stop_early=run.gap > 0 or run.patience is not None,
        rounds_after=0
        if run.folder.name == BASELINE_FOLDER
        else sum(own.rounds for own in planned_runs(job.config.method)[1:]),
        **known,
    )


def _write_held_out(job: TableJob, run: TableRun) -> None:
    """Write which rows were held out for tests or validation, if any.

    Under a privacy guarantee each row is drawn by what it contains, and a list would tell of it.
    """
    held_out, set_aside = job.tables.held_out, job.tables.set_aside
    if job.config.privacy is not None:
        return
    if len(held_out) or len(set_aside):
        write_held_out(run.folder / HELD_OUT_FILE, job.config.seed, held_out, set_aside)


def _further_sinks(
    job: TableJob, run: TableRun, start: int, stack: ExitStack
) -> Iterator[RoundSink]:
    """Open the further destinations for rounds that the user asked for."""
    groups = job.tables.group_names
    if job.config.logging.tensorboard:
        from fedminmax.exports.tensorboard_log import TensorBoardLog

        board = TensorBoardLog(run.folder / "tensorboard", groups, start)
        yield stack.enter_context(closing(board))
    if job.config.logging.mlflow_uri:
        from fedminmax.exports.mlflow_log import MlflowLog

        tracked = MlflowLog(job.config.logging.mlflow_uri, run.folder, groups, run.options)
        yield stack.enter_context(closing(tracked))
