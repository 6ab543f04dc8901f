"""The paper's appendix figure from our results: accuracies of the worst and best group, and mean.

Papadaki et al. 2021, Appendix C: Shirt, Trouser and average accuracy, per setting and method.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedminmax.data.fashion_mnist import GROUP_NAMES
from fedminmax.report.fashion_results import FashionRow
from fedminmax.report.figures import METHOD_COLOURS, new_figure, save_figure
from fedminmax.report.spread import Spread

if TYPE_CHECKING:
    from matplotlib.artist import Artist

SETTINGS = ("ESG", "SSG", "PSG")
PANELS = ("Worst group (Shirt)", "Best group (Trouser)", "Mean over groups")


def draw_accuracies(rows: Sequence[FashionRow], stem: Path) -> list[Path]:
    """Draw one panel per kind of accuracy, one bar per setting and method."""
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
