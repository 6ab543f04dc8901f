"""Options that say how files are written, for commands that read some."""

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedminmax.data.tables.file_format import FormatChanges


def add_format_options(parser: argparse.ArgumentParser, default: str) -> None:
    """Add the options; without one, ``default`` says what holds."""
    group = parser.add_argument_group("how files are written", f"without an option: {default}")
    add = group.add_argument
    add("--delimiter", metavar="CHARACTER", help="between the fields of a CSV file")
    add("--encoding", metavar="NAME", help="of CSV files: utf-8, cp1252, latin-1, utf-16, ...")
    add("--decimal", metavar="MARK", help="the decimal mark: a dot or a comma")
    add("--thousands", metavar="MARK", help="what parts thousands: , . ' or a space")
    add("--date-format", metavar="FORMAT", help="of dates, such as %%d.%%m.%%Y")


def format_changes(options: argparse.Namespace) -> "FormatChanges":
    """Return what the options say."""
    from fedminmax.data.tables.file_format import FormatChanges

    return FormatChanges(
        options.delimiter,
        options.encoding,
        options.decimal,
        options.thousands,
        options.date_format,
    )
