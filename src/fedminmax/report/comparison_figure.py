"""A comparison as a picture: each method's worst, mean and best group, setting by setting."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedminmax.report.comparison import ComparisonRow
from fedminmax.report.figures import new_figure, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Colour and shape both tell them apart (Okabe and Ito's colours).
MARKS = {"worst": ("#D55E00", "o"), "mean": ("#000000", "|"), "best": ("#0072B2", "D")}


def draw_comparison(rows: Sequence[ComparisonRow], stem: Path) -> list[Path]:
    """Draw a panel per setting: a line per method, from its best to its worst group."""
    settings = list(dict.fromkeys(row.setting for row in rows))
    methods = list(dict.fromkeys(_name(row) for row in rows))
    with new_figure(3.0 + 3.2 * len(settings), 1.2 + 0.24 * len(methods)) as figure:
        axes = figure.subplots(1, len(settings), sharex=True, sharey=True, squeeze=False)[0]
        for axis, setting in zip(axes, settings, strict=True):
            for row in rows:
                if row.setting == setting:
                    _draw_line(axis, methods.index(_name(row)), row)
            axis.set_title(setting, fontsize=9)
            axis.set_xlabel("test Brier risk")
            axis.grid(visible=True, axis="x", alpha=0.3)
            axis.spines[["top", "right"]].set_visible(False)
        axes[0].set_yticks(range(len(methods)), methods, fontsize=7)
        axes[0].invert_yaxis()
        handles, labels = axes[0].get_legend_handles_labels()
        named = dict(zip(labels, handles, strict=True))
        figure.legend(
            named.values(),
            [f"{name} group" if name != "mean" else "mean" for name in named],
            loc="outside upper center",
            ncols=3,
            fontsize=8,
            frameon=False,
        )
        return save_figure(figure, stem)


def _name(row: ComparisonRow) -> str:
    return f"{row.method} (personal)" if row.model == "personal" else row.method


def _draw_line(axis: "Axes", place: int, row: ComparisonRow) -> None:
    axis.plot([row.best.mean, row.worst.mean], [place, place], color="#999999", linewidth=1)
    for name, (colour, shape) in MARKS.items():
        value = {"worst": row.worst, "mean": row.mean, "best": row.best}[name]
        axis.errorbar(
            [value.mean],
            [place],
            xerr=value.deviation,
            color=colour,
            marker=shape,
            markersize=4,
            linestyle="none",
            capsize=2,
            label=name,
        )
