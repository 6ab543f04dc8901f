"""What a finished training prints: how it went, where files are, mistakes by group, the verdict."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from fedminmax.cli.terminal import print_table, wide_console
from fedminmax.core.files import write_json, write_text
from fedminmax.core.text import markdown_table, markdown_text
from fedminmax.findings.findings import findings
from fedminmax.findings.records import Results
from fedminmax.findings.seed_spread import SeedSpread, spread_notes
from fedminmax.findings.tables import Table, mistakes_tables, personal_table
from fedminmax.findings.training import own_risks_text

SPREAD_FILE, TABLE_FILE = "seeds.json", "seeds.md"


def print_trained(folder: Path, results: Sequence[Results]) -> None:
    """Print what a finished run found, against its baseline, and what to do next."""
    console = wide_console()
    model = results[0]
    if model.personal is not None and model.personal.rows:
        _print(console, personal_table(model, model.personal))
    print_outcome(console, results)
    # A path is copied: it stays in one piece, however narrow the terminal.
    for line in (
        f"Results, card and model are in {folder}. Next:",
        f"  fedminmax report {folder}      a page to share",
        f"  fedminmax evaluate {folder}    every measure by group",
    ):
        console.print(line, soft_wrap=True)


def print_outcome(console: Console, results: Sequence[Results]) -> None:
    """Print how training went, who gained and who lost, the verdict, and what is certified."""
    model, baseline = results[0], results[1] if len(results) > 1 else None
    found = findings(model, baseline)
    for text in (*found.in_short, *found.privacy):
        console.print(text)
    if model.test.rows:
        _print(console, mistakes_tables(model)[0])
    if found.verdict is not None:
        console.print(Text.assemble((found.headline, "bold"), f" {found.verdict.reason}"))
    for text in (found.small_groups, found.certified, own_risks_text(model)):
        if text:
            console.print(text)


def _print(console: Console, table: Table) -> None:
    print_table(console, table.caption, table.headers, table.lines)


def write_spread(
    folder: Path, spread: SeedSpread, table: Table, content: dict[str, object]
) -> None:
    """Write the spread over seeds as JSON and as a table."""
    write_json(folder / SPREAD_FILE, content)
    shown = markdown_table(table.headers, table.lines)
    parts = [table.caption, shown, *map(markdown_text, spread_notes(spread))]
    write_text(folder / TABLE_FILE, "\n\n".join(parts) + "\n")


def print_spread(folder: Path, spread: SeedSpread, table: Table, first: str) -> None:
    """Print how far the results spread over the seeds, and where the files are."""
    console = wide_console()
    _print(console, table)
    for line in spread_notes(spread):
        console.print(line)
    for line in (
        f"Spread: {folder / SPREAD_FILE}, {folder / TABLE_FILE}",
        f"Next: fedminmax evaluate {first}",
    ):
        console.print(line, soft_wrap=True)
