"""The report's tables without a figure: every measure by group, and every setting."""

from collections.abc import Mapping, Sequence

from fedminmax.core.small_groups import MERGED_NAME
from fedminmax.core.text import duration_text
from fedminmax.report.read_run import Run
from fedminmax.report.style import Table
from fedminmax.report.text import NOTHING, decimals_of, estimate, interval_name, risk_name
from fedminmax.runs.convergence import short_verdict
from fedminmax.runs.records import RISK, Interval, Results
from fedminmax.runs.remarks import risk_with_error


def measures_tables(results: Results) -> list[Table]:
    """Return the model's scores and, if holders keep their own models, the scores of these."""
    name = results.method.name
    tables = [_measures_table(results, name)]
    if results.personal and results.personal.metrics:
        own = results.model_copy(update={"test": results.personal})
        label = f"{name}, personal models, each on its own holder's test rows"
        tables.append(_measures_table(own, label))
    if results.merged and results.merged.test.metrics:
        merged = {"groups": results.merged.groups, "test": results.merged.test}
        label = f"{name}, each of the {MERGED_NAME}"
        tables.append(_measures_table(results.model_copy(update=merged), label))
    return tables


def _measures_table(results: Results, label: str) -> Table:
    """Return every metric by group and over all rows, and the gap."""
    # The risk first: it is what training minimises.
    metrics = {RISK: results.risk} | results.test.metrics
    lines: list[tuple[str, str, list[Interval]]] = [
        (name, f"{risk.rows:,}", [metric.by_group[number] for metric in metrics.values()])
        for number, (name, risk) in enumerate(
            zip(results.groups, results.risk.by_group, strict=True)
        )
    ]
    lines += [
        ("all rows", f"{results.test.rows:,}", [metric.overall for metric in metrics.values()]),
        ("gap", NOTHING, [metric.gap for metric in metrics.values()]),
    ]
    decimals = [decimals_of(results, name) for name in metrics]
    return Table(
        f"{label}: every measure by group ({interval_name(results)})",
        ("Group", "Test rows", *(_metric_name(name, results) for name in metrics)),
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
        "its worst validation risk": NOTHING if chosen is None else risk_with_error(chosen),
        "worst validation risk at the end": NOTHING if last is None else risk_with_error(last),
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
    return risk_name(results) if metric == RISK else metric.replace("_", " ")
