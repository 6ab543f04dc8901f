"""Draws docs/benefit.svg, the picture of README.md, from committed results and a run of the demo.

Left: people whose prediction is wrong, by `fedminmax demo`. Right: Brier scores on the census by
state, from experiments/table_models/risks.jsonl. It follows the reader's light or dark colours.

usage: fedminmax demo && python scripts/benefit_picture.py
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from fedminmax.cli.demo import FOLDER
from fedminmax.core.errors import InputError
from fedminmax.runs.folder import BASELINE_FOLDER, read_results

ROOT = Path(__file__).parents[1]
RISKS = ROOT / "experiments" / "table_models" / "risks.jsonl"
PICTURE = ROOT / "docs" / "benefit.svg"
EVERYONE = "everyone"
# A model of the experiment, and what the picture calls it.
MODELS = {
    "each site alone": ("boosted trees,", "each state alone"),
    "LightGBM": ("boosted trees,", "all records pooled"),
    "additive": ("fedminmax,", "records stay"),
}
STYLE = """\
.back { fill: #ffffff } .text { fill: #1f2328 } .soft { fill: #57606a } .rule { stroke: #d0d7de }
.old { fill: #8c959f } .new { fill: #0969da } .line { stroke: #8c959f }
@media (prefers-color-scheme: dark) {
  .back { fill: #0d1117 } .text { fill: #e6edf3 } .soft { fill: #9198a1 } .rule { stroke: #3d444d }
  .old { fill: #9198a1 } .new { fill: #6cb6ff } .line { stroke: #9198a1 }
}"""


@dataclass(frozen=True)
class Axis:
    """Values from ``low`` to ``high``, drawn from ``left`` to ``right``."""

    low: float
    high: float
    left: float
    right: float

    def place(self, value: float) -> float:
        """Return where a value is drawn."""
        return self.left + (value - self.low) / (self.high - self.low) * (self.right - self.left)


def text(x: float, y: float, words: str, *, kind: str = "text", more: str = "") -> str:
    """Return a text of the picture."""
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" {more}>{words}</text>\n'


def circle(x: float, y: float, kind: str) -> str:
    """Return a mark."""
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6" class="{kind}"/>\n'


def line(start: float, end: float, y: float, kind: str, width: float = 2.0) -> str:
    """Return a horizontal line."""
    return (
        f'<line x1="{start:.1f}" x2="{end:.1f}" y1="{y:.1f}" y2="{y:.1f}" class="{kind}" '
        f'stroke-width="{width:g}"/>\n'
    )


def demo_panel(changes: Sequence[tuple[str, int, int]]) -> Iterator[str]:
    """Yield wrong predictions of 1,000 by group, with the standard and with our model."""
    axis = Axis(180.0, 360.0, 100.0, 400.0)
    yield text(20, 26, "Wrong predictions of 1,000 patients", more='font-weight="bold"')
    yield text(20, 46, "demo: three simulated hospitals, 6% women", kind="soft")
    for number, (name, before, after) in enumerate(changes):
        y = 96.0 + 58.0 * number
        start, end = axis.place(before), axis.place(after)
        yield text(20, y + 5, name)
        yield line(axis.left, axis.right, y, "rule", 1.0)
        yield line(start, end, y, "line")
        yield circle(start, y, "old") + circle(end, y, "new")
        for x, own, kind, wins in (
            (start, before, "soft", before > after),
            (end, after, "new", after >= before),
        ):
            anchor, shift = ("start", 11) if wins else ("end", -11)
            yield text(x + shift, y - 10, f"{own}", kind=kind, more=f'text-anchor="{anchor}"')
    yield circle(106, 258, "old") + text(118, 263, "standard model", kind="soft")
    yield circle(262, 258, "new") + text(274, 263, "fedminmax", kind="soft")


def census_panel(scores: Sequence[tuple[tuple[str, str], float, float]]) -> Iterator[str]:
    """Yield Brier scores of the worst group and of everybody, by model."""
    axis = Axis(0.25, 0.31, 600.0, 840.0)
    yield text(450, 26, "Error (Brier score) on the US census", more='font-weight="bold"')
    yield text(450, 46, "19 states as sites, ten groups by sex and race", kind="soft")
    for number, (name, worst, mean) in enumerate(scores):
        y = 96.0 + 58.0 * number
        kind = "new" if number == len(scores) - 1 else "old"
        yield text(450, y - 3, name[0]) + text(450, y + 15, name[1], kind="soft")
        yield line(axis.left, axis.right, y, "rule", 1.0)
        yield line(axis.place(mean), axis.place(worst), y, "line")
        for value in (mean, worst):
            yield circle(axis.place(value), y, kind)
            x = axis.place(value)
            yield text(x, y - 12, f"{value:.3f}", kind="soft", more='text-anchor="middle"')
    yield text(axis.place(scores[-1][2]), 263, "everyone", kind="soft", more='text-anchor="middle"')
    yield text(
        axis.place(scores[-1][1]), 263, "worst group", kind="soft", more='text-anchor="middle"'
    )


def demo_changes(folder: Path) -> list[tuple[str, int, int]]:
    """Return wrong predictions of 1,000 by group in a run: name, before, after."""
    before, after = _wrong(folder / BASELINE_FOLDER), _wrong(folder)
    return [(name, before[name], after[name]) for name in after]


def _wrong(folder: Path) -> dict[str, int]:
    results = read_results(folder)
    if results is None:
        raise InputError(f"{folder} has no results; run fedminmax demo first")
    accuracy = results.test.metrics["accuracy"]
    levels = zip((*results.groups, EVERYONE), (*accuracy.by_group, accuracy.overall), strict=True)
    return {name: round(1000 * (1 - (level.value or 0.0))) for name, level in levels}


def census_scores() -> list[tuple[tuple[str, str], float, float]]:
    """Return means over five splits of the worst group's and of everybody's Brier score."""
    runs = [json.loads(entry) for entry in RISKS.read_text(encoding="utf-8").splitlines()]
    own = {
        model: [run for run in runs if (run["table"], run["model"]) == ("acs", model)]
        for model in MODELS
    }
    return [
        (name, fmean(run["worst"] for run in own[model]), fmean(run["mean"] for run in own[model]))
        for model, name in MODELS.items()
    ]


def picture(changes: Sequence[tuple[str, int, int]]) -> str:
    """Return the picture."""
    words = ", ".join(f"{name} {before} to {after}" for name, before, after in changes)
    scores = census_scores()
    census = "; ".join(f"{' '.join(name)} {worst:.3f}, {mean:.3f}" for name, worst, mean in scores)
    label = (
        f"Wrong predictions of 1,000 in the demo, from the standard model to fedminmax: {words}. "
        f"Brier scores on the census, worst group and everyone: {census}."
    )
    parts = "".join((*demo_panel(changes), *census_panel(scores)))
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 880 284" font-size="15" '
        f'font-family="system-ui, Helvetica, Arial, sans-serif" role="img" aria-label="{label}">\n'
        f"<style>{STYLE}</style>\n"
        f'<rect width="880" height="284" rx="8" class="back"/>\n{parts}</svg>\n'
    )


if __name__ == "__main__":
    PICTURE.write_text(picture(demo_changes(FOLDER / "hospitals" / "run")), encoding="utf-8")
