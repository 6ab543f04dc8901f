"""`fedminmax frontier`: the models between the plain and the minimax one, in a table and a picture.

`--choose N` makes a run folder of one of them. Given the folder of a finished frontier instead of a
configuration, it shows that one: also one that sites found together.
"""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from fedminmax.cli.options import Commands, add_command, add_options, positive_int
from fedminmax.core.errors import InputError

if TYPE_CHECKING:
    from fedminmax.findings.frontier import FrontierFile


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "frontier",
        show_frontier,
        short="find models between the standard and the minimax one",
        text="Find about ten models between the plain model, which has the lowest mean risk, and "
        "the minimax model, which has the lowest risk for its worst-off group, in up to 15 rounds "
        "more. Each is certified: no model of this kind is better for both. Between sites, write "
        "frontier = true in [method], and give this command the run folder.",
        example="frontier fedminmax.toml --out runs/frontier --choose 4",
    )
    add = parser.add_argument
    add(
        "config",
        type=Path,
        metavar="CONFIG",
        help="a fedminmax.toml, or the run folder of a finished frontier",
    )
    add("--out", type=Path, metavar="RUN", help="the run folder (runs/NAME-frontier)")
    add(
        "--choose",
        type=positive_int,
        metavar="N",
        help="make a run folder of model N, in RUN/point-N: for 'predict', 'report', ...",
    )
    add_options(parser, "--set", "--rounds", "--device", "--json")


def show_frontier(options: argparse.Namespace) -> None:
    """Find the frontier, or read it, print it, and make a run folder of the chosen model."""
    from fedminmax.findings.records import record_as_json
    from fedminmax.runs.frontier import choose_point, read_frontier

    folder = options.config
    if not folder.is_dir():
        folder = options.out or Path("runs", f"{options.config.stem}-frontier")
        _find(options, folder)
    elif options.out is not None:
        raise InputError(f"{folder} is a finished frontier: drop --out, or give a configuration")
    found = read_frontier(folder)
    chosen = None if options.choose is None else choose_point(folder, options.choose)
    if options.json:
        content = {"run": str(folder), "chosen": None if chosen is None else str(chosen)}
        print(json.dumps(content | {"frontier": record_as_json(found)}))
        return
    print_frontier(found, folder, chosen)


def _find(options: argparse.Namespace, folder: Path) -> None:
    import math
    from dataclasses import replace

    from fedminmax.cli.options import overrides_of
    from fedminmax.cli.train import finish_training
    from fedminmax.config.read import read_config
    from fedminmax.methods.catalogue import CARDS
    from fedminmax.methods.shared.frontier_server import models_of
    from fedminmax.runs.frontier import check_choice

    overrides = replace(overrides_of(options), frontier=True)
    config = overrides.apply(read_config(options.config, options.settings))
    if options.choose is not None:
        method = CARDS[config.method.name].build({}, config.method.options)
        check_choice(folder, options.choose, models_of(method))
    finish_training(config, folder, options.device, math.inf)


def print_frontier(found: "FrontierFile", folder: Path, chosen: Path | None = None) -> None:
    """Print the models, write their picture, and say where the files are."""
    from fedminmax.cli.terminal import print_table, wide_console
    from fedminmax.findings.frontier import frontier_sentences, frontier_table
    from fedminmax.report.frontier import write_picture
    from fedminmax.runs.frontier import FRONTIER_FILE

    console = wide_console()
    table = frontier_table(found)
    print_table(console, table.caption, table.headers, table.lines)
    for sentence in frontier_sentences(found):
        console.print(sentence)
    console.print(f"Frontier: {folder / FRONTIER_FILE}", soft_wrap=True)
    console.print(f"Picture: {write_picture(found, folder)}", soft_wrap=True)
    if chosen is not None:
        console.print(f"Chosen: {chosen}", soft_wrap=True)
    console.print(f"Next: fedminmax report {chosen or folder}", soft_wrap=True)
