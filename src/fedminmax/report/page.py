"""The pages of `fedminmax report` and `fedminmax advise`, each one self-contained HTML file.

The report is made from run folders of `fedminmax train`. Its first screen is what a board reads and
prints: the finding, three numbers, who gains and who loses. All else is behind closed questions.
"""

import re
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import date
from itertools import chain
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from fedminmax.advice.counts import MOSTLY, Advice
from fedminmax.core.text import counted, listed, percent
from fedminmax.findings.advice import (
    ANY_PARTITION,
    NOTHING_STANDS_OUT,
    QUESTION,
    answer,
    costs_table,
    groups_table,
    remedies,
    reveals_table,
)
from fedminmax.findings.disclosure import FEWER, is_small
from fedminmax.findings.findings import FirstScreen
from fedminmax.findings.verdict import EVERYONE
from fedminmax.report.details import Detail, details_of
from fedminmax.report.forest import Forest, forest_figure, forest_of
from fedminmax.report.frontier import comparison, trade_off_figure
from fedminmax.report.read_run import Run
from fedminmax.report.style import (
    BLUE,
    FAINT,
    HATCH,
    INK,
    ReportFigure,
    distinct,
    inline_svg,
    is_narrow,
    plain_axes,
    short,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NOT_STATED = "not stated"
MAX_CHARACTERS = 60
# Identifies our own pages and figures among a user's other files.
GENERATOR = "fedminmax report"
ADVICE_GENERATOR = "fedminmax advise"
MAX_GROUPS = 30


@dataclass(frozen=True)
class About:
    """What was predicted, and the facts of one line: sites, records, groups, date, use."""

    title: str
    facts: tuple[str, ...]
    intended_use: str
    not_for: str


def about(run: Run) -> About:
    """Describe this run; what users state themselves comes from its configuration."""
    results, stated = run.chosen.results, run.stated
    day = date.fromisoformat(results.finished)
    records = results.test.rows
    if not results.is_audit:
        records += sum(map(sum, run.census.train))
    columns = [short(name, MAX_CHARACTERS) for name in run.attributes]
    by = f" by {listed(columns)}" if columns else ""
    facts = (
        counted(len(run.census.sites), "site"),
        f"{FEWER} records" if is_small(records) else counted(records, "record"),
        f"{counted(len(results.groups), 'group')}{by}",
        f"{day.day} {day:%b %Y}",
    )
    title = stated.title or f"Predicting “{results.target}”"
    return About(title, facts, stated.intended_use or NOT_STATED, stated.not_for or "")


@dataclass(frozen=True)
class RunPart:
    """The page's content about one run: its first screen, and what is behind it."""

    name: str
    run: Run
    _: KW_ONLY
    about: About
    screen: FirstScreen
    forest: Forest | None
    details: tuple[Detail, ...]

    @property
    def figures(self) -> list[ReportFigure]:
        """All figures in the order of the page, after the first screen's as a figure."""
        first = forest_figure(self.run.chosen.results, f"{self.name}-change-by-group")
        shown = [figure for own in self.details for figure in (*own.figures, *own.others)]
        return [*([first] if first else []), *shown]


@dataclass(frozen=True)
class Report:
    """The page's content."""

    parts: tuple[RunPart, ...]
    trade_off: ReportFigure | None
    comparison: str | None
    warnings: tuple[str, ...]

    @property
    def figures(self) -> list[ReportFigure]:
        """All figures in the order of the page."""
        first = [self.trade_off] if self.trade_off else []
        return [*first, *chain.from_iterable(part.figures for part in self.parts)]

    @property
    def title(self) -> str:
        """The finding, in a sentence."""
        if self.comparison is None:
            return self.parts[0].screen.title
        first, dot, _ = self.comparison.partition(". ")
        return first + dot.strip()


def build_report(runs: Sequence[Run], *, appendix: bool = False) -> Report:
    """Assemble the page's content; ``appendix`` adds what only research needs."""
    several = len(runs) > 1
    names = [f"run-{number}" if several else "run" for number in range(1, len(runs) + 1)]
    return Report(
        tuple(_part(run, name, appendix=appendix) for run, name in zip(runs, names, strict=True)),
        trade_off_figure(runs, "trade-off") if several else None,
        comparison(runs) if several else None,
        tuple(_incomparable(runs)),
    )


def _part(run: Run, name: str, *, appendix: bool) -> RunPart:
    return RunPart(
        name,
        run,
        about=about(run),
        screen=run.findings.screen,
        forest=forest_of(run.chosen.results),
        details=details_of(run, name, appendix=appendix),
    )


def _incomparable(runs: Sequence[Run]) -> list[str]:
    """Warn about runs that were measured on other groups or records than the first."""
    first = runs[0].chosen.results
    return [
        f"{run.label} was measured on other groups or test records than {runs[0].label}: their "
        "risks are not comparable."
        for run in runs[1:]
        if run.chosen.results.groups != first.groups
        or [group.rows for group in run.chosen.results.risk.by_group]
        != [group.rows for group in first.risk.by_group]
    ]


def template_environment() -> Environment:
    """Return the templates of this room; values are escaped."""
    return Environment(
        loader=PackageLoader("fedminmax.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def page_template(name: str) -> Template:
    """Return a page's template."""
    return template_environment().get_template(name)


def render_report(report: Report, version: str) -> str:
    """Return the page as HTML."""
    return page_template("report.html").render(
        report=report, generator=GENERATOR, version=version, inline_svg=inline_svg
    )


def is_report(text: str) -> bool:
    """Whether a file's text is one of our pages."""
    return re.search(rf'<meta name="generator" content="{GENERATOR} ', text) is not None


def render_advice(advice: Advice, source: str, version: str) -> str:
    """Return the page about the census named ``source`` as HTML."""
    return page_template("advice.html").render(
        source=source,
        question=QUESTION,
        answer=answer(advice),
        any_partition=ANY_PARTITION,
        picture=mixes_figure(advice, "mixes"),
        groups=groups_table(advice),
        costs=costs_table(advice),
        reveals=reveals_table(advice),
        remedies=remedies(advice) or [NOTHING_STANDS_OUT],
        generator=ADVICE_GENERATOR,
        version=version,
        inline_svg=inline_svg,
    )


def mixes_figure(advice: Advice, name: str) -> ReportFigure:
    """Describe the figure: the most weight that each group can get."""
    height = 1.5 + 0.42 * min(len(advice.groups), MAX_GROUPS)
    hidden = len(advice.groups) - MAX_GROUPS
    caption = (
        "Bars: each group's largest share of any site's records. A method that is minimax over "
        "sites cannot give the group more weight than that; hatched bars end below one half. The "
        "cross is the group's share of all records."
    )
    if hidden > 0:
        caption += f" {counted(hidden, 'group')} with longer bars: only in the table."
    return ReportFigure(
        name,
        "What weights over sites can reach",
        description=f"Horizontal bars of {counted(len(advice.groups), 'group')} and "
        f"{counted(len(advice.sites), 'site')}. {answer(advice)}",
        caption=caption,
        width=8.2,
        height=height,
        narrow_height=height + 0.7,
        draw=lambda figure: _bars(figure, advice),
        tables=(groups_table(advice),),
    )


def _bars(figure: "Figure", advice: Advice) -> None:
    axes = figure.subplots()
    plain_axes(axes, "x")
    groups = advice.groups
    order = sorted(range(len(groups)), key=lambda a: groups[a].largest_share)[:MAX_GROUPS]
    for line, place in enumerate(order):
        group = groups[place]
        axes.barh(
            line,
            100 * group.largest_share,
            height=0.6,
            color=BLUE,
            alpha=0.75,
            label="most at one site" if line == 0 else None,
            hatch=None if group.largest_share > MOSTLY else HATCH,
        )
        axes.text(101, line, percent(group.largest_share), va="center", fontsize=8)
    shares = [100 * groups[place].share for place in order]
    axes.scatter(shares, range(len(order)), s=40, marker="x", color=INK, zorder=4, label=EVERYONE)
    figure.legend(loc="outside upper left", ncols=1 if is_narrow(figure) else 3, frameon=False)
    names = distinct([groups[place].name for place in order], 17 if is_narrow(figure) else 34)
    axes.axvline(100, color=FAINT, linewidth=0.8)
    axes.set_yticks(range(len(order)), names)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(order) - 0.4, -0.6)
    axes.set_xlim(-2, 118)
    axes.set_xticks(range(0, 101, 50 if is_narrow(figure) else 25))
    axes.set_xlabel("share in % of a site's records")
