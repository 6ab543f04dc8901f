"""Read what the coordinator fetched from a run over a network: rounds, models and test scores.

Test rows are those that sites held out, and those in the coordinator's test files. Scores of the
sites' rows arrive as sums; rows of files are scored here and added to them.
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import reduce
from operator import add
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedminmax.config.read import TableConfig
from fedminmax.core.iterates import Iterate
from fedminmax.core.linear_structure import linear_structure_of
from fedminmax.core.task import Task
from fedminmax.core.validation import NOT_MEASURED
from fedminmax.core.workspace import model_with
from fedminmax.data.tables.encode import encode, merged_numbers
from fedminmax.data.tables.sources import read_source
from fedminmax.exports.saved_model import SavedModel, mixed_model
from fedminmax.findings.records import ValidationOfRun
from fedminmax.methods.catalogue import CARDS
from fedminmax.methods.method import SelectingState
from fedminmax.metrics.row_scores import stacked
from fedminmax.metrics.score_rows import metric_names, score_rows
from fedminmax.metrics.sums import ScoreSums, sum_scores
from fedminmax.network.planned_runs import with_rate
from fedminmax.network.server.agreement import Agreed
from fedminmax.network.server.measure import by_group, read_measured
from fedminmax.network.server.run import (
    ProofResult,
    read_alternative_model,
    read_members,
    read_proof,
    read_validation,
    run_folder,
)
from fedminmax.network.wire.plan import NetworkPlan, task_of
from fedminmax.runs.layout import BASELINE_FOLDER
from fedminmax.runs.plan import CHOSEN, TableRun
from fedminmax.runs.remarks import validation_of
from fedminmax.training.round_record import ROUNDS_FILE, RoundRecord, read_rounds


@dataclass(frozen=True, eq=False)
class FinishedRun:
    """One of a plan's runs, as fetched: its rounds and its model.

    ``alternative`` is the last model if validation rows chose the answer, otherwise their choice.
    ``proof`` is what was proved after the rounds, if that was requested.
    """

    table_run: TableRun
    fetched: Path
    rounds: tuple[RoundRecord, ...]
    _: KW_ONLY
    saved: SavedModel
    alternative: SavedModel | None = None
    validation: ValidationOfRun | None = None
    proof: ProofResult | None = None

    @property
    def unit(self) -> float:
        """The factor that converts risks to the target's unit, squared."""
        return self.saved.encoding.risk_unit


def finished_runs(
    fetched: Path, plan: NetworkPlan, agreed: Agreed, config: TableConfig, folder: Path
) -> list[FinishedRun]:
    """Read each of the plan's runs; ``folder`` is where its results will be."""
    planned = plan.runs
    if agreed.learning_rate is not None:
        planned = with_rate(planned, agreed.learning_rate)
    task = task_of(plan, agreed.encoding)
    finished = []
    for number, run in enumerate(planned):
        own = run_folder(fetched, plan, number)
        method = run.build()
        table_run = TableRun(
            folder / BASELINE_FOLDER if number else folder,
            CARDS[run.method],
            method,
            rounds=run.rounds,
            participation=run.participation,
            iterate=run.iterate or method.output,
            patience=run.patience,
        )
        rounds = tuple(read_rounds(own / ROUNDS_FILE))
        stored = read_validation(own)
        if stored is None:
            chosen = _chooses_itself(table_run, task, agreed)
            name = CHOSEN if chosen else table_run.iterate.value
        else:
            name = stored.answer or CHOSEN
        saved = _saved_model(read_members(own), name, task, agreed, config)
        alternative = validation = None
        if stored is not None:
            validation = validation_of(
                stored.chosen or NOT_MEASURED,
                stored.latest or NOT_MEASURED,
                rows=stored.rows,
                groups=agreed.encoding.group_names,
                unit=agreed.encoding.risk_unit,
                patience=run.patience,
            )
            if stored.chosen is not None:
                other = Iterate.LAST if name == Iterate.BEST.value else Iterate.BEST
                line = read_alternative_model(own).unsqueeze(0)
                alternative = _saved_model(line, other.value, task, agreed, config)
        proof = read_proof(own)
        finished.append(
            FinishedRun(
                table_run,
                own,
                rounds,
                saved=saved,
                alternative=alternative,
                validation=validation,
                proof=proof,
            )
        )
    return finished


def _saved_model(
    members: Tensor, name: str, task: Task, agreed: Agreed, config: TableConfig
) -> SavedModel:
    models = [model_with(task, parameters).float() for parameters in members]
    return mixed_model(models, agreed.encoding, config.model, name, config.format)


def _chooses_itself(run: TableRun, task: Task, agreed: Agreed) -> bool:
    census = replace(agreed.census(list(agreed.counts)), linear=linear_structure_of(task))
    return isinstance(run.method.init(task.initial_parameters, census), SelectingState)


@dataclass(frozen=True, eq=False)
class MeasuredTests:
    """Sums of all runs' scores, the metrics' names, and rows by site and by owner of a file.

    ``merged`` has the sums of each group that was merged into one.
    """

    metrics: tuple[str, ...]
    sums: ScoreSums
    merged: ScoreSums
    by_site: Tensor
    of_files: dict[str, tuple[int, ...]]


def measured_tests(
    fetched: Path, plan: NetworkPlan, config: TableConfig, models: Sequence[SavedModel]
) -> MeasuredTests:
    """Combine the sites' scores with these models' scores on the configuration's test files."""
    encoding = models[0].encoding
    measured = read_measured(fetched)
    by_owner: dict[str, ScoreSums] = {}
    for source in config.test:
        for part in read_source(source, config).parts:
            rows = encode(part.rows, encoding, part.source)
            scores = [stacked(score_rows(saved.model, rows, encoding)) for saved in models]
            table = torch.from_numpy(np.concatenate(scores, axis=1))
            apart, groups = merged_numbers(part.rows, encoding), len(encoding.groups)
            group = torch.where(apart >= 0, groups + apart, rows.group)
            own = sum_scores(table, group, groups + len(encoding.merged_groups))
            by_owner[part.owner] = by_owner[part.owner] + own if part.owner in by_owner else own
    by_site = measured.rows.clone()
    counts = {owner: by_group(sums, encoding)[0].counts for owner, sums in by_owner.items()}
    for owner in set(by_owner) & set(plan.senders):
        by_site[plan.senders.index(owner)] += counts[owner]
    sums, merged = by_group(reduce(add, by_owner.values(), measured.sums), encoding)
    return MeasuredTests(
        metric_names(encoding),
        sums,
        merged,
        by_site,
        {
            owner: tuple(int(count) for count in own)
            for owner, own in counts.items()
            if owner not in plan.senders
        },
    )
