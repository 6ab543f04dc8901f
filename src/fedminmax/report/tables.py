"""The report's tables without a figure: every measure by group, and every setting."""

from collections.abc import Mapping, Sequence

from fedminmax.core.small_groups import MERGED_NAME
from fedminmax.core.text import duration_text
from fedminmax.findings.records import RISK, Interval, Results
from fedminmax.report.read_run import Run
from fedminmax.report.style import Table
from fedminmax.report.text import NOTHING, decimals_of, estimate, interval_name, risk_name
from fedminmax.runs.convergence import short_verdict
from fedminmax.runs.metric_names import FALSE_ALARMS, MISSED, metric_name
from fedminmax.runs.remarks import risk_with_error

# What a model gets wrong; the risk, which training minimises, comes first.
MAX_COLUMNS = 4
ERRORS = ("accuracy", "absolute_error", MISSED, FALSE_ALARMS)


def measures_tables(results: Results) -> list[Table]:
    """Return the model's scores and, if sites keep their own models, the scores of these."""
    name = results.method.name
    tables = _measures(results, name)
    if results.personal and results.personal.metrics:
        own = results.model_copy(update={"test": results.personal})
        tables += _measures(own, f"{name}, personal models, each on its own site's test rows")
    if results.merged and results.merged.test.metrics:
        merged = {"groups": results.merged.groups, "test": results.merged.test}
        own = results.model_copy(update=merged)
        tables += _measures(own, f"{name}, each of the {MERGED_NAME}")
    return tables


def _measures(results: Results, label: str) -> list[Table]:
    """Return every metric in tables that fit on a screen, errors before the rest."""
    first = [name for name in (RISK, *ERRORS) if name in results.test.metrics]
    others = [name for name in results.test.metrics if name not in first]
    if len(first) + len(others) <= MAX_COLUMNS:
        return [_measures_table(results, f"{label}: every measure by group", [*first, *others])]
    parts = [(f"{label}: errors by group", first), (f"{label}: other measures by group", others)]
    return [_measures_table(results, title, names) for title, names in parts if names]


def _measures_table(results: Results, title: str, names: Sequence[str]) -> Table:
    """Return these metrics by group and over all rows, and the gap."""
    metrics = [results.test.metrics[name] for name in names]
    lines: list[tuple[str, str, list[Interval]]] = [
        (name, f"{risk.rows:,}", [metric.by_group[number] for metric in metrics])
        for number, (name, risk) in enumerate(
            zip(results.groups, results.risk.by_group, strict=True)
        )
    ]
    lines += [
        ("all rows", f"{results.test.rows:,}", [metric.overall for metric in metrics]),
        ("gap", NOTHING, [metric.gap for metric in metrics]),
    ]
    decimals = [decimals_of(results, name) for name in names]
    return Table(
        f"{title} ({interval_name(results)})",
        ("Group", "Test rows", *(_metric_name(name, results) for name in names)),
        tuple(
            (
                name,
                rows,
                *(estimate(one, places) for one, places in zip(values, decimals, strict=True)),
            )
            for name, rows, values in lines
        ),
    )


def settings_table(run: Run) -> Table:
    """Return each model's settings and costs."""
    models = [run.chosen, *([run.baseline] if run.baseline else [])]
    lines = []
    for part in (_training, _options, _costs):
        columns = [part(model.results) for model in models]
        names = dict.fromkeys(name for column in columns for name in column)
        lines += [(name, *(column.get(name, NOTHING) for column in columns)) for name in names]
    return Table(
        "Settings and costs",
        ("Setting", *(model.results.method.name for model in models)),
        tuple(lines),
    )


def _training(results: Results) -> dict[str, str]:
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
        "model shown": results.iterate.replace("_", " "),
        **_validation(results),
    }


def _validation(results: Results) -> dict[str, str]:
    found = results.validation
    if found is None:
        return {}
    chosen, last = found.chosen, found.last
    return {
        "validation rows": f"{sum(found.rows):,}",
        "patience": _plain(found.patience),
        "round chosen by validation": NOTHING if chosen is None else f"{chosen.round:,}",
        "its validation risk": NOTHING if chosen is None else risk_with_error(chosen),
        "validation risk at the end": NOTHING if last is None else risk_with_error(last),
    }


def _options(results: Results) -> dict[str, str]:
    return {f"option {name}": _plain(value) for name, value in results.method.options.items()}


def _costs(results: Results) -> dict[str, str]:
    return {
        "gradient evaluations": f"{results.gradient_evaluations:,}",
        "time": duration_text(results.seconds),
    }


def _plain(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={_plain(part)}" for key, part in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(_plain(part) for part in value) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None or value == "" else str(value)


def _metric_name(metric: str, results: Results) -> str:
    return risk_name(results) if metric == RISK else metric_name(metric, results.classes)
