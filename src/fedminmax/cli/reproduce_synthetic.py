"""`fedminmax reproduce synthetic`: the paper's Table 1, run by run, resumable at any moment."""

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console, JustifyMethod
from rich.table import Table

from fedminmax import __version__
from fedminmax.cli.progress import Display, display
from fedminmax.cli.run_folder import claim_folder, claim_run
from fedminmax.cli.synthetic_runs import (
    RunPlan,
    SyntheticConfig,
    check_runs,
    plan_runs,
    read_result,
    run_to_end,
)
from fedminmax.report.files import write_json, write_text
from fedminmax.report.synthetic_results import PAPER_TABLE_1, RunResult, TableRow, summarise
from fedminmax.report.synthetic_table import (
    HEADERS,
    markdown_table,
    rows_as_json,
    table_cells,
    table_notes,
)


@dataclass(frozen=True)
class Selection:
    """Which of the experiment's runs this call is about."""

    settings: list[str]
    methods: list[str]
    folds: list[int]


def reproduce_synthetic(
    config: SyntheticConfig, selection: Selection, folder: Path, *, as_json: bool
) -> None:
    """Finish the selected runs and print the table of all finished runs in the folder."""
    plans = plan_runs(config, selection.settings, selection.methods, selection.folds)
    check_runs(config, plans)
    claim_folder(folder, {"version": __version__} | asdict(config))
    _finish_runs(config, plans, folder)
    missing = sum(read_result(run_folder(folder, plan)) is None for plan in plans)
    rows = summarise(read_results(folder))
    notes = table_notes(rows, config.folds_by, missing=missing)
    content = {"config": asdict(config), "rows": rows_as_json(rows), "notes": notes}
    write_json(folder / "results.json", content)
    write_text(folder / "table.md", markdown_table(rows) + "\n" + "\n\n".join(notes) + "\n")
    if as_json:
        print(json.dumps(content))
    else:
        _print_table(rows, notes, folder)


def read_results(folder: Path) -> list[RunResult]:
    """Read all finished runs in the folder, also those of earlier and narrower calls."""
    found = [read_result(path.parent) for path in (folder / "runs").glob("*/result.json")]
    order = list(PAPER_TABLE_1)
    return sorted(
        (result for result in found if result is not None),
        key=lambda result: (order.index((result.setting, result.method)), result.fold),
    )


def run_folder(folder: Path, plan: RunPlan) -> Path:
    """Where a run keeps its files."""
    return folder / "runs" / plan.key


def _finish_runs(config: SyntheticConfig, plans: list[RunPlan], folder: Path) -> None:
    costs = [plan.cost(config) for plan in plans]
    with display("reproduce synthetic", sum(costs)) as bars:
        for number, plan in enumerate(plans):
            before = sum(costs[:number])
            with claim_run(run_folder(folder, plan)) as ours:
                if ours and read_result(run_folder(folder, plan)) is None:
                    _finish_run(config, plan, folder, bars, before)
            bars.show_work(before + costs[number])


def _finish_run(
    config: SyntheticConfig, plan: RunPlan, folder: Path, bars: Display, before: int
) -> None:
    rounds = plan.rounds(config)
    bars.start_run(f"{plan.setting} {plan.method.name}, fold {plan.fold}", rounds)
    for tick in run_to_end(config, plan, run_folder(folder, plan)):
        if tick.complaint:
            print(f"fedminmax: warning: {tick.complaint}", file=sys.stderr)
        bars.show_round(tick.round)
        bars.show_work(before + plan.cost(config) * tick.round / rounds)


def _print_table(rows: list[TableRow], notes: list[str], folder: Path) -> None:
    console = Console(soft_wrap=True)
    table = Table(title="Papadaki et al. 2021, Table 1, next to ours", box=SIMPLE_HEAD, padding=0)
    for header in HEADERS:
        justify: JustifyMethod = "left" if header in HEADERS[:2] else "right"
        table.add_column(header, justify=justify, no_wrap=True)
    previous = ""
    for cells in table_cells(rows):
        if previous and cells[0] != previous:
            table.add_section()
        previous = cells[0]
        table.add_row(*cells)
    console.print(table)
    for note in notes:
        console.print(note, highlight=False)
    console.print(f"Results: {folder / 'results.json'}, {folder / 'table.md'}", highlight=False)
