"""`fedminmax reproduce`: the paper's experiments, run by run, resumable at any moment.

`synthetic` gives the paper's Table 1; `fashion-mnist` gives Table 2, its appendix table and figure.
"""

import json
import time
from dataclasses import asdict, replace
from pathlib import Path

from fedminmax.cli.study_runs import (
    Call,
    fashion_mnist,
    finish_with_bars,
    open_study,
    print_status,
)
from fedminmax.cli.terminal import display, print_table, wide_console
from fedminmax.core.files import write_json, write_text
from fedminmax.core.text import markdown_table
from fedminmax.runs.layout import RESULTS_FILE, TABLE_FILE
from fedminmax.studies.fashion import (
    APPENDIX_HEADERS,
    TABLE_2_HEADERS,
    FashionConfig,
    FashionRow,
    FashionStudy,
    appendix_cells,
    fashion_notes,
    fashion_plans,
    fashion_rows_as_json,
    markdown_tables,
    plans_in,
    summarise_fashion,
    table_2_cells,
)
from fedminmax.studies.figures import draw_accuracies, draw_risk_against_rounds, read_curves
from fedminmax.studies.lemma2 import (
    PRECISIONS,
    OneTrajectory,
    compare_first_rounds,
    merged,
    plans_to_compare,
    read_one_trajectory,
    write_one_trajectory,
)
from fedminmax.studies.scores import read_results
from fedminmax.studies.study import RunPlan, Selection
from fedminmax.studies.synthetic import (
    HEADERS,
    SyntheticConfig,
    SyntheticStudy,
    TableRow,
    rows_as_json,
    summarise,
    synthetic_plans,
    table_cells,
    table_notes,
)

QUICK = (
    "Quick: a linear model of the side of 0 that x is on, which can express every optimum, in "
    "place of the network; local methods take full-batch steps."
)
ROUNDS_TO_COMPARE = 3
# Enough rows for the order of sums to matter; takes seconds rather than minutes.
MAX_ROWS_TO_COMPARE = 6000


def reproduce_synthetic(
    config: SyntheticConfig, selection: Selection, call: Call, *, quick: bool
) -> None:
    """Finish the selected runs and print the table of all finished runs in the folder."""
    plans = synthetic_plans(config, selection)
    if call.status_only:
        print_status(plans, asdict(config), call)
        return
    study = SyntheticStudy(config)
    open_study(study, plans, asdict(config), call)
    missing = finish_with_bars("reproduce synthetic", study, plans, call)
    folder = call.folder
    rows = summarise(read_results(folder))
    settings = (
        f"{config.rows} rows, {config.sites} sites, eta_theta = {config.learning_rate:g}, "
        f"eta_mu = eta_lambda = {config.adversary_rate:g}; FedAvg and q-FedAvg: local epochs "
        f"E = {config.epochs}, batch {config.batch_size}."
    )
    notes = [*table_notes(rows, config.folds_by, missing=missing), settings]
    if quick and not config.network:
        notes.append(QUICK)
    content = {"config": asdict(config), "rows": rows_as_json(rows), "notes": notes}
    write_json(folder / RESULTS_FILE, content)
    table = markdown_table(HEADERS, table_cells(rows))
    write_text(folder / TABLE_FILE, "\n\n".join([table, *notes]) + "\n")
    if call.as_json:
        print(json.dumps(content))
    else:
        _print_table(rows, notes, folder)


def _print_table(rows: list[TableRow], notes: list[str], folder: Path) -> None:
    console = wide_console()
    title = "Papadaki et al. 2021, Table 1, next to ours"
    print_table(console, title, HEADERS, table_cells(rows), names=2, sections=True)
    for note in notes:
        console.print(note)
    console.print(f"Results: {folder / RESULTS_FILE}, {folder / TABLE_FILE}")


def reproduce_fashion(
    config: FashionConfig,
    selection: Selection,
    call: Call,
    *,
    data_dir: Path | None,
    reuse_lemma2: bool,
    quick: bool,
) -> None:
    """Finish the selected runs and print the tables of all finished runs in the folder."""
    plans = fashion_plans(config, selection)
    fedminmax = [plan for plan in plans if plan.method.name == "FedMinMax"]
    kept = [plan for plan in plans if not reuse_lemma2 or _is_run(plan, fedminmax)]
    if call.status_only:
        print_status(kept, asdict(config), call)
        return
    study = FashionStudy(config, fashion_mnist(data_dir))
    open_study(study, kept, asdict(config), call)
    started = time.monotonic()
    if reuse_lemma2 and fedminmax:
        _compare(study, [plan for plan in fedminmax if plan.fold == fedminmax[0].fold], call)
    if call.budget is not None:
        call = replace(call, budget=max(0.0, call.budget - (time.monotonic() - started)))
    missing = finish_with_bars("reproduce fashion-mnist", study, kept, call)
    _report(config, call, missing, quick=quick)


def _is_run(plan: RunPlan, fedminmax: list[RunPlan]) -> bool:
    """With --reuse-lemma2, FedMinMax runs only in its first setting."""
    return plan not in fedminmax or plan.setting == fedminmax[0].setting


def _compare(study: FashionStudy, plans: list[RunPlan], call: Call) -> None:
    """Compare the first rounds in all settings of FedMinMax that no earlier call has compared."""
    found = read_one_trajectory(call.folder)
    new = plans_to_compare(plans, found)
    if not new:
        return
    rows = min(study.config.rows, MAX_ROWS_TO_COMPARE)
    part = FashionStudy(replace(study.config, rows=rows), study.data)
    steps = len(new) * ROUNDS_TO_COMPARE * len(PRECISIONS)
    with display("compare first rounds (Lemma 2)", steps) as bars:
        for done, comparison in compare_first_rounds(part, new, ROUNDS_TO_COMPARE):
            bars.show_work(done)
            if comparison is not None:
                write_one_trajectory(call.folder, merged(found, comparison))


def _report(config: FashionConfig, call: Call, missing: int, *, quick: bool) -> None:
    """Write and print tables and figures of all finished runs."""
    folder = call.folder
    comparison = read_one_trajectory(folder)
    rows = summarise_fashion(read_results(folder), comparison.settings if comparison else ())
    notes = fashion_notes(rows, _details(config, comparison, quick=quick), missing)
    content = {
        "config": asdict(config),
        "one_trajectory": asdict(comparison) if comparison else None,
        "rows": fashion_rows_as_json(rows),
        "notes": notes,
    }
    write_json(folder / RESULTS_FILE, content)
    write_text(folder / TABLE_FILE, markdown_tables(rows, notes))
    figures = draw_accuracies(rows, folder / "accuracies") if rows else []
    panels = read_curves(folder, plans_in(folder, config))
    if panels:
        figures += draw_risk_against_rounds(panels, folder / "risk_against_rounds")
    if call.as_json:
        print(json.dumps(content))
    else:
        _print_tables(rows, notes, [folder / RESULTS_FILE, folder / TABLE_FILE, *figures])


def _details(config: FashionConfig, comparison: OneTrajectory | None, *, quick: bool) -> list[str]:
    first, second = config.channels
    details = [
        f"{config.rows} rows, {config.sites} sites, CNN with {first} and {second} channels.",
        f"eta_theta = {config.learning_rate:g}, eta_mu = eta_lambda = {config.adversary_rate:g}.",
        f"FedAvg: local epochs E = {config.epochs}, batch {config.batch_size}.",
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
