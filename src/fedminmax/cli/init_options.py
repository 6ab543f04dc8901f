"""The words of `fedminmax init`."""

import argparse
from pathlib import Path
from typing import Any

from fedminmax.cli.format_options import add_format_options, format_changes
from fedminmax.cli.option_types import positive_int
from fedminmax.cli.output_files import FORCE

DEFAULT_OUT = Path("fedminmax.toml")


def add_to(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add `init` to the command line."""
    parser = commands.add_parser(
        "init",
        help="look at your files and write a commented fedminmax.toml",
        description="Look at the holders' files (CSV or Parquet) and write a commented "
        "configuration: target, classes, features with their kinds and categories, protected "
        "columns, holders, model, method.",
        epilog="example: fedminmax init north.csv south.csv --target income --groups sex,race",
    )
    add = parser.add_argument
    add("files", nargs="+", type=Path, metavar="FILE", help="one per holder, or one with --holder")
    add("--target", required=True, metavar="COLUMN", help="the column to predict")
    add(
        "--groups",
        required=True,
        type=column_list,
        metavar="COLUMN[,COLUMN]",
        help="protected columns; several are crossed",
    )
    add("--holder", metavar="COLUMN", help="of one file: the column that names the holder")
    add(
        "--minimum-category",
        type=positive_int,
        default=10,
        metavar="N",
        help="skip categories and group values with fewer rows over all files (10)",
    )
    add(
        "--merge-spellings",
        action="store_true",
        help="read labels, groups and categories that differ in letter case or spaces as one",
    )
    add("--ranges", action="store_true", help="write the ranges of numeric columns as comments")
    add("--out", type=Path, default=DEFAULT_OUT, metavar="FILE", help=f"({DEFAULT_OUT})")
    add("--force", action="store_true", help=FORCE)
    add_format_options(parser, "as it is found in the files")
    parser.set_defaults(run=_run)


def column_list(words: str) -> list[str]:
    """Split a comma-separated list of column names."""
    names = [word.strip() for word in words.split(",")]
    if not all(names):
        raise argparse.ArgumentTypeError(f"'{words}' has an empty name; give column names")
    return names


def _run(options: argparse.Namespace) -> None:
    from fedminmax.cli.init_config import init_config
    from fedminmax.data.tables.propose import InitChoices

    choices = InitChoices(
        minimum_category=options.minimum_category,
        ranges=options.ranges,
        merge_spellings=options.merge_spellings,
        format=format_changes(options),
    )
    init_config(
        options.files,
        options.target,
        options.groups,
        options.holder,
        options.out,
        choices,
        force=options.force,
    )
