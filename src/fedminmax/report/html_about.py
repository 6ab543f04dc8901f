"""The first screen: what was predicted, for whom, on which rows, when, and what it is for."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from fedminmax.core.counted import counted
from fedminmax.data.tables.config_sections import ReportSection
from fedminmax.report.html_read_run import Run
from fedminmax.report.html_words import listed, short

NOT_STATED = "Not stated. The section [report] of the configuration is the place for it."
MAX_NAMED = 6
MAX_CHARACTERS = 60


@dataclass(frozen=True)
class About:
    """A title, and what to know before reading any number, by name."""

    title: str
    facts: tuple[tuple[str, str], ...]


def about(run: Run) -> About:
    """Say what this run is about; what users state themselves is in its configuration."""
    results, census = run.chosen.results, run.census
    content = _content(run.config)
    words = _stated(content)
    kind = f"one of {_named(results.classes)}" if results.classes else "a number"
    train = sum(map(sum, census.train))
    trained = f"Trained on {counted(train, 'row')} of {counted(len(census.holders), 'holder')}"
    facts = {
        "What is predicted": f"“{results.target}”, {kind}.",
        "For whom": f"{_columns(content)}{counted(len(results.groups), 'group')}: "
        f"{_named(results.groups)}.",
        "On which rows": f"{trained} ({_named(census.holders)}); measured on "
        f"{counted(results.test.rows, 'other row')}, which training did not see.",
        "When": results.finished or "Not recorded by the version that trained it.",
        "Intended use": words.intended_use or NOT_STATED,
        "Not for": words.not_for or NOT_STATED,
    }
    return About(words.title or f"Predicting “{results.target}”", tuple(facts.items()))


def _content(config: str) -> Mapping[str, Any]:
    """Read a run's configuration, which training has checked; nothing if it was damaged since."""
    try:
        return tomllib.loads(config)
    except tomllib.TOMLDecodeError:
        return {}


def _stated(content: Mapping[str, Any]) -> ReportSection:
    try:
        return ReportSection.model_validate(content.get("report", {}))
    except ValidationError:
        return ReportSection()


def _columns(content: Mapping[str, Any]) -> str:
    """Name the columns that make the groups, where the configuration has them."""
    section = content.get("groups")
    columns = section.get("columns") if isinstance(section, Mapping) else None
    if not isinstance(columns, list) or not columns:
        return ""
    return f"By {listed([f'“{column}”' for column in columns])}, "


def _named(names: tuple[str, ...]) -> str:
    """Name the first ones."""
    shown = [short(name, MAX_CHARACTERS) for name in names[:MAX_NAMED]]
    if len(names) > MAX_NAMED:
        shown.append(f"{len(names) - MAX_NAMED:,} more")
    return listed(shown)
