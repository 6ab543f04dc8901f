"""The paper's experiments, run by run, resumable at any moment.

`synthetic` gives the paper's Table 1; `fashion-mnist` gives Table 2, its appendix table and figure.
"""

import json
import time
from dataclasses import asdict, replace
from pathlib import Path

from experiments.paper import lemma2, synthetic
from experiments.paper.fashion import (
    APPENDIX_HEADERS,
    TABLE_2_HEADERS,
    FashionRow,
    appendix_cells,
    fashion_notes,
    fashion_plans,
    fashion_rows_as_json,
    fashion_study,
    markdown_tables,
    plans_in,
    summarise_fashion,
    table_2_cells,
)
from experiments.paper.fashion_mnist import fashion_mnist
from experiments.paper.figures import draw_accuracies, draw_risk_against_rounds, read_curves
from experiments.paper.plans import PaperSettings, Selection, finish_with_bars, open_study
from fedminmax.cli.comparison import Call, print_status
from fedminmax.cli.terminal import display, print_table, wide_console
from fedminmax.core.files import write_json, write_text
from fedminmax.core.text import markdown_table
from fedminmax.runs.folder import RESULTS_FILE, TABLE_FILE
from fedminmax.studies.scores import read_results
from fedminmax.studies.study import RunPlan, Study, StudyConfig, synthetic_study

QUICK = (
    "Quick: a linear model of the side of 0 that x is on, which can express every optimum, in "
    "place of the network; local methods take full-batch steps."
)
ROUNDS_TO_COMPARE = 3
# Enough rows for the order of sums to matter; takes seconds rather than minutes.
MAX_ROWS_TO_COMPARE = 6000


def reproduce_synthetic(
    config: StudyConfig,
    settings: PaperSettings,
    selection: Selection,
    call: Call,
    *,
    quick: bool,
) -> None:
    """Finish the selected runs and print the table of all finished runs in the folder."""
    plans = synthetic.synthetic_plans(config, settings, selection)
    fixed = asdict(config) | asdict(settings)
    if call.status_only:
        print_status(plans, fixed, call)
        return
    study = synthetic_study(config)
    open_study(study, plans, fixed, call)
    missing = finish_with_bars("synthetic", study, plans, call)
    folder = call.folder
    rows = synthetic.summarise(read_results(folder))
    stated = (
        f"{config.rows} rows, {config.sites} sites, eta_theta = {settings.learning_rate:g}, "
        f"eta_mu = eta_lambda = {settings.adversary_rate:g}; FedAvg and q-FedAvg: local epochs "
        f"E = {settings.epochs}, batch {settings.batch_size}."
    )
    notes = [*synthetic.table_notes(rows, config.folds_by, missing=missing), stated]
    if quick and not config.network:
        notes.append(QUICK)
    content = {"config": fixed, "rows": synthetic.rows_as_json(rows), "notes": notes}
    write_json(folder / RESULTS_FILE, content)
    table = markdown_table(synthetic.HEADERS, synthetic.table_cells(rows))
    write_text(folder / TABLE_FILE, "\n\n".join([table, *notes]) + "\n")
    if call.as_json:
        print(json.dumps(content))
    else:
        _print_table(rows, notes, folder)


def _print_table(rows: list[synthetic.TableRow], notes: list[str], folder: Path) -> None:
    console = wide_console()
    title = "Papadaki et al. 2021, Table 1, next to ours"
    print_table(
        console, title, synthetic.HEADERS, synthetic.table_cells(rows), names=2, sections=True
    )
    for note in notes:
        console.print(note)
    console.print(f"Results: {folder / RESULTS_FILE}, {folder / TABLE_FILE}")


def reproduce_fashion(
    config: StudyConfig,
    settings: PaperSettings,
    selection: Selection,
    call: Call,
    *,
    data_dir: Path | None,
    reuse_lemma2: bool,
    quick: bool,
) -> None:
    """Finish the selected runs and print the tables of all finished runs in the folder."""
    plans = fashion_plans(config, settings, selection)
    fixed = asdict(config) | asdict(settings)
    fedminmax = [plan for plan in plans if plan.method.name == "FedMinMax"]
    kept = [plan for plan in plans if not reuse_lemma2 or _is_run(plan, fedminmax)]
    if call.status_only:
        print_status(kept, fixed, call)
        return
    data = fashion_mnist(data_dir)
    study = fashion_study(config, data)
    open_study(study, kept, fixed, call)
    started = time.monotonic()
    if reuse_lemma2 and fedminmax:
        part = replace(config, rows=min(config.rows, MAX_ROWS_TO_COMPARE))
        first = [plan for plan in fedminmax if plan.fold == fedminmax[0].fold]
        _compare(fashion_study(part, data), first, call)
    if call.budget is not None:
        call = replace(call, budget=max(0.0, call.budget - (time.monotonic() - started)))
    missing = finish_with_bars("FashionMNIST", study, kept, call)
    _report(config, settings, call, missing, quick=quick)


def _is_run(plan: RunPlan, fedminmax: list[RunPlan]) -> bool:
    """With --reuse-lemma2, FedMinMax runs only in its first setting."""
    return plan not in fedminmax or plan.setting == fedminmax[0].setting


def _compare(study: Study, plans: list[RunPlan], call: Call) -> None:
    """Compare the first rounds in all settings of FedMinMax that no earlier call has compared."""
    earlier = lemma2.read_one_trajectory(call.folder)
    new = lemma2.plans_to_compare(plans, earlier)
    if not new:
        return
    steps = len(new) * ROUNDS_TO_COMPARE * len(lemma2.PRECISIONS)
    with display("compare first rounds (Lemma 2)", steps) as bars:
        for done, comparison in lemma2.compare_first_rounds(study, new, ROUNDS_TO_COMPARE):
            bars.show_work(done)
            if comparison is not None:
                lemma2.write_one_trajectory(call.folder, lemma2.merged(earlier, comparison))


def _report(
    config: StudyConfig, settings: PaperSettings, call: Call, missing: int, *, quick: bool
) -> None:
    """Write and print tables and figures of all finished runs."""
    folder = call.folder
    comparison = lemma2.read_one_trajectory(folder)
    rows = summarise_fashion(read_results(folder), comparison.settings if comparison else ())
    notes = fashion_notes(rows, _details(config, settings, comparison, quick=quick), missing)
    content = {
        "config": asdict(config) | asdict(settings),
        "one_trajectory": asdict(comparison) if comparison else None,
        "rows": fashion_rows_as_json(rows),
        "notes": notes,
    }
    write_json(folder / RESULTS_FILE, content)
    write_text(folder / TABLE_FILE, markdown_tables(rows, notes))
    figures = draw_accuracies(rows, folder / "accuracies") if rows else []
    panels = read_curves(folder, plans_in(folder, config, settings))
    if panels:
        figures += draw_risk_against_rounds(panels, folder / "risk_against_rounds")
    if call.as_json:
        print(json.dumps(content))
    else:
        _print_tables(rows, notes, [folder / RESULTS_FILE, folder / TABLE_FILE, *figures])


def _details(
    config: StudyConfig,
    settings: PaperSettings,
    comparison: lemma2.OneTrajectory | None,
    *,
    quick: bool,
) -> list[str]:
    first, second = config.widths
    details = [
        f"{config.rows} rows, {config.sites} sites, CNN with {first} and {second} channels.",
        (
            f"eta_theta = {settings.learning_rate:g}, "
            f"eta_mu = eta_lambda = {settings.adversary_rate:g}."
        ),
        f"FedAvg: local epochs E = {settings.epochs}, batch {settings.batch_size}.",
    ]
    if quick:
        details.append(
            "Quick: fewer rows, a smaller model and larger steps than the paper's; its numbers "
            "are not comparable, but the order of the methods is."
        )
    if comparison:
        details.append(f"{comparison}.")
    return details


def _print_tables(rows: list[FashionRow], notes: list[str], files: list[Path]) -> None:
    console = wide_console()
    title = "Papadaki et al. 2021, Table 2, next to ours"
    print_table(console, title, TABLE_2_HEADERS, table_2_cells(rows), names=3, sections=True)
    title = "All groups, next to the appendix table"
    print_table(console, title, APPENDIX_HEADERS, appendix_cells(rows), names=3, sections=True)
    for note in notes:
        console.print(note)
    console.print(f"Results: {', '.join(map(str, files))}")
