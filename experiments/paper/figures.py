"""The figures of the paper's experiments: accuracies, and risk against rounds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.paper.fashion import FashionRow
from experiments.paper.fashion_mnist import GROUP_NAMES
from fedminmax.core.iterates import Iterate
from fedminmax.report.style import new_figure, save_figure
from fedminmax.runs.folder import TESTS_FILE
from fedminmax.studies.finish import read_scored_rounds
from fedminmax.studies.scores import GroupScores, Spread
from fedminmax.studies.study import RunPlan
from fedminmax.training.round_record import ROUNDS_FILE, read_rounds

if TYPE_CHECKING:
    from matplotlib.artist import Artist

SETTINGS = ("ESG", "SSG", "PSG")
METHOD_COLOURS = {
    "AFL": "#E69F00",
    "AFLFast": "#D55E00",
    "FedAvg": "#56B4E9",
    "FedAvgFast": "#0072B2",
    "FedMinMax": "#009E73",
    "FedMinMaxFast": "#CC79A7",
}
SETTING_LINES = {"ESG": "-", "SSG": "--", "PSG": ":", "centralized": "-."}
PANELS = ("Worst group (Shirt)", "Best group (Trouser)", "Mean over groups")


def draw_accuracies(rows: Sequence[FashionRow], stem: Path) -> list[Path]:
    """Draw one panel per kind of accuracy, one bar per setting and method.

    This is the figure of Papadaki et al. 2021, Appendix C, from our results: accuracy of Shirt (the
    worst group), of Trouser (the best) and on average.
    """
    settings = [name for name in SETTINGS if any(row.setting == name for row in rows)]
    methods = [name for name in METHOD_COLOURS if any(row.method == name for row in rows)]
    width = 0.81 / len(methods)
    with new_figure(11, 3.6) as figure:
        axes = figure.subplots(1, len(PANELS), sharey=True)
        for panel, (axis, title) in enumerate(zip(axes, PANELS, strict=True)):
            for row in rows:
                value = _accuracies(row)[panel]
                if row.setting == "centralized":
                    axis.axhline(value.mean, color="black", linestyle="--", linewidth=1)
                    continue
                shift = methods.index(row.method) - (len(methods) - 1) / 2
                axis.bar(
                    settings.index(row.setting) + shift * width,
                    value.mean,
                    0.93 * width,
                    yerr=value.deviation,
                    color=METHOD_COLOURS[row.method],
                    hatch="//" if row.follows else None,
                    edgecolor="white",
                )
            axis.set_xticks(range(len(settings)), settings)
            axis.set_title(title)
            axis.set_ylim(0, 1)
            axis.spines[["top", "right"]].set_visible(False)
        axes[0].set_ylabel("test accuracy")
        figure.legend(*_legend(rows), loc="outside right center", frameon=False)
        return save_figure(figure, stem)


def _accuracies(row: FashionRow) -> tuple[Spread, Spread, Spread]:
    by_group = row.ours.accuracies
    worst, best = GROUP_NAMES.index("Shirt"), GROUP_NAMES.index("Trouser")
    return by_group[worst], by_group[best], row.ours.mean_accuracy


def _legend(rows: Sequence[FashionRow]) -> tuple[list["Artist"], list[str]]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    present = [name for name in METHOD_COLOURS if any(row.method == name for row in rows)]
    handles: list[Artist] = [Patch(color=METHOD_COLOURS[name]) for name in present]
    names = list(present)
    if any(row.setting == "centralized" for row in rows):
        handles.append(Line2D([], [], color="black", linestyle="--"))
        names.append("Centralized MinMax")
    if any(row.follows for row in rows):
        handles.append(Patch(facecolor="grey", edgecolor="white", hatch="//"))
        names.append("follows (Lemma 2)")
    return handles, names


@dataclass(frozen=True)
class Curve:
    """One run's scores, round by round."""

    setting: str
    method: str
    rounds: tuple[int, ...]
    scores: tuple[GroupScores, ...]


def draw_risk_against_rounds(panels: Mapping[str, Sequence[Curve]], stem: Path) -> list[Path]:
    """Draw a column per panel: the worst group's risk above, the mean over groups below.

    It shows whether the worst group's risk has stopped falling.
    """
    with new_figure(3.4 * len(panels), 6) as figure:
        axes = figure.subplots(2, len(panels), sharey="row", squeeze=False)
        for column, (title, curves) in enumerate(panels.items()):
            for curve in curves:
                style = {
                    "color": METHOD_COLOURS[curve.method],
                    "linestyle": SETTING_LINES[curve.setting],
                    "linewidth": 1.2,
                    "label": f"{curve.method}, {curve.setting}",
                }
                axes[0][column].plot(curve.rounds, [one.worst for one in curve.scores], **style)
                axes[1][column].plot(curve.rounds, [one.mean for one in curve.scores], **style)
            axes[0][column].set_title(title, fontsize=9)
            axes[1][column].set_xlabel("round")
        for line in axes:
            for axis in line:
                axis.set_xscale("log")
                axis.grid(visible=True, alpha=0.3)
                axis.spines[["top", "right"]].set_visible(False)
        axes[0][0].set_ylabel("worst group's Brier risk")
        axes[1][0].set_ylabel("mean Brier risk over groups")
        handles, labels = axes[0][0].get_legend_handles_labels()
        # The folds of a setting have one entry.
        named = dict(zip(labels, handles, strict=True))
        figure.legend(
            named.values(), named.keys(), loc="outside right center", fontsize=8, frameon=False
        )
        return save_figure(figure, stem)


def read_curves(folder: Path, plans: list[RunPlan]) -> dict[str, list[Curve]]:
    """Return test curves by iterate, and training curves, of all runs that have any.

    Unfinished runs are included.
    """
    panels: dict[str, list[Curve]] = {"training, last iterate": []}
    for plan in plans:
        own = folder / "runs" / plan.key
        history = read_rounds(own / ROUNDS_FILE)
        if not history:
            continue
        panels["training, last iterate"].append(
            Curve(
                plan.setting,
                plan.method.name,
                tuple(point.round for point in history),
                tuple(
                    GroupScores(tuple(risk for risk in point.risks if risk is not None))
                    for point in history
                ),
            )
        )
        scored = read_scored_rounds(own / TESTS_FILE)
        for which in Iterate:
            curves = panels.setdefault(f"test, {which.value.replace('_', ' ')} iterate", [])
            known = [point for point in scored if which in point.scores]
            if known:
                rounds = tuple(point.round for point in known)
                scores = tuple(point.scores[which] for point in known)
                curves.append(Curve(plan.setting, plan.method.name, rounds, scores))
    return {title: curves for title, curves in panels.items() if curves}
