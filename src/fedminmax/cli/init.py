"""`fedminmax init`: from files to a configuration that the user can read and correct."""

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedminmax.cli.options import (
    Commands,
    add_command,
    add_format_options,
    add_options,
    check_new_file,
    init_choices,
    name_list,
    positive_int,
)
from fedminmax.core.errors import InputError
from fedminmax.core.text import counted

if TYPE_CHECKING:
    from fedminmax.config.file_format import FileFormat
    from fedminmax.data.tables.propose import InitChoices, Proposal

CONFIG_FILE = Path("fedminmax.toml")
MANY_COLUMNS = 5_000
# On a computer of 2026; a column is read twice, as a proposal and as training will.
COLUMNS_PER_MINUTE = 20_000


def add_to(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "init",
        init,
        short="read your files and write a commented fedminmax.toml",
        text="Look at the sites' files (CSV or Parquet) and write a commented configuration: "
        "target, classes, features with their kinds and categories, sensitive attributes, sites, "
        "model, method.",
        example="init north.csv south.csv --target income --groups sex,race",
    )
    add = parser.add_argument
    files_help = "one per site, or one with --site-column"
    add("files", nargs="+", type=Path, metavar="FILE", help=files_help)
    add_options(parser, "--target", "--groups", "--site-column", "--task", "--positive")
    add(
        "--person-column",
        metavar="COLUMN",
        help="the column that identifies persons: rows of one person are held out together",
    )
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
    for option, field, what in (
        ("--category", "categories", "columns whose numbers are codes: each number is a category"),
        ("--number", "numbers", "columns of quantities, also if they look like codes"),
        ("--drop", "dropped", "columns to leave out"),
    ):
        add(
            option,
            type=name_list,
            default=(),
            dest=field,
            metavar="COLUMN[,COLUMN]",
            help=what,
        )
    add(
        "--weight",
        metavar="COLUMN",
        help="the survey weight: no feature, and not used; training counts every row once",
    )
    add(
        "--list-categories",
        action="store_true",
        dest="lists",
        help="list more than 30 categories, too, instead of leaving them to the sites",
    )
    add("--ranges", action="store_true", help="write the ranges of numeric columns as comments")
    add("--out", type=Path, default=CONFIG_FILE, metavar="FILE", help=f"({CONFIG_FILE})")
    add_options(parser, "--force")
    add_format_options(parser, "as found in the files")


def init(options: argparse.Namespace) -> None:
    """Write the configuration that the options ask for; print what was found and skipped."""
    from fedminmax.cli.main import say
    from fedminmax.core.files import write_text
    from fedminmax.data.tables.config_text import config_text, rare_note
    from fedminmax.data.tables.propose import propose
    from fedminmax.data.tables.read_file import check_path

    files, out, choices = options.files, options.out, init_choices(options)
    for file in files:
        check_path(file)
    check_new_file(out, "--out", force=options.force)
    _say_if_wide(files)
    proposal = propose(
        files, options.target, options.groups, site_column=options.site_column, choices=choices
    )
    write_text(out, config_text(proposal, out))
    print(f"{out}: {_summary(proposal)}")
    for line in (*_positive(proposal), *proposal.remarks):
        print(line)
    for name, detected in proposal.formats.items():
        settings = _detected_settings(detected, choices)
        if settings:
            print(
                f"{proposal.files[name]} is read with {settings}; if that is wrong, correct {out}"
            )
    minimum = choices.minimum_category
    for column, rare in proposal.rare_groups.items():
        skipped = rare_note(rare, minimum, "value")
        print(f"group column '{column}': {skipped}, and counts as '{column} other'")
    for column, guess in proposal.features.items():
        if guess.feature is None:
            print(f"column '{column}' is skipped: it {guess.remark}")
            continue
        if guess.rare.values:
            print(f"column '{column}': {rare_note(guess.rare, minimum, 'category')}")
        if guess.remark:
            print(f"column '{column}': {guess.remark}")
        if guess.feature.is_open and not guess.is_code:
            print(f"column '{column}': no list of categories; the sites agree on them")
    for warning in _warnings(out):
        say(f"warning: {warning}")
    print(f"Review {out}. Next:")
    print(f"  fedminmax advise {out}    what to expect")
    print(f"  fedminmax train {out}")


def _say_if_wide(files: Sequence[Path]) -> None:
    """Say beforehand that many columns take a while."""
    from fedminmax.cli.main import say
    from fedminmax.data.tables.read_file import count_columns

    columns = sum(count_columns(file) for file in files)
    if columns > MANY_COLUMNS:
        minutes = max(1, round(columns / COLUMNS_PER_MINUTE))
        say(f"note: {columns:,} columns are read, which takes about {minutes} min")


def _warnings(config: Path) -> tuple[str, ...]:
    """Read the files as training will, to show its warnings and errors now."""
    from fedminmax.config.read import read_config
    from fedminmax.data.tables.codes import DifferentCodesError
    from fedminmax.data.tables.load import load_federated_tables

    try:
        return load_federated_tables(read_config(config)).warnings
    except DifferentCodesError as error:
        raise InputError(f"{config} is written, but training will refuse it: {error}") from error
    except InputError as error:
        return (f"training will refuse this: {error}",)


def _positive(proposal: "Proposal") -> list[str]:
    """Say which of two classes rates are about, and how to change that."""
    if len(proposal.target.classes) != 2:
        return []
    other, positive = proposal.target.classes
    line = (
        f"'{positive}' is the positive class, which rates are about; for the other one give "
        f"--positive {shlex.quote(other)}, or write it as positive in [data]"
    )
    return [line]


def _detected_settings(detected: "FileFormat", choices: "InitChoices") -> str:
    """Describe the format settings that were detected rather than given."""
    from fedminmax.config.file_format import PLAIN, changes_between

    changes = changes_between(choices.format.apply(PLAIN), detected)
    return ", ".join(f'{key} = "{value}"' for key, value in changes.settings.items())


def _summary(proposal: "Proposal") -> str:
    classes = len(proposal.target.classes)
    protected = [entry.column for entry in proposal.protected]
    features = [
        column
        for column, guess in proposal.features.items()
        if guess.feature and column not in protected
    ]
    task = f"{classes} classes" if classes else "regression"
    return (
        f"{counted(proposal.sites, 'site')}, {counted(proposal.rows, 'row')}, target "
        f"'{proposal.target.column}' ({task}), {counted(len(features), 'feature')}, groups by "
        f"{' x '.join(protected)}"
    )
