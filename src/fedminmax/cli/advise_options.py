"""The words of `fedminmax advise`."""

import argparse
from pathlib import Path
from typing import Any

from fedminmax.cli.output_files import FORCE


def add_to(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add `advise` to the command line."""
    parser = commands.add_parser(
        "advise",
        help="say before training what the numbers of rows tell",
        description="Say before any training what the numbers of rows by holder and group tell: "
        "whether looking after the worst holder looks after the worst group, which groups are too "
        "small, what a holder shows to the server, how many rounds and bytes a run takes, and what "
        "would help. Nothing is trained.",
        epilog="example: fedminmax advise fedminmax.toml --out advice.html",
    )
    add = parser.add_argument
    add(
        "config",
        type=Path,
        metavar="CONFIG",
        help="a fedminmax.toml, or a run folder's census.json",
    )
    add("--json", action="store_true", help="print machine-readable advice alone on stdout")
    add(
        "--out",
        type=Path,
        metavar="FILE",
        help="write a page (.html) or the picture alone (.svg, .png) too",
    )
    add("--force", action="store_true", help=FORCE)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> None:
    from fedminmax.cli.advise import give_advice

    give_advice(options.config, options.out, as_json=options.json, force=options.force)
