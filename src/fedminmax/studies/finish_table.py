"""What a finished run on tables leaves: model, results, card."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from fedminmax.core.certificate import Certificate
from fedminmax.core.iterates import Iterate
from fedminmax.core.mixture import as_one_model
from fedminmax.data.tables.config import TableConfig
from fedminmax.data.tables.load import FederatedTables
from fedminmax.federation.certify import certify
from fedminmax.federation.inprocess import InProcessFederation
from fedminmax.federation.train import Progress, answer_of, members_of
from fedminmax.report.certificate_words import with_proof
from fedminmax.report.model_card import write_card
from fedminmax.report.model_file import FILE_NAME, save_model
from fedminmax.report.round_records import RoundRecord
from fedminmax.report.run_folder_records import Measured, ValidationOfRun
from fedminmax.report.saved_model import SavedModel
from fedminmax.report.table_metrics import measure, measure_merged
from fedminmax.report.table_results import (
    Remarks,
    TrainingFacts,
    results_of,
    today,
    write_results,
)
from fedminmax.report.validation_words import validation_of
from fedminmax.studies.advise_table import task_of_tables
from fedminmax.studies.after_run import add_advice
from fedminmax.studies.personal_models import measure_personal
from fedminmax.studies.table_federation import census_of
from fedminmax.studies.table_runs import CHOSEN, TableRun


def finish_table(
    run: TableRun,
    config: TableConfig,
    tables: FederatedTables,
    federation: InProcessFederation,
    progress: Progress[Any],
    rounds: Sequence[RoundRecord],
    seconds: float,
    *,
    certified: bool = False,
) -> None:
    """Write the model, its card and, last of all, the results: they say that the run is done.

    ``certified`` proves of the answer what the method has not proved itself.
    """
    answer = answer_of(progress, run.iterate)
    members = members_of(progress, run.iterate)
    name = CHOSEN if answer is None else answer.value
    saved = _saved_model(members, name, config, tables, federation)
    last = rounds[-1]
    if certified and last.certificate is None:
        last = replace(last, certificate=_certificate(members, tables, federation))
    census = census_of(tables)
    validation: ValidationOfRun | None = None
    if tables.validation:
        scale = tables.encoding.target_scale
        validation = validation_of(
            progress.iterates.best.chosen,
            progress.iterates.best.latest,
            federation.validation_rows.tolist(),
            federation.group_names,
            scale.deviation**2 if scale else 1.0,
            run.patience,
        )
    facts = TrainingFacts(
        run.trained_for(progress.round),
        config.seed,
        seconds,
        progress.gradient_evaluations,
        run.judge(rounds, census, saved.iterate, validation),
        today(),
    )
    test = measure(saved, [part.examples for part in tables.test])
    personal: Measured | None = None
    notes: list[str] = []
    if progress.kept.numel():
        personal, notes = measure_personal(saved, tables, federation, progress.kept)
    remarks = Remarks((*tables.notes, *notes), tuple(tables.warnings))
    results = with_proof(results_of(saved, facts, test, remarks), last)
    task = task_of_tables(config.model, tables.encoding)
    results = add_advice(results, run, task, tables.encoding, census, rounds)
    if personal is not None:
        results = results.model_copy(update={"personal": personal})
    merged = measure_merged(saved, [(part.examples, part.merged) for part in tables.test])
    if merged is not None:
        results = results.model_copy(update={"merged": merged})
    if validation is not None:
        results = results.model_copy(update={"validation": validation})
        other = Iterate.LAST if answer is Iterate.BEST else Iterate.BEST
        if validation.chosen is not None:
            beside = progress.iterates.parameters(other).unsqueeze(0)
            save_model(
                run.folder / f"{other.value}.safetensors",
                _saved_model(beside, other.value, config, tables, federation),
            )
    save_model(run.folder / FILE_NAME, saved)
    write_card(run.folder, saved, results, census, run.card, config.report)
    write_results(run.folder, results)


def _certificate(
    members: Tensor, tables: FederatedTables, federation: InProcessFederation
) -> Certificate:
    scale = tables.encoding.target_scale
    return certify(federation, members[0]).in_units(scale.deviation**2 if scale else 1.0)


def _saved_model(
    members: Tensor,
    name: str,
    config: TableConfig,
    tables: FederatedTables,
    federation: InProcessFederation,
) -> SavedModel:
    models = [federation.model(parameters).cpu() for parameters in members]
    return SavedModel(
        as_one_model(models, classifies=tables.encoding.outputs > 1),
        tables.encoding,
        config.model.kind,
        config.model.hidden,
        len(models),
        config.model.loss,
        name,
        config.format,
    )
