"""Files inside the page: every measure as CSV, and the configuration without folders of files."""

import base64
import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PureWindowsPath
from typing import Any

from fedminmax.config.messages import toml_key, toml_string
from fedminmax.findings.changes import EVERYONE
from fedminmax.findings.disclosure import is_told, publishable
from fedminmax.findings.records import Interval, Results
from fedminmax.findings.text import metric_name
from fedminmax.report.read_run import Run

# Keys of [data] that name files.
FILES = ("file", "sites", "test")
# A spreadsheet would take a text that begins so for a formula.
FORMULA = ("=", "+", "-", "@", "\t")


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
        withheld = {*counts.hidden, *publishable(test.positives).hidden}
        for place, (group, level) in enumerate(zip(results.groups, measured.by_group, strict=True)):
            if is_told(test, metric, place):
                digits = ".3f" if place in withheld else ".6g"
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
