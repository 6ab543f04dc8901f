"""Types of options, checks of output paths, and options that several commands share.

A wrong value is refused with one line that says what was given and what was expected. A command
never overwrites a user's file unless told to, and never mistakes a file for a folder. An option of
several commands is described here, once.
"""

import argparse
import re
import sys
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from fedminmax.core.errors import InputError

if TYPE_CHECKING:
    from fedminmax.config.file_format import FormatChanges
    from fedminmax.config.read import Overrides
    from fedminmax.data.tables.propose import InitChoices

Commands: TypeAlias = "argparse._SubParsersAction[Any]"
NumberT = TypeVar("NumberT", int, float)
SECONDS_IN = {"s": 1.0, "m": 60.0, "h": 3600.0}


def names_of(known: tuple[str, ...]) -> Callable[[str], list[str]]:
    """Return a parser of a comma-separated list of known names: in their order, each once."""

    def parse(text: str) -> list[str]:
        names = [name.strip() for name in text.split(",")]
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(
                    f"'{name}' is unknown; choose from {', '.join(known)}"
                )
        return [name for name in known if name in names]

    return parse


def duration(text: str) -> float:
    """Parse a time such as 90s, 30m, 2h or 1h30m into seconds."""
    parts = re.findall(r"([0-9.]+)([smh])", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise argparse.ArgumentTypeError(f"'{text}' is not a time such as 90s, 30m, 2h or 1h30m")
    return sum(positive(number) * SECONDS_IN[unit] for number, unit in parts)


def name_list(text: str) -> tuple[str, ...]:
    """Split a comma-separated list of names."""
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise argparse.ArgumentTypeError(f"'{text}' has an empty name; remove the comma")
    return names


def _number(
    text: str, *, kind: type[NumberT], least: float, most: float = sys.float_info.max, expected: str
) -> NumberT:
    try:
        value = kind(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not {expected}") from None
    if not least <= value <= most:
        raise argparse.ArgumentTypeError(f"'{text}' is not {expected}")
    return value


positive_int = partial(_number, kind=int, least=1, expected="a whole number of at least 1")
whole_number = partial(_number, kind=int, least=0, expected="zero or a positive whole number")
positive = partial(_number, kind=float, least=1e-300, expected="a positive number")
not_negative = partial(_number, kind=float, least=0.0, expected="zero or a positive number")
# 0 is any port that is free.
port_number = partial(_number, kind=int, least=0, most=65535, expected="a port from 0 to 65535")


def check_new_file(path: Path, option: str, *, force: bool) -> None:
    """Refuse a path that cannot be written, or an existing file unless it may be replaced."""
    if path.is_dir():
        raise InputError(f"{path} is a folder; give a file with {option}")
    if path.exists() and not force:
        raise InputError(f"{path} already exists; give another {option}, or --force to replace it")
    check_parents(path, option)


def check_parents(path: Path, option: str) -> None:
    """Refuse a path that leads through a file."""
    for parent in path.parents:
        if parent.exists() and not parent.is_dir():
            raise InputError(
                f"{parent} is a file, not a folder for {path.name}; give another {option}"
            )


def add_format_options(parser: argparse.ArgumentParser, default: str) -> None:
    """Add the options of the file format; ``default`` describes the default."""
    group = parser.add_argument_group("file format", f"default: {default}")
    add = group.add_argument
    add("--delimiter", metavar="CHARACTER", help="field separator of CSV files")
    add("--encoding", metavar="NAME", help="of CSV files: utf-8, cp1252, latin-1, utf-16, ...")
    add("--decimal", metavar="MARK", help="the decimal mark: a dot or a comma")
    add("--thousands", metavar="MARK", help="the thousands separator: , . ' or a space")
    add("--date-format", metavar="FORMAT", help="of dates, such as %%d.%%m.%%Y")


def given(options: argparse.Namespace, record: type) -> dict[str, Any]:
    """Return the options that are fields of a record, by their names."""
    names = {field.name for field in fields(record)}
    return {name: value for name, value in vars(options).items() if name in names}


def format_changes(options: argparse.Namespace) -> "FormatChanges":
    """Return the format that the options set."""
    from fedminmax.config.file_format import FormatChanges

    return FormatChanges(**given(options, FormatChanges))


def overrides_of(options: argparse.Namespace) -> "Overrides":
    """Return what the options set instead of the configuration."""
    from fedminmax.config.read import Overrides

    return Overrides(**given(options, Overrides))


def init_choices(options: argparse.Namespace) -> "InitChoices":
    """Return the choices for a proposal that the options make."""
    from fedminmax.data.tables.propose import InitChoices

    return InitChoices(**given(options, InitChoices), format=format_changes(options))


def add_command(
    commands: Commands,
    name: str,
    run: Callable[[argparse.Namespace], None] | None = None,
    *,
    short: str,
    text: str,
    example: str,
) -> argparse.ArgumentParser:
    """Add a command, or an action of one: its line in the list, its description, an example."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=short, description=text, epilog=f"example: fedminmax {example}"
    )
    parser.set_defaults(run=run or (lambda _: parser.print_help()))
    return parser


def deferred(module: str, function: str) -> Callable[[argparse.Namespace], None]:
    """Return a command whose module in this room is imported when it runs: help is instant."""

    def run(options: argparse.Namespace) -> None:
        command = getattr(import_module(f"fedminmax.cli.{module}"), function)
        command(options)

    return run


def add_options(parser: argparse.ArgumentParser, *names: str) -> None:
    """Add options of several commands."""
    for name in names:
        parser.add_argument(name, **SHARED[name])


SHARED: dict[str, dict[str, Any]] = {
    "folder": {"type": Path, "metavar": "RUN", "help": "a run folder of 'fedminmax train'"},
    "--json": {"action": "store_true", "help": "print only machine-readable results on stdout"},
    "--force": {"action": "store_true", "help": "replace the file if it exists"},
    "--device": {
        "default": "cpu",
        "metavar": "NAME",
        "help": "cpu, cuda, cuda:1, mps, ... (cpu)",
    },
    "--budget": {
        "type": duration,
        "metavar": "TIME",
        "help": "stop at a checkpoint after 90s, 30m, 2h, ...; run it again to continue",
    },
    # Of the user's tables.
    "--target": {"required": True, "metavar": "COLUMN", "help": "the column to predict"},
    "--groups": {
        "required": True,
        "type": name_list,
        "metavar": "COLUMN[,COLUMN]",
        "help": "sensitive attributes; several are crossed",
    },
    "--site-column": {
        "metavar": "COLUMN",
        "help": "of one file: the column that names the site",
    },
    "--task": {
        "choices": ("classification", "regression"),
        "help": "whether the target is a class or a quantity (as its values are)",
    },
    "--positive": {
        "metavar": "CLASS",
        "help": "of two classes, the one that rates are about: missed, false alarms (the second)",
    },
    # Of a federation.
    "--kit": {"type": Path, "required": True, "metavar": "FOLDER", "help": "your own"},
    "--wait": {
        "type": duration,
        "default": 60.0,
        "metavar": "TIME",
        "help": "how long to wait for an absent server and for missing sites (60s)",
    },
    # Instead of settings of the configuration, by their names in ``Overrides``.
    "--set": {
        "action": "append",
        "default": [],
        "dest": "settings",
        "metavar": "SECTION.KEY=VALUE",
        "help": "set a key of the configuration for this run, such as model.kind=logistic or "
        "method.optimality_gap=1e-6; may be repeated",
    },
    "--rounds": {
        "type": positive_int,
        "metavar": "N",
        "help": "instead of those in the configuration",
    },
    "--patience": {
        "type": positive_int,
        "metavar": "N",
        "help": "stop after N consecutive rounds without improvement on validation rows",
    },
    "--certify": {
        "action": "store_true",
        "help": "after the run, prove with up to 20 more rounds how much lower the worst group's "
        "training risk could be (additive, or logistic or linear with a ridge; not Brier)",
    },
    "--frontier": {
        "action": "store_true",
        "help": "find the models between the plain and the minimax one, too; 'fedminmax frontier "
        "RUN' shows them",
    },
}
