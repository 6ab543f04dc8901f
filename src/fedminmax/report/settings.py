"""Settings of a run, and the files inside its page: every measure, and the configuration.

The page shows the settings that differ from the defaults; all of them are in the appendix. The
configuration inside the page has no folders of files.
"""

import base64
import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from enum import Enum
from pathlib import PureWindowsPath
from typing import Any

from fedminmax.config.messages import toml_key, toml_string
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
from fedminmax.findings.disclosure import MANY, decimals_told, is_told, publishable
from fedminmax.findings.records import Interval, Results
from fedminmax.findings.tables import Table
from fedminmax.findings.text import NOTHING, metric_name
from fedminmax.findings.training import risk_with_error
from fedminmax.findings.verdict import EVERYONE
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
# Keys of [data] that name files.
FILES = ("file", "sites", "test")
# A spreadsheet would take a text that begins so for a formula.
FORMULA = ("=", "+", "-", "@", "\t")


def changed_settings(run: Run) -> Table:
    """Return the keys of the configuration whose values are not the defaults."""
    return Table(
        "Settings that differ from the defaults", ("setting", "value"), tuple(_changed(run))
    )


def _changed(run: Run) -> Iterator[tuple[str, str]]:
    left_open = {key: own for key, own in run.settings.items() if key in ("features", "privacy")}
    data = {key: own for key, own in run.section("data").items() if key in ("task", "test")}
    usual = resolved({"data": data, **left_open})
    for section in (name for name in run.settings if name in SECTIONS):
        entries = fields(SECTIONS[section])
        filled = usual.get(section)
        defaults = {entry.name: entry.default for entry in entries if entry.default is not MISSING}
        defaults |= filled if isinstance(filled, Mapping) else {}
        for key, value in run.section(section).items():
            default = plain_text(defaults.get(key))
            if key not in ELSEWHERE.get(section, ()) and plain_text(value) != default:
                yield f"{section}.{key}", plain_text(value)


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


@dataclass(frozen=True)
class Download:
    """A file, as a link that holds its content."""

    name: str
    words: str
    address: str


def _download(name: str, words: str, kind: str, text: str) -> Download:
    content = base64.b64encode(text.encode()).decode()
    return Download(name, words, f"data:{kind};charset=utf-8;base64,{content}")


def measures_file(run: Run) -> Download:
    """Return every measure of every model and group, with its interval, as CSV."""
    return _download("measures.csv", "All measures with their intervals", "text/csv", csv_of(run))


def csv_of(run: Run) -> str:
    """Return a line for each model, group and measure; small groups have none."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(["model", "group", "records", "measure", "value", "low", "high"])
    models = [run.chosen.results, *([run.baseline.results] if run.baseline else [])]
    for results in models:
        lines.writerows(_lines(results))
    return text.getvalue()


def _lines(results: Results) -> Iterator[list[str]]:
    test = results.test
    for metric, measured in test.metrics.items():
        counts = publishable([level.rows for level in measured.by_group])
        for place, (group, level) in enumerate(zip(results.groups, measured.by_group, strict=True)):
            if is_told(test, metric, place):
                most = decimals_told(test, metric, place)
                digits = ".6g" if most == MANY else f".{most}f"
                yield _line(results, metric, group, counts.shown[place], level, digits)
        yield _line(results, metric, EVERYONE, counts.total, measured.overall, ".6g")


def _line(
    results: Results, metric: str, group: str, rows: int | None, level: Interval, digits: str
) -> list[str]:
    words = (results.method.name, group, metric_name(metric, results))
    model, name, measure = map(_plain, words)
    ends = [
        "" if end is None else f"{end:{digits}}" for end in (level.value, level.low, level.high)
    ]
    return [model, name, "" if rows is None else str(rows), measure, *ends]


def _plain(text: str) -> str:
    return f"'{text}" if text.startswith(FORMULA) else text


def configuration_file(run: Run) -> Download:
    """Return the configuration as TOML, without comments and without the folders of files."""
    text = "".join(f"{line}\n" for line in _toml(without_folders(run.settings)))
    return _download("fedminmax.toml", "The configuration", "application/toml", text)


def without_folders(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings in which files have names and no folders."""
    data = settings.get("data")
    if not isinstance(data, Mapping):
        return dict(settings)
    named = {key: _names(value) if key in FILES else value for key, value in data.items()}
    return dict(settings) | {"data": named}


def _names(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _names(own) for key, own in value.items()}
    # It takes both / and \ as separators.
    return PureWindowsPath(value).name if isinstance(value, str) else value


def _toml(values: Mapping[str, Any], title: str = "") -> Iterator[str]:
    tables = {key: own for key, own in values.items() if isinstance(own, Mapping)}
    if title and len(tables) < len(values):
        yield f"[{title}]"
    for key, own in values.items():
        if key not in tables:
            yield f"{toml_key(key)} = {_value(own)}"
    for key, own in tables.items():
        yield from _toml(own, f"{title}.{toml_key(key)}" if title else toml_key(key))


def _value(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{toml_key(key)} = {_value(own)}' for key, own in value.items())}}}"
    return toml_string(value) if isinstance(value, str) else str(value).lower()
