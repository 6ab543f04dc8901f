"""`fedminmax demo`: two runs on data that come with the package, and their reports.

In the first the default helps the worst-off group much, at a small price. In the second, on census
data, it does not, and the certificate says that no model of this kind would.
"""

import argparse
import math
import webbrowser
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedminmax.cli.options import Commands, add_command

if TYPE_CHECKING:
    from rich.console import Console

FOLDER = Path("runs", "demo")
ABOUT = {
    "hospitals": "1. Three hospitals that cannot pool their records want to predict heart attacks "
    "(the column infarction). The patients are simulated: nausea is a sign of an infarction in "
    "women but hardly in men, and 6% of the patients are women. The model does not see the sex.",
    "adult": "2. Incomes in the 1994 US census, spread over 40 sites, with ten groups by sex and "
    "race. Here protecting the worst-off group changes little, and the certificate at the end says "
    "why: a model of this kind can hardly serve that group better. More rounds, other group "
    "weights or another method would not help; other columns or more records might.",
}


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "demo",
        demo,
        short="see a run that helps and one that does not, with their reports",
        text="Train on tables that come with the package: three simulated hospitals, where the "
        "default helps the worst-off group, and census data, where it does not. Nothing is "
        "downloaded.",
        example="demo --open",
    )
    add = parser.add_argument
    add("--out", type=Path, default=FOLDER, metavar="FOLDER", help=f"(default: {FOLDER})")
    add("--open", action="store_true", help="open both reports in the browser")


def demo(options: argparse.Namespace) -> None:
    """Write the tables, train on them, and print what came out and where the reports are."""
    from fedminmax.cli.terminal import wide_console
    from fedminmax.data.adult import adult_table, hospital_tables

    console = wide_console()
    reports = [
        _chapter(console, options.out / "hospitals", hospital_tables(), "infarction", ["sex"]),
        _chapter(
            console, options.out / "adult", {"adult": adult_table()}, "income", ["sex", "race"]
        ),
    ]
    console.print("Your own tables: fedminmax init --help. The reports of these two runs:")
    for report in reports:
        console.print(f"  {report}", soft_wrap=True)
        if options.open:
            webbrowser.open(report.absolute().as_uri())


def _chapter(
    console: "Console", folder: Path, tables: Mapping[str, str], target: str, groups: Sequence[str]
) -> Path:
    """Do what `init`, `train` and `report` do, and return the report."""
    from fedminmax import __version__
    from fedminmax.cli.train import finish_training
    from fedminmax.cli.trained import print_outcome
    from fedminmax.config.read import read_config
    from fedminmax.core.files import write_text
    from fedminmax.data.tables.config_text import config_text
    from fedminmax.data.tables.propose import InitChoices, propose
    from fedminmax.report.page import build_report, render_report
    from fedminmax.report.read_run import read_runs

    console.print(f"{ABOUT[folder.name]}\n")
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{name}.csv" for name in tables]
    for file, text in zip(files, tables.values(), strict=True):
        write_text(file, text)
    site = "site" if len(files) == 1 else None
    config, run, report = folder / "fedminmax.toml", folder / "run", folder / "run" / "report.html"
    named = " ".join(file.name for file in files) + (f" --site-column {site}" if site else "")
    for line in (
        f"cd {folder}",
        f"fedminmax init {named} --target {target} --groups {','.join(groups)}",
        f"fedminmax train {config.name} --out {run.name}",
        f"fedminmax report {run.name}",
    ):
        console.print(f"$ {line}", soft_wrap=True)
    proposal = propose(files, target, groups, site_column=site, choices=InitChoices())
    write_text(config, config_text(proposal, config))
    training = finish_training(read_config(config), run, "cpu", math.inf, quietly=True)
    write_text(report, render_report(build_report(read_runs([run])), __version__))
    console.print()
    print_outcome(console, training.results)
    console.print()
    return report
