"""Settings of a run: those that differ from the defaults, and all of them for the appendix."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from enum import Enum
from typing import Any

from fedminmax.config.sections import (
    DataSection,
    FederationSection,
    GroupsSection,
    LoggingSection,
    MethodSection,
    ModelSection,
    PrivacySection,
    resolved,
)
from fedminmax.core.text import duration_text
from fedminmax.findings.convergence import short_convergence
from fedminmax.findings.records import Results
from fedminmax.findings.tables import Table
from fedminmax.findings.text import NOTHING
from fedminmax.findings.training import risk_with_error
from fedminmax.report.read_run import Run

# What says which data there are rather than how a model is trained, and what is told elsewhere.
ELSEWHERE = {
    "data": (
        "target",
        "task",
        "classes",
        "positive",
        "file",
        "sites",
        "site_column",
        "test",
        "map",
    ),
    "groups": ("columns", "values", "map"),
}


SECTIONS = {
    "data": DataSection,
    "groups": GroupsSection,
    "model": ModelSection,
    "method": MethodSection,
    "privacy": PrivacySection,
    "federation": FederationSection,
    "logging": LoggingSection,
}


def changed_settings(run: Run) -> Table:
    """Return the keys of the configuration whose values are not the defaults."""
    lines = tuple(_changed(run.settings))
    return Table("Settings that differ from the defaults", ("setting", "value"), lines)


def _changed(settings: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    left_open = {key: own for key, own in settings.items() if key in ("features", "privacy")}
    usual = resolved({"data": _only(settings, "data", "task", "test"), **left_open})
    for section, values in settings.items():
        if section not in SECTIONS or not isinstance(values, Mapping):
            continue
        for key, value in values.items():
            if key in ELSEWHERE.get(section, ()):
                continue
            default = _default(section, key, usual)
            if plain_text(value) != plain_text(default):
                yield f"{section}.{key}", plain_text(value)


def _only(settings: Mapping[str, Any], section: str, *keys: str) -> dict[str, Any]:
    values = settings.get(section)
    return (
        {key: values[key] for key in keys if key in values} if isinstance(values, Mapping) else {}
    )


def _default(section: str, key: str, usual: Mapping[str, Any]) -> object:
    """Return the value of a key that nobody sets."""
    filled = usual.get(section, {})
    if isinstance(filled, Mapping) and key in filled:
        return filled[key]
    kind = SECTIONS.get(section)
    for entry in fields(kind) if kind else ():
        if entry.name == key:
            return entry.default if entry.default is not MISSING else None
    return None


def settings_table(models: Sequence[Results]) -> Table:
    """Return each model's settings and costs."""
    columns = [_settings(results) for results in models]
    names = dict.fromkeys(name for column in columns for name in column)
    return Table(
        "All settings and costs",
        ("setting", *(results.method.name for results in models)),
        tuple((name, *(column.get(name, NOTHING) for column in columns)) for name in names),
    )


def _settings(results: Results) -> dict[str, str]:
    return {
        "task": results.task,
        "target": results.target,
        **{f"model {name}": plain_text(value) for name, value in results.model},
        "loss": results.loss,
        "method": results.method.key,
        "rounds": f"{results.method.rounds:,}",
        "participation": f"{results.method.participation:g}",
        "converged": short_convergence(results.convergence),
        "seed": str(results.seed),
        "returned model": results.iterate.replace("_", " "),
        **_validation(results),
        **{f"option {name}": plain_text(own) for name, own in results.method.options.items()},
        "gradient evaluations": f"{results.gradient_evaluations:,}",
        "time": duration_text(results.seconds),
    }


def _validation(results: Results) -> dict[str, str]:
    validation = results.validation
    if validation is None:
        return {}
    chosen, last = validation.chosen, validation.last
    return {
        "validation records": f"{sum(validation.rows):,}",
        "patience": plain_text(validation.patience),
        "round chosen by validation": NOTHING if chosen is None else f"{chosen.round:,}",
        "its validation risk": NOTHING if chosen is None else risk_with_error(chosen),
        "validation risk at the end": NOTHING if last is None else risk_with_error(last),
    }


def plain_text(value: object) -> str:
    """Write a setting's value as a person would."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={plain_text(part)}" for key, part in value.items()) or "none"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(plain_text, value)) or "none"
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None or value == "" else str(value)
