"""Risk against rounds: has the worst group's risk stopped falling?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedminmax.report.figures import METHOD_COLOURS, SETTING_LINES, new_figure, save_figure
from fedminmax.report.run_result import GroupScores


@dataclass(frozen=True)
class Curve:
    """One run's scores, round by round."""

    setting: str
    method: str
    rounds: tuple[int, ...]
    scores: tuple[GroupScores, ...]


def draw_risk_against_rounds(panels: Mapping[str, Sequence[Curve]], stem: Path) -> list[Path]:
    """Draw a column per panel: the worst group's risk above, the mean over groups below."""
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
        axes[0][0].legend(fontsize=7)
        return save_figure(figure, stem)
