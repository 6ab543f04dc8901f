"""Several models at a glance: each one's risk for its worst group, and for all records."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedminmax.core.text import counted, listed
from fedminmax.findings.changes import change_between, worst_of
from fedminmax.findings.records import Interval, Results
from fedminmax.findings.tables import Table
from fedminmax.findings.text import TOO_FEW, decimals_of, estimate, interval_name, risk_name
from fedminmax.metrics.intervals import MIN_ROWS
from fedminmax.report.read_run import Run
from fedminmax.report.style import (
    MINIMAX,
    STANDARD,
    ReportFigure,
    distinct,
    is_narrow,
    plain_axes,
    readable_numbers,
    series_style,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Model:
    """One model, the group for which it is worst, and that group's risk."""

    label: str
    results: Results
    is_baseline: bool
    worst_group: str
    worst: Interval


def models_of(runs: Sequence[Run]) -> list[Model]:
    """Return all models that have a worst group; a baseline that several runs share is one."""
    models: list[Model] = []
    for run in runs:
        trained = [(run.label, run.chosen.results, False)]
        if run.baseline is not None:
            baseline = run.baseline.results
            known = [(own.results.method, own.results.risk) for own in models]
            if (baseline.method, baseline.risk) not in known:
                name = f"{baseline.method.name} (baseline of {run.label})"
                trained.insert(0, (name, baseline, True))
        for label, results, is_baseline in trained:
            worst = worst_of(results)
            if worst is not None:
                models.append(Model(label, results, is_baseline, *worst))
    return models


def comparison(runs: Sequence[Run]) -> str:
    """Report which of several runs, or baselines, has the lowest worst-group risk, and how sure."""
    ranked = sorted(models_of(runs), key=lambda model: model.worst.value or 0.0)
    if len(ranked) < 2:
        return f"The runs cannot be compared: {TOO_FEW}, fewer than two groups have {MIN_ROWS}."
    first, second = ranked[:2]
    decimals = decimals_of(first.results)
    records = min(first.worst.rows, second.worst.rows)
    between = change_between("", records, second.worst, first.worst)
    clear = "clearly lower" if between and between.is_clear else "not clearly different"
    baselines = " and their baselines" if any(run.baseline for run in runs) else ""
    doubts = [model.label for model in ranked if not model.results.converged]
    text = (
        f"Of {len(runs)} runs{baselines}, {first.label} has the lowest worst-group "
        f"{risk_name(first.results)}, {estimate(first.worst, decimals)}. Next is {second.label} "
        f"with {estimate(second.worst, decimals)}: {clear}."
    )
    if doubts:
        text += (
            f" With more rounds this may change, because not all have converged: {listed(doubts)}."
        )
    return text


def trade_off_figure(runs: Sequence[Run], name: str) -> ReportFigure | None:
    """Describe the figure; None if no run has a group with enough records to be worst off."""
    results, models = runs[0].chosen.results, models_of(runs)
    if not models:
        return None
    labels = [model.label for model in models]
    lowest = min(models, key=lambda model: model.worst.value or 0.0)
    return ReportFigure(
        name,
        "Worst group against the mean over all records",
        description=f"{counted(len(labels), 'point')} with intervals: {listed(labels)}. "
        f"{lowest.label} is lowest for its worst group.",
        caption="Down is better for the worst group, left is better on average over all records. "
        f"Baselines are hollow. Lines are each value's {interval_name(results.test)}.",
        width=8.2,
        height=4.2,
        narrow_height=3.4 + 0.22 * len(labels),
        draw=lambda figure: _draw(figure, models, risk_name(results)),
        tables=(_table(models, results),),
    )


def _table(models: Sequence[Model], results: Results) -> Table:
    decimals, interval = decimals_of(results), interval_name(results.test)
    return Table(
        f"{risk_name(results)} of the worst group and of all records, lower is better",
        ("Model", "Worst group", f"Its risk ({interval})", f"All records ({interval})"),
        tuple(
            (
                model.label,
                model.worst_group,
                estimate(model.worst, decimals),
                estimate(model.results.risk.overall, decimals),
            )
            for model in models
        ),
    )


def _draw(figure: "Figure", models: Sequence[Model], risk: str) -> None:
    axes = figure.subplots()
    plain_axes(axes, "y")
    narrow = is_narrow(figure)
    labels = distinct([model.label for model in models], 30 if narrow else 34)
    for place, (model, label) in enumerate(zip(models, labels, strict=True)):
        style, overall = series_style(place), model.results.risk.overall
        colour = STANDARD if model.is_baseline else MINIMAX
        x, y = overall.value or 0.0, model.worst.value or 0.0
        axes.plot(_ends(overall), [y, y], color=colour, lw=1.2, alpha=0.8, zorder=1)
        axes.plot([x, x], _ends(model.worst), color=colour, lw=1.2, alpha=0.8, zorder=1)
        axes.plot(
            [x],
            [y],
            color=colour,
            marker=style.marker,
            markersize=9,
            markeredgecolor=colour,
            fillstyle="none" if model.is_baseline else "full",
            markeredgewidth=1.6 if model.is_baseline else 0.8,
            linestyle="none",
            label=label,
        )
    readable_numbers(axes.xaxis, axes.get_xlim()[1])
    readable_numbers(axes.yaxis, axes.get_ylim()[1])
    axes.set_xlabel(f"mean {risk} over all test records")
    axes.set_ylabel(f"{risk} of the worst group")
    axes.locator_params(nbins=4 if narrow else 8)
    if narrow:
        figure.legend(loc="outside lower left", frameon=False, labelspacing=0.4)
    else:
        figure.legend(loc="outside right upper", frameon=False, labelspacing=0.9)


def _ends(interval: Interval) -> list[float]:
    ends = (interval.low, interval.high)
    return [end for end in ends if end is not None] if None not in ends else [float("nan")] * 2
