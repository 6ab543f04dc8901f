"""The report's tables without a figure: every measure, every setting, records by site."""

from collections.abc import Mapping, Sequence

from fedminmax.core.small_groups import MERGED_NAME
from fedminmax.core.text import duration_text
from fedminmax.data.tables.census import CensusFile
from fedminmax.findings.convergence import short_verdict
from fedminmax.findings.records import RISK, Results
from fedminmax.findings.tables import Table, metrics_table
from fedminmax.findings.text import NOTHING
from fedminmax.findings.training import risk_with_error
from fedminmax.metrics.row_scores import FALSE_ALARMS, MISSED

# What a model gets wrong; the risk, which training minimises, comes first.
MAX_COLUMNS = 4
ERRORS = ("accuracy", "absolute_error", MISSED, FALSE_ALARMS)


def measures_tables(results: Results) -> list[Table]:
    """Return the model's scores and, if sites keep their own models, the scores of these."""
    name = results.method.name
    tables = _measures(results, name)
    if results.personal and results.personal.metrics:
        own = results.model_copy(update={"test": results.personal})
        tables += _measures(own, f"{name}, personal models, each on the test records of its site")
    if results.merged and results.merged.test.metrics:
        merged = {"groups": results.merged.groups, "test": results.merged.test}
        own = results.model_copy(update=merged)
        tables += _measures(own, f"{name}, each of the {MERGED_NAME}")
    return tables


def _measures(results: Results, label: str) -> list[Table]:
    """Return every metric in tables that fit on a screen, errors before the rest."""
    first = [name for name in (RISK, *ERRORS) if name in results.test.metrics]
    others = [name for name in results.test.metrics if name not in first]
    parts = {f"{label}: errors by group": first, f"{label}: other measures by group": others}
    if len(first) + len(others) <= MAX_COLUMNS:
        parts = {f"{label}: every measure by group": [*first, *others]}
    return [
        metrics_table(results, results.test, title, names)
        for title, names in parts.items()
        if names
    ]


def counts_tables(census: CensusFile) -> list[Table]:
    """Return the training and test records by site and group."""
    tests = dict(zip(census.sites, census.test, strict=True)) | census.other_tests
    return [
        _counts("Training", dict(zip(census.sites, census.train, strict=True)), census.groups),
        _counts("Test", tests, census.groups),
    ]


def _counts(part: str, counts: Mapping[str, Sequence[int]], groups: Sequence[str]) -> Table:
    totals = [sum(column) for column in zip(*counts.values(), strict=True)]
    return Table(
        f"{part} records by site and group",
        ("Site", *groups, "all groups"),
        tuple(
            (site, *(f"{count:,}" for count in line), f"{sum(line):,}")
            for site, line in [*counts.items(), ("all sites", totals)]
        ),
    )


def settings_table(models: Sequence[Results]) -> Table:
    """Return each model's settings and costs."""
    columns = [_settings(results) for results in models]
    names = dict.fromkeys(name for column in columns for name in column)
    return Table(
        "Settings and costs",
        ("Setting", *(results.method.name for results in models)),
        tuple((name, *(column.get(name, NOTHING) for column in columns)) for name in names),
    )


def _settings(results: Results) -> dict[str, str]:
    return {
        "task": results.task,
        "target": results.target,
        **{f"model {name}": _plain(value) for name, value in results.model},
        "loss": results.loss,
        "method": results.method.key,
        "rounds": f"{results.method.rounds:,}",
        "participation": f"{results.method.participation:g}",
        "converged": short_verdict(results.convergence),
        "seed": str(results.seed),
        "returned model": results.iterate.replace("_", " "),
        **_validation(results),
        **{f"option {name}": _plain(value) for name, value in results.method.options.items()},
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
        "patience": _plain(validation.patience),
        "round chosen by validation": NOTHING if chosen is None else f"{chosen.round:,}",
        "its validation risk": NOTHING if chosen is None else risk_with_error(chosen),
        "validation risk at the end": NOTHING if last is None else risk_with_error(last),
    }


def _plain(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={_plain(part)}" for key, part in value.items()) or "none"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(_plain(part) for part in value) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None or value == "" else str(value)
