"""What a run over a network leaves: the same folder, files and figures as a run in one process.

`rounds.jsonl` has each round's risks and weights; `sites.jsonl` has who took part in it, who did
not and why, times and bytes.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedminmax.core.errors import InputError
from fedminmax.core.files import write_json
from fedminmax.core.messages import Census
from fedminmax.core.mixture import Mixture
from fedminmax.core.task import Task
from fedminmax.core.workspace import model_with
from fedminmax.data.tables.config import TableConfig
from fedminmax.data.tables.sizes import size_warnings
from fedminmax.federation.agreement import AGREEMENT_FILE, Agreed, read_agreement
from fedminmax.federation.checkpoint import checkpoint_paths
from fedminmax.federation.network_log import ROUNDS_FILE, NetworkRound, read_network_rounds
from fedminmax.federation.network_plan import NetworkPlan, task_of
from fedminmax.federation.network_run import read_members, run_folder
from fedminmax.federation.planned_runs import with_rate
from fedminmax.methods.catalogue import CARDS
from fedminmax.methods.method import SelectingState
from fedminmax.report.change_results import CHANGE, change_content
from fedminmax.report.metrics_from_sums import DrawnSums
from fedminmax.report.model_card import write_card
from fedminmax.report.model_file import FILE_NAME, save_model
from fedminmax.report.round_records import RoundRecord, write_rounds
from fedminmax.report.saved_model import SavedModel
from fedminmax.report.table_metrics import measured_content
from fedminmax.report.table_results import TrainingFacts, results_content, write_results
from fedminmax.studies.finish_table import CHOSEN
from fedminmax.studies.network_remarks import remarks_on, sites_content
from fedminmax.studies.network_tests import MeasuredTests, measured_tests
from fedminmax.studies.table_runs import BASELINE_FOLDER, TableRun

SITES_FILE = "sites.jsonl"


@dataclass(frozen=True, eq=False)
class FinishedRun:
    """One of a plan's runs, as it was fetched: its rounds and its model."""

    table_run: TableRun
    fetched: Path
    rounds: tuple[NetworkRound, ...]
    saved: SavedModel


def collect_network_run(
    fetched: Path, plan: NetworkPlan, config: TableConfig, folder: Path
) -> list[dict[str, Any]]:
    """Write the run folder from what the coordinator fetched; return each run's results."""
    agreed = read_agreement(fetched / AGREEMENT_FILE)
    if agreed is None:
        raise InputError(f"{fetched} has no {AGREEMENT_FILE}; the sites never agreed")
    runs = _finished_runs(fetched, plan, agreed, config, folder)
    tests = measured_tests(fetched, plan, config, [run.saved for run in runs])
    census = _census(plan, agreed, tests)
    results = _results(runs, plan, fetched, tests, census)
    # The method's run last: its results say that the whole folder is done.
    for run, own in reversed(list(zip(runs, results, strict=True))):
        _write(run, own, census, agreed)
    return results


def _finished_runs(
    fetched: Path, plan: NetworkPlan, agreed: Agreed, config: TableConfig, folder: Path
) -> list[FinishedRun]:
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
            run.rounds,
            run.participation,
            run.iterate or method.output,
        )
        rounds = tuple(read_network_rounds(own / ROUNDS_FILE))
        saved = _saved_model(own, table_run, task, agreed, config)
        finished.append(FinishedRun(table_run, own, rounds, saved))
    return finished


def _saved_model(
    fetched: Path, run: TableRun, task: Task, agreed: Agreed, config: TableConfig
) -> SavedModel:
    models = [model_with(task, parameters).float() for parameters in read_members(fetched)]
    encoding = agreed.encoding
    return SavedModel(
        models[0] if len(models) == 1 else Mixture(models, classifies=encoding.outputs > 1).eval(),
        encoding,
        config.model.kind,
        config.model.hidden,
        len(models),
        config.model.loss,
        CHOSEN if _chooses_itself(run, task, agreed) else run.iterate.value,
        config.delimiter,
    )


def _chooses_itself(run: TableRun, task: Task, agreed: Agreed) -> bool:
    rows = agreed.rows(list(agreed.counts))
    census = Census(rows, len(agreed.encoding.schema.target.classes))
    return isinstance(run.method.init(task.initial_parameters, census), SelectingState)


def _census(plan: NetworkPlan, agreed: Agreed, tests: MeasuredTests) -> dict[str, Any]:
    return {
        "format": 1,
        "holders": list(plan.sites),
        "groups": list(agreed.encoding.group_names),
        "train": agreed.rows(plan.sites).tolist(),
        "test": tests.by_site.tolist(),
        "other_tests": tests.of_files,
    }


def _results(
    runs: list[FinishedRun],
    plan: NetworkPlan,
    fetched: Path,
    tests: MeasuredTests,
    census: dict[str, Any],
) -> list[dict[str, Any]]:
    drawn = DrawnSums(tests.metrics, tests.sums, plan.seed)
    results = []
    for number, run in enumerate(runs):
        test = {"rows": 0, "metrics": {}}
        if drawn.rows:
            test = measured_content(drawn.metrics(number), run.saved.groups)
        said = remarks_on(run.rounds, plan, fetched, run.saved.groups)
        said["warnings"] += _sizes(run.saved, census, tests)
        content = results_content(run.saved, _facts(run, plan), test, said)
        results.append(content | {"sites": sites_content(run.rounds, plan)})
    if len(runs) > 1 and drawn.rows:
        results[0][CHANGE] = change_content(drawn.risk(0), drawn.risk(1), results[1])
    return results


def _sizes(saved: SavedModel, census: dict[str, Any], tests: MeasuredTests) -> list[str]:
    """Warn of groups whose risk is mostly noise."""
    groups = saved.encoding.groups
    train = [sum(column) for column in zip(*census["train"], strict=True)]
    test = tests.sums.counts.tolist()
    return size_warnings(
        saved.encoding,
        dict(zip(groups, train, strict=True)),
        dict(zip(groups, test, strict=True)) if any(test) else {},
    )


def _facts(run: FinishedRun, plan: NetworkPlan) -> TrainingFacts:
    return TrainingFacts(
        run.table_run.card.key,
        run.table_run.method.name,
        run.table_run.options,
        run.rounds[-1].round,
        run.table_run.participation,
        plan.seed,
        round(sum(entry.seconds for entry in run.rounds), 3),
        run.rounds[-1].gradient_evaluations,
    )


def _write(
    run: FinishedRun, results: dict[str, Any], census: dict[str, Any], agreed: Agreed
) -> None:
    """Write a run's files; the results last, because they say that it is done."""
    folder = run.table_run.folder
    write_rounds(folder / "rounds.jsonl", _records(run, census, agreed))
    current, _ = checkpoint_paths(run.fetched)
    for path, name in ((run.fetched / ROUNDS_FILE, SITES_FILE), (current, current.name)):
        shutil.copy(path, folder / name)
    write_json(folder / "census.json", census)
    save_model(folder / FILE_NAME, run.saved)
    write_card(folder, run.saved, results, census, run.table_run.card)
    write_results(folder, results)


def _records(run: FinishedRun, census: dict[str, Any], agreed: Agreed) -> list[RoundRecord]:
    """Return the rounds as a run in one process writes them."""
    scale = agreed.encoding.target_scale
    unit = scale.deviation**2 if scale else 1.0
    places = {site: place for place, site in enumerate(census["holders"])}
    seconds = 0.0
    records = []
    for entry in run.rounds:
        seconds += entry.seconds
        records.append(
            RoundRecord(
                entry.round,
                round(seconds, 3),
                tuple(None if risk is None else risk * unit for risk in entry.risks),
                entry.weights,
                run.table_run.card.over if entry.weights else "nothing",
                tuple(places[site] for site in entry.took_part),
                entry.gradient_evaluations,
            )
        )
    return records
