"""`fedminmax reproduce synthetic`: the paper's Table 1, run by run, resumable at any moment."""

import json
from dataclasses import asdict
from pathlib import Path

from fedminmax.cli.run_study import Call, finish_with_bars, open_study, print_status
from fedminmax.cli.tables import print_table, wide_console
from fedminmax.core.files import write_json, write_text
from fedminmax.report.markdown import markdown_table
from fedminmax.report.run_result import read_results
from fedminmax.report.synthetic_results import TableRow, summarise
from fedminmax.report.synthetic_table import (
    HEADERS,
    rows_as_json,
    table_cells,
    table_notes,
)
from fedminmax.studies.study import Selection
from fedminmax.studies.synthetic import SyntheticConfig, SyntheticStudy, plans_of

QUICK = (
    "Quick: a linear model of the side of 0 that x is on, which can express every optimum, in "
    "place of the network; local methods take full-batch steps."
)


def reproduce_synthetic(
    config: SyntheticConfig, selection: Selection, call: Call, *, quick: bool
) -> None:
    """Finish the selected runs and print the table of all finished runs in the folder."""
    plans = plans_of(config, selection)
    if call.status_only:
        print_status(plans, asdict(config), call)
        return
    study = SyntheticStudy(config)
    open_study(study, plans, asdict(config), call)
    missing = finish_with_bars("reproduce synthetic", study, plans, call)
    folder = call.folder
    rows = summarise(read_results(folder))
    settings = (
        f"{config.rows} rows, {config.holders} holders, eta_theta = {config.learning_rate:g}, "
        f"eta_mu = eta_lambda = {config.adversary_rate:g}; FedAvg and q-FedAvg: local epochs "
        f"E = {config.epochs}, batch {config.batch_size}."
    )
    notes = [*table_notes(rows, config.folds_by, missing=missing), settings]
    if quick and not config.network:
        notes.append(QUICK)
    content = {"config": asdict(config), "rows": rows_as_json(rows), "notes": notes}
    write_json(folder / "results.json", content)
    table = markdown_table(HEADERS, table_cells(rows))
    write_text(folder / "table.md", "\n\n".join([table, *notes]) + "\n")
    if call.as_json:
        print(json.dumps(content))
    else:
        _print_table(rows, notes, folder)


def _print_table(rows: list[TableRow], notes: list[str], folder: Path) -> None:
    console = wide_console()
    title = "Papadaki et al. 2021, Table 1, next to ours"
    print_table(console, title, HEADERS, table_cells(rows), names=2, sections=True)
    for note in notes:
        console.print(note, highlight=False)
    console.print(f"Results: {folder / 'results.json'}, {folder / 'table.md'}", highlight=False)
