"""What a finished training prints: how it went, where files are, mistakes by group, the verdict."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from fedminmax.cli.terminal import print_table, wide_console
from fedminmax.core.files import write_json, write_text
from fedminmax.core.text import markdown_table, markdown_text
from fedminmax.exports.saved_model import MODEL_FILE
from fedminmax.findings.findings import findings
from fedminmax.findings.records import RISK, Results
from fedminmax.findings.seed_spread import SeedSpread, spread_notes
from fedminmax.findings.tables import Table, metrics_table, mistakes_tables
from fedminmax.runs.folder import CARD_FILE, RESULTS_FILE

SPREAD_FILE, TABLE_FILE = "seeds.json", "seeds.md"


def print_trained(folder: Path, results: Sequence[Results]) -> None:
    """Print what a finished run found, against its baseline, and where the files are."""
    console = wide_console()
    model, baseline = results[0], results[1] if len(results) > 1 else None
    found = findings(model, baseline)
    if model.personal is not None and model.personal.rows:
        title = "Personal models, each on the test records of its site"
        _print(console, metrics_table(model, model.personal, title, [RISK]))
    for text in (
        *(text for one in found.models for text in one.sentences),
        *found.after_training,
        *found.privacy,
    ):
        console.print(text)
    for what, name in (("Results", RESULTS_FILE), ("Card", CARD_FILE), ("Model", MODEL_FILE)):
        console.print(f"{what}: {folder / name}")
    if model.test.rows:
        _print(console, mistakes_tables(model)[0])
    if found.small_groups:
        console.print(found.small_groups, soft_wrap=False)
    if found.verdict is not None:
        console.print(f"{found.headline} {found.verdict.reason}", soft_wrap=False)
    console.print(f"Next: fedminmax report {folder}")


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
    for line in (
        *spread_notes(spread),
        f"Spread: {folder / SPREAD_FILE}, {folder / TABLE_FILE}",
        f"Next: fedminmax evaluate {first}",
    ):
        console.print(line)
