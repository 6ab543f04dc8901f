"""`fedminmax init`: from files to a configuration that the user can read and correct."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from fedminmax.cli.arguments.types import check_new_file
from fedminmax.cli.terminal import say
from fedminmax.config.file_format import PLAIN, FileFormat, FormatChanges, changes_between
from fedminmax.config.read import read_config
from fedminmax.core.errors import InputError
from fedminmax.core.files import write_text
from fedminmax.core.text import counted
from fedminmax.data.tables.codes import DifferentCodesError
from fedminmax.data.tables.config_text import config_text, rare_note
from fedminmax.data.tables.load import load_federated_tables
from fedminmax.data.tables.propose import InitChoices, Proposal, propose
from fedminmax.data.tables.read_file import check_path, count_columns

MANY_COLUMNS = 5_000
# On a computer of 2026; a column is read twice, as a proposal and as training will.
COLUMNS_PER_MINUTE = 20_000


def init_config(
    files: Sequence[Path],
    target: str,
    *,
    groups: Sequence[str],
    site: str | None,
    out: Path,
    choices: InitChoices,
    force: bool = False,
) -> None:
    """Write the configuration, and print what was found and what was skipped."""
    for file in files:
        check_path(file)
    check_new_file(out, "--out", force=force)
    _say_if_wide(files)
    proposal = propose(files, target, groups, site_column=site, choices=choices)
    write_text(out, config_text(proposal, out))
    print(f"{out}: {_summary(proposal)}")
    for line in (*_positive(proposal), *proposal.remarks):
        print(line)
    for name, found in proposal.formats.items():
        settings = _found_format(found, choices.format)
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
    for warning in _warnings(out):
        say(f"warning: {warning}")
    print(f"Review {out}, then: fedminmax train {out}")


def _say_if_wide(files: Sequence[Path]) -> None:
    """Say beforehand that many columns take a while."""
    columns = sum(count_columns(file) for file in files)
    if columns > MANY_COLUMNS:
        minutes = max(1, round(columns / COLUMNS_PER_MINUTE))
        say(f"note: {columns:,} columns are read, which takes about {minutes} min")


def _warnings(config: Path) -> tuple[str, ...]:
    """Read the files as training will, to show its warnings and errors now."""
    try:
        return load_federated_tables(read_config(config)).warnings
    except DifferentCodesError as error:
        raise InputError(f"{config} is written, but training will refuse it: {error}") from error
    except InputError as error:
        return (f"training will refuse this: {error}",)


def _positive(proposal: Proposal) -> list[str]:
    """Say which of two classes rates are about, and how to change that."""
    if len(proposal.target.classes) != 2:
        return []
    other, positive = proposal.target.classes
    line = (
        f"'{positive}' is the positive class, which rates are about; for the other one give "
        f"--positive {shlex.quote(other)}, or write it last in classes"
    )
    return [line]


def _found_format(found: FileFormat, given: FormatChanges) -> str:
    """Describe the format settings that were detected rather than given."""
    changes = vars(changes_between(given.apply(PLAIN), found))
    return ", ".join(f'{key} = "{value}"' for key, value in changes.items() if value is not None)


def _summary(proposal: Proposal) -> str:
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
