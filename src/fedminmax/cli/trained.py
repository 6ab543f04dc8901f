"""What a finished training prints: risks by group with intervals, verdicts, and where files are."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from fedminmax.cli.terminal import print_table, wide_console
from fedminmax.core.files import write_json, write_text
from fedminmax.core.text import counted, markdown_table, markdown_text
from fedminmax.exports.saved_model import MODEL_FILE
from fedminmax.findings.records import RISK, Results
from fedminmax.runs.advice_text import after_training
from fedminmax.runs.convergence import no_gain_yet
from fedminmax.runs.layout import CARD_FILE, RESULTS_FILE
from fedminmax.runs.measure import (
    change_from,
    interval_text,
    merged_groups_text,
    metric_cells,
    small_groups_text,
)
from fedminmax.runs.privacy import privacy_lines
from fedminmax.runs.remarks import certificate_text, validation_text, verdict_of
from fedminmax.runs.seed_spread import (
    SeedSpread,
    spread_cells,
    spread_notes,
)

TOO_FEW = "too few rows to say"
SPREAD_FILE, TABLE_FILE = "seeds.json", "seeds.md"


def print_trained(folder: Path, results: Sequence[Results]) -> None:
    """Print the table of a finished run and its baseline, and where the files are."""
    console = wide_console()
    if results[0].test.rows:
        _print_risks(console, results)
        _print_personal(console, results[0])
    for own in results:
        console.print(verdict_of(own))
        proved = certificate_text(own)
        if proved:
            console.print(proved)
        if own.validation is not None:
            console.print(f"{own.method.name}: {validation_text(own)}")
    for paragraph in (*after_training(results[0]), *privacy_lines(results[0])):
        console.print(paragraph)
    for what, name in (
        ("Results", RESULTS_FILE),
        ("Card", CARD_FILE),
        ("Model", MODEL_FILE),
    ):
        console.print(f"{what}: {folder / name}")
    console.print(f"Next: fedminmax evaluate {folder}")


def _print_risks(console: Console, results: Sequence[Results]) -> None:
    tests = [result.test for result in results]
    metrics = [result.risk for result in results]
    names = [result.method.name for result in results]
    counts = [f"{own.rows:,}" for own in metrics[0].by_group]
    columns = {
        "group": [*results[0].groups, "all"],
        "rows": [*counts, f"{tests[0].rows:,}"],
    }
    for name, metric in zip(names, metrics, strict=True):
        columns[name] = [interval_text(own) for own in (*metric.by_group, metric.overall)]
    change = change_from(*results) if len(results) == 2 else None
    if change is not None:
        columns["change"] = [
            *(
                interval_text(own, like=metrics[0].overall) if own.has_enough_rows else TOO_FEW
                for own in change.by_group
            ),
            interval_text(change.overall, like=metrics[0].overall),
        ]
    title = f"Test risk by group ({100 * tests[0].confidence:g} % intervals)"
    lines = list(zip(*columns.values(), strict=True))
    print_table(console, title, list(columns), lines)
    if change is not None:
        doubt = no_gain_yet(*((own.method.name, own.converged) for own in results))
        console.print(
            f"Change: {names[0]} minus {names[1]} on the same rows; "
            f"{doubt or 'below 0 is a gain'}.",
        )
    for name, metric in zip(names, metrics, strict=True):
        if metric.worst_group is not None:
            console.print(f"Worst off with {name}: {metric.worst_group}")
    small = small_groups_text(results[0].groups, tests[0])
    for note in (small, merged_groups_text(results[0])):
        if note:
            console.print(note)


def _print_personal(console: Console, results: Results) -> None:
    """Print the scores of sites' own models, if the method has them and they have test rows."""
    own = results.personal
    if own is None or not own.rows:
        return
    title = "Personal models, each on its own site's test rows"
    print_table(console, title, *metric_cells(results, own, [RISK]))


def write_spread(folder: Path, spread: SeedSpread, content: dict[str, object]) -> None:
    """Write the spread over seeds as JSON and as a table."""
    write_json(folder / SPREAD_FILE, content)
    table = markdown_table(*spread_cells(spread))
    parts = [_title(spread), table, *map(markdown_text, spread_notes(spread))]
    write_text(folder / TABLE_FILE, "\n\n".join(parts) + "\n")


def print_spread(folder: Path, spread: SeedSpread, folders: Sequence[str]) -> None:
    """Print how far the results spread over the seeds, and where the files are."""
    console = wide_console()
    print_table(console, _title(spread), *spread_cells(spread))
    for line in (
        *spread_notes(spread),
        f"Spread: {folder / SPREAD_FILE}, {folder / TABLE_FILE}",
        f"Next: fedminmax evaluate {folders[0]}",
    ):
        console.print(line)


def _title(spread: SeedSpread) -> str:
    first, *_, last = (*spread.seeds, spread.seeds[-1])
    return f"Test risk by group over {counted(len(spread.seeds), 'seed')} ({first} to {last})"
