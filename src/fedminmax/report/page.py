"""The pages of `fedminmax report` and `fedminmax advise`, each one self-contained HTML file.

The report is made from run folders of `fedminmax train`. Its first screen is what a board reads and
prints: the finding, three numbers, who gains and who loses. All else is behind closed questions.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import date
from itertools import chain
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from fedminmax.advice.counts import Advice
from fedminmax.config.messages import validated
from fedminmax.config.sections import ReportSection
from fedminmax.core.errors import InputError
from fedminmax.core.text import counted, listed
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
from fedminmax.findings.first_screen import FirstScreen
from fedminmax.report.advice_figure import mixes_figure
from fedminmax.report.details import Detail, details_of
from fedminmax.report.forest import Forest, forest_figure, forest_of
from fedminmax.report.read_run import Run
from fedminmax.report.style import ReportFigure, inline_svg, short
from fedminmax.report.tradeoff import comparison, trade_off_figure

NOT_STATED = "not stated"
MAX_CHARACTERS = 60
# Identifies our own pages and figures among a user's other files.
GENERATOR = "fedminmax report"
ADVICE_GENERATOR = "fedminmax advise"


@dataclass(frozen=True)
class About:
    """What was predicted, and the facts of one line: sites, records, groups, date, use."""

    title: str
    facts: tuple[str, ...]
    intended_use: str
    not_for: str


def about(run: Run) -> About:
    """Describe this run; what users state themselves comes from its configuration."""
    results, stated = run.chosen.results, _stated(run.settings)
    day = date.fromisoformat(results.finished)
    records = results.test.rows
    if not results.is_audit:
        records += sum(map(sum, run.census.train))
    facts = (
        counted(len(run.census.sites), "site"),
        f"{FEWER} records" if is_small(records) else counted(records, "record"),
        f"{counted(len(results.groups), 'group')}{_columns(run.settings)}",
        f"{day.day} {day:%b %Y}",
    )
    title = stated.title or f"Predicting “{results.target}”"
    return About(title, facts, stated.intended_use or NOT_STATED, stated.not_for or "")


def _stated(content: Mapping[str, Any]) -> ReportSection:
    section = content.get("report")
    try:
        return validated(section, ReportSection) if isinstance(section, dict) else ReportSection()
    except InputError:
        return ReportSection()


def _columns(content: Mapping[str, Any]) -> str:
    """Name the sensitive attributes, if the configuration has them."""
    section = content.get("groups")
    columns = section.get("columns") if isinstance(section, Mapping) else None
    if not isinstance(columns, list) or not columns:
        return ""
    return f" by {listed([short(str(column), MAX_CHARACTERS) for column in columns])}"


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


def page_template(name: str) -> Template:
    """Return a page's template; values are escaped."""
    return Environment(
        loader=PackageLoader("fedminmax.report", "html_page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    ).get_template(name)


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
