"""A proposed configuration as commented TOML, from the template beside this file."""

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from fedminmax.config.file_format import changes_between
from fedminmax.config.messages import toml_key, toml_string
from fedminmax.config.schema import PROPOSED_MISSING_VALUES
from fedminmax.core.small_groups import MINIMUM_GROUP
from fedminmax.core.text import counted
from fedminmax.data.tables.infer import Rare
from fedminmax.data.tables.propose import Proposal
from fedminmax.methods.card import (
    DEFAULT_METHOD,
    DEFAULT_ROUNDS,
    Pace,
    default_baseline,
    default_loss,
)
from fedminmax.methods.catalogue import CARDS
from fedminmax.methods.shared.look_ahead import DEFAULT_GAP

LINE_LENGTH = 100
# Comments of settings begin in the same column.
SETTING_WIDTH = 28


def config_text(proposal: Proposal, path: Path) -> str:
    """Write the configuration for this path; files are named relative to its folder."""
    templates = Environment(
        loader=PackageLoader("fedminmax.data.tables"),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701 (TOML, whose strings have filters of their own)
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    templates.filters |= {
        "toml": toml_string,
        "toml_key": toml_key,
        "toml_list": _toml_list,
        "pad": lambda setting: f"{setting:<{SETTING_WIDTH}}",
    }
    common = Counter(proposal.formats.values()).most_common(1)[0][0]
    pace = CARDS[DEFAULT_METHOD].pace
    loss = default_loss(pace, classifies=not proposal.target.is_quantity)
    return templates.get_template("fedminmax.toml").render(
        name=path.name,
        proposal=proposal,
        person=proposal.choices.person_column,
        files={
            name: Path(os.path.relpath(file, path.parent)).as_posix()
            for name, file in proposal.files.items()
        },
        format=common,
        other_formats={
            name: changes_between(common, other).settings
            for name, other in proposal.formats.items()
            if other != common
        },
        missing_values=PROPOSED_MISSING_VALUES,
        minimum_group=MINIMUM_GROUP,
        minimum_category=proposal.choices.minimum_category,
        protected=[attribute.column for attribute in proposal.protected],
        with_values=[attribute for attribute in proposal.protected if attribute.values],
        with_bands=[attribute for attribute in proposal.protected if attribute.edges],
        rare_note=rare_note,
        loss=loss,
        method=DEFAULT_METHOD,
        rounds=DEFAULT_ROUNDS[pace],
        one_step_rounds=DEFAULT_ROUNDS[Pace.ONE_STEP],
        optimality_gap=DEFAULT_GAP,
        baseline=default_baseline(pace),
    )


def _toml_list(entries: Iterable[str], key: str) -> str:
    """Write a list on one line if it fits, else one entry per line."""
    quoted = [toml_string(entry) for entry in entries]
    line = f"{key} = [{', '.join(quoted)}]"
    if len(line) <= LINE_LENGTH:
        return line
    return "\n".join([f"{key} = [", *(f"    {entry}," for entry in quoted), "]"])


def rare_note(rare: Rare, minimum: int, singular: str) -> str:
    """Say how many values are not listed.

    >>> rare_note(Rare(2, 7), 10, "category")
    '2 categories with fewer than 10 rows (7 rows in all) are skipped'
    """
    plural = {"category": "categories", "value": "values"}[singular]
    few, verb = counted(rare.values, singular, plural), "is" if rare.values == 1 else "are"
    rows = counted(rare.rows, "row")
    return f"{few} with fewer than {minimum:,} rows ({rows} in all) {verb} skipped"
