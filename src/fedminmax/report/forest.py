"""Who gains and who loses: a line for each group with its change, its interval and its level.

The page shows it as a table with a small drawing in each line, so that names wrap, numbers are text
and a phone has the table alone. The same lines are drawn as one figure for papers.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedminmax.findings.disclosure import is_told, small_groups_text
from fedminmax.findings.findings import Tone, unit_of
from fedminmax.findings.records import Change, Results
from fedminmax.findings.tables import Table, mistakes_tables, records_cells
from fedminmax.findings.text import capitalised, interval_name
from fedminmax.findings.verdict import (
    EVERYONE,
    OF_PEOPLE,
    PEOPLE,
    change_texts,
    kinds_of,
    level_cell,
    level_ends,
    mistakes_of,
    model_names,
)
from fedminmax.report.style import ReportFigure, is_narrow, plain_axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_LINES = 30
MAX_TICKS = 4
# A line that leaves the drawing ends in an arrow: the widest may be this many times the median.
MAX_SPREAD = 8.0
# So few lines are all shown whole.
FEW_LINES = 5


@dataclass(frozen=True)
class Line:
    """A group, or everyone: levels, and the change (of one model: the level) with its interval.

    ``ends`` are the numbers drawn: low, value and high.
    """

    group: str
    tested: str
    before: str | None
    after: str
    shown: str
    interval: str
    meaning: str
    tone: Tone
    ends: tuple[float, float, float]

    @property
    def is_everyone(self) -> bool:
        """Whether it is about all records."""
        return self.group == EVERYONE

    @property
    def name(self) -> str:
        """The group, or everyone."""
        return "Everyone" if self.is_everyone else self.group


@dataclass(frozen=True)
class Forest:
    """The lines, the worst off first, and the axis; ``tick_labels`` are at ``ticks``."""

    lines: tuple[Line, ...]
    standard: str | None
    new: str
    unit: str
    interval: str
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    foot: str

    def place(self, value: float) -> str:
        """Where a value is on the axis, in percent of its length."""
        share = (value - self.low) / (self.high - self.low)
        return f"{100 * min(max(share, 0.0), 1.0):.2f}%"


def forest_of(results: Results) -> Forest | None:
    """Return the lines of all groups with enough records; None if there are none."""
    is_change = results.change is not None
    lines = _changes(results) if is_change else _levels(results)
    if not lines:
        return None
    *groups, everyone = lines
    lines = [*groups[:MAX_LINES], everyone]
    low, high = _range(lines, from_zero=not is_change)
    standard, new = model_names(results)
    return Forest(
        tuple(lines),
        standard if is_change else None,
        new,
        unit_of(results),
        interval_name(results.test),
        low,
        high,
        tuple((tick, _tick_text(tick, signed=is_change)) for tick in _ticks(low, high)),
        _foot(results, max(0, len(groups) - MAX_LINES)),
    )


def _changes(results: Results) -> list[Line]:
    metric = kinds_of(results)[0]
    tested = _tested(results)
    *groups, everyone = mistakes_of(results, metric)
    compared = [
        own
        for place, own in enumerate(groups)
        if own and own.has_enough_rows and is_told(results.test, metric, place)
    ]
    compared.sort(key=lambda change: -change.before)
    told = [*compared, everyone] if everyone else []
    return [_line(results, change, tested[change.group]) for change in told]


def _tested(results: Results) -> dict[str, str]:
    return dict(zip((*results.groups, EVERYONE), records_cells(results.test), strict=True))


def _line(results: Results, change: Change, tested: str) -> Line:
    texts = change_texts(results, change)
    tone: Tone = "worse" if texts.meaning == "worse" else "better" if texts.meaning else "same"
    scale = PEOPLE if change.kind in OF_PEOPLE else 1.0
    return Line(
        change.group,
        tested,
        texts.before,
        texts.after,
        texts.value,
        f"{texts.low} to {texts.high}",
        texts.meaning,
        tone,
        (scale * change.low, scale * change.value, scale * change.high),
    )


def _levels(results: Results) -> list[Line]:
    """Return the lines of one model: its levels, with their own intervals."""
    metric, tested = kinds_of(results)[0], _tested(results)
    levels = results.test.metrics[metric]
    named = (*zip(results.groups, levels.by_group, strict=True), (EVERYONE, levels.overall))
    lines = []
    for place, (name, level) in enumerate(named):
        ends = level_ends(metric, level)
        is_group = place < len(results.groups)
        if is_group and not (level.has_enough_rows and is_told(results.test, metric, place)):
            continue
        if ends is None:
            continue
        value, _, interval = level_cell(results, metric, level, name).partition(" (")
        interval = interval.removesuffix(")")
        lines.append(Line(name, tested[name], None, value, value, interval, "", "same", ends))
    if not lines or not lines[-1].is_everyone:
        return []
    return [*sorted(lines[:-1], key=lambda line: -line.ends[1]), lines[-1]]


def _range(lines: Sequence[Line], *, from_zero: bool) -> tuple[float, float]:
    """Return what is drawn: all intervals, but for what is far wider than most."""
    reach = sorted(max(abs(line.ends[0]), abs(line.ends[2])) for line in lines)
    most = MAX_SPREAD * reach[len(reach) // 2] if len(lines) > FEW_LINES else math.inf
    low = max(min(min(line.ends[0] for line in lines), 0.0), -most)
    high = min(max(max(line.ends[2] for line in lines), 0.0), most)
    low = min([low, *(line.ends[1] for line in lines)])
    high = max([high, *(line.ends[1] for line in lines)])
    room = 0.04 * (high - low) or 1.0
    return (0.0 if from_zero else low - room), high + room


def _ticks(low: float, high: float) -> list[float]:
    """Return round numbers on the axis, at most ``MAX_TICKS``; 0 is one of them."""
    size = 10.0 ** math.floor(math.log10((high - low) / MAX_TICKS))
    step = next(size * k for k in (1, 2, 5, 10) if (high - low) / (size * k) <= MAX_TICKS)
    return [step * k for k in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _tick_text(value: float, *, signed: bool) -> str:
    text = f"{abs(value):,.6g}"
    sign = "" if not signed or not value else "+" if value > 0 else "\N{MINUS SIGN}"
    return f"{sign}{text}"


def _foot(results: Results, more: int) -> str:
    wrong = "Wrong: the more likely class is not the true one." if results.classes else ""
    if len(results.classes) > 2:
        wrong = "Wrong: the most likely class is not the true one."
    hidden = f"{more:,} more groups are in the CSV file below." if more else ""
    small = small_groups_text(results.groups, results.test)
    return " ".join(text for text in (small, hidden, wrong) if text)


def forest_figure(results: Results, name: str) -> ReportFigure | None:
    """Describe the same as one figure, for papers."""
    forest = forest_of(results)
    if forest is None:
        return None
    what = "Change" if forest.standard else "Level"
    return ReportFigure(
        name,
        "Who gains, who loses" if forest.standard else "Mistakes by group",
        description=f"{what} of each group and of everyone, with {forest.interval}s.",
        caption=f"{capitalised(forest.unit)}, {what.lower()} with {forest.interval}. {forest.foot}",
        width=8.2,
        height=0.9 + 0.32 * len(forest.lines),
        narrow_height=0.9 + 0.36 * len(forest.lines),
        draw=lambda figure: _draw(figure, forest),
        tables=tuple[Table, ...](mistakes_tables(results)[:1]),
    )


def _draw(figure: "Figure", forest: Forest) -> None:
    from fedminmax.report.style import FAINT, INK, PAPER, TONES, distinct

    axes = figure.subplots()
    plain_axes(axes, "x")
    axes.axvline(0.0, color=INK, linewidth=1.0)
    for place, line in enumerate(forest.lines):
        low, value, high = line.ends
        colour = TONES.get(line.tone, FAINT)
        axes.plot([low, high], [place, place], color=colour, lw=2.0, solid_capstyle="butt")
        marker = {"worse": "s", "better": "D"}.get(line.tone, "o")
        fill = PAPER if line.tone == "same" else colour
        axes.plot([value], [place], marker=marker, ms=6, color=colour, markerfacecolor=fill)
        text = f"{line.shown} ({line.interval}) {line.meaning}".rstrip()
        if not is_narrow(figure):
            axes.annotate(
                text, (1.02, place), xycoords=("axes fraction", "data"), va="center", fontsize=8
            )
    axes.axhline(len(forest.lines) - 1.5, color=INK, linewidth=0.8)
    names = distinct([line.name for line in forest.lines], 17 if is_narrow(figure) else 34)
    axes.set_yticks(range(len(forest.lines)), names)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(forest.lines) - 0.5, -0.5)
    axes.set_xlim(forest.low, forest.high)
    axes.set_xticks([tick for tick, _ in forest.ticks], [text for _, text in forest.ticks])
    axes.set_xlabel(forest.unit if not forest.standard else f"change, {forest.unit}")
