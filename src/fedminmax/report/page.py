"""The pages of `fedminmax report` and `fedminmax advise`, and the report's figures as files.

Each page is one self-contained HTML file. The report is made from run folders of `fedminmax train`.
Its first screen says what was predicted, for which groups, on which rows, when, and what the model
is for. Figures for papers are written as PNG and SVG, with text drawn as outlines so that no font
is missing.
"""

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from fedminmax.advice.counts import Advice
from fedminmax.config.messages import validated
from fedminmax.config.sections import ReportSection
from fedminmax.core.errors import InputError
from fedminmax.core.text import counted, listed
from fedminmax.report.advice_figure import groups_table, mixes_figure, mixes_of_run
from fedminmax.report.bars import risk_by_group_figure
from fedminmax.report.census import census_figure
from fedminmax.report.curves import curves_of, rounds_figure
from fedminmax.report.mistakes import mistakes, mistakes_fact, mistakes_table
from fedminmax.report.people import MISCLASSIFIED, people
from fedminmax.report.questions import Answer, could_be_better, too_small, what_would_help
from fedminmax.report.read_run import Run
from fedminmax.report.story import Fact, comparison, facts, story
from fedminmax.report.style import (
    ReportFigure,
    Table,
    figure_paths,
    inline_svg,
    save_figure,
    styled_figure,
)
from fedminmax.report.tables import measures_tables, settings_table
from fedminmax.report.text import interval_name, risk_meaning, risk_name, short
from fedminmax.report.tradeoff import trade_off_figure
from fedminmax.runs.advice_text import (
    ANY_PARTITION,
    COST_EXPLAINED,
    COST_HEADERS,
    after_training,
    answer,
    cost_cells,
    remedies,
)
from fedminmax.runs.measure import merged_groups_text, small_groups_text
from fedminmax.runs.privacy import privacy_lines
from fedminmax.runs.remarks import LOSS_NAMES, validation_text, verdict_of

NOT_STATED = "Not stated. Set it in the section [report] of the configuration."
MAX_NAMED = 6
MAX_CHARACTERS = 60
# Identifies our own pages among a user's other files.
GENERATOR = "fedminmax report"
ADVICE_GENERATOR = "fedminmax advise"
# The bytes that identify our own figures among a user's other files.
MARKS = {
    ".png": f"Software\0{GENERATOR}".encode(),
    ".svg": f"<dc:title>{GENERATOR}</dc:title>".encode(),
}


@dataclass(frozen=True)
class About:
    """A title, and named facts to know before reading any number."""

    title: str
    facts: tuple[tuple[str, str], ...]


def about(run: Run) -> About:
    """Describe this run; what users state themselves comes from its configuration."""
    results, census = run.chosen.results, run.census
    content = run.settings
    stated = _stated(content)
    kind = f"one of {_named(results.classes)}" if results.classes else "a number"
    train = sum(map(sum, census.train))
    trained = f"Trained on {counted(train, 'row')} of {counted(len(census.sites), 'site')}"
    facts = {
        "What is predicted": f"“{results.target}”, {kind}.",
        "For which groups": f"{_columns(content)}{counted(len(results.groups), 'group')}: "
        f"{_named(results.groups)}.",
        "On which rows": f"{trained} ({_named(census.sites)}); measured on "
        f"{counted(results.test.rows, 'other row')}, not used in training.",
        "When": results.finished,
        "Intended use": stated.intended_use or NOT_STATED,
        "Not for": stated.not_for or NOT_STATED,
    }
    return About(stated.title or f"Predicting “{results.target}”", tuple(facts.items()))


def _stated(content: Mapping[str, Any]) -> ReportSection:
    try:
        return validated(content.get("report", {}), ReportSection)
    except InputError:
        return ReportSection()


def _columns(content: Mapping[str, Any]) -> str:
    """Name the columns that define the groups, if the configuration has them."""
    section = content.get("groups")
    columns = section.get("columns") if isinstance(section, Mapping) else None
    if not isinstance(columns, list) or not columns:
        return ""
    return f"By {listed([f'“{column}”' for column in columns])}, "


def _named(names: tuple[str, ...]) -> str:
    """List the first few names."""
    shown = [short(name, MAX_CHARACTERS) for name in names[:MAX_NAMED]]
    if len(names) > MAX_NAMED:
        shown.append(f"{len(names) - MAX_NAMED:,} more")
    return listed(shown)


@dataclass(frozen=True)
class RunPart:
    """The page's content about one run."""

    name: str
    run: Run
    _: KW_ONLY
    people: str
    story: str
    small_groups: str
    facts: tuple[Fact, ...]
    mistakes: Table | None
    figures: tuple[ReportFigure, ...]
    questions: tuple[Answer, ...]
    measures: tuple[Table, ...]
    other_measures: tuple[Table, ...]
    settings: Table
    warnings: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Report:
    """The page's content."""

    about: tuple[About, ...]
    parts: tuple[RunPart, ...]
    trade_off: ReportFigure | None
    comparison: str | None
    warnings: tuple[str, ...]

    @property
    def figures(self) -> list[ReportFigure]:
        """All figures in the order of the page."""
        first = [self.trade_off] if self.trade_off else []
        return [*first, *chain.from_iterable(part.figures for part in self.parts)]


def build_report(runs: Sequence[Run]) -> Report:
    """Assemble the page's content."""
    several = len(runs) > 1
    parts = [
        _part(run, f"run-{number}" if several else "run") for number, run in enumerate(runs, 1)
    ]
    return Report(
        tuple(dict.fromkeys(map(about, runs))),
        tuple(parts),
        trade_off_figure(runs, "trade-off"),
        comparison(runs) if several else None,
        tuple(_incomparable(runs)),
    )


def render_report(report: Report, version: str) -> str:
    """Return the page as HTML."""
    results = report.parts[0].run.chosen.results
    return page_template("report.html").render(
        report=report,
        results=results,
        risk=risk_name(results),
        risk_meaning=risk_meaning(results),
        loss=LOSS_NAMES[results.loss],
        misclassified=MISCLASSIFIED,
        interval=interval_name(results),
        generator=GENERATOR,
        version=version,
        inline_svg=inline_svg,
    )


def page_template(name: str) -> Template:
    """Return a page's template; values are escaped."""
    return Environment(
        loader=PackageLoader("fedminmax.report", "html_page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    ).get_template(name)


def _part(run: Run, name: str) -> RunPart:
    models = [run.chosen, *([run.baseline] if run.baseline else [])]
    results = run.chosen.results
    from_baseline = run.baseline.results.warnings if run.baseline else ()
    not_converged = [verdict_of(model.results) for model in models if not model.results.converged]
    further = (validation_text(results), *privacy_lines(results))
    return RunPart(
        name,
        run,
        people=" ".join(text for text in (people(run), mistakes(run)) if text),
        story=" ".join([story(run), *(text for text in further if text)]),
        small_groups=" ".join(
            text
            for text in (
                small_groups_text(results.groups, results.test),
                merged_groups_text(results),
            )
            if text
        ),
        facts=(*facts(run), *mistakes_fact(run)),
        mistakes=mistakes_table(run),
        questions=(could_be_better(run), what_would_help(run), too_small(run)),
        figures=(
            risk_by_group_figure(run, f"{name}-risk-by-group"),
            rounds_figure(curves_of(run), f"{name}-rounds"),
            census_figure(run, f"{name}-census"),
            mixes_of_run(run, f"{name}-mixes"),
        ),
        measures=tuple(measures_tables(results)),
        other_measures=tuple(measures_tables(run.baseline.results)) if run.baseline else (),
        settings=settings_table(run),
        warnings=tuple(dict.fromkeys((*not_converged, *results.warnings, *from_baseline))),
        notes=(*after_training(results), *results.notes),
    )


def _incomparable(runs: Sequence[Run]) -> list[str]:
    """Warn about runs that were measured on other groups or rows than the first."""
    first = runs[0].chosen.results
    return [
        f"{run.label} was measured on other groups or test rows than {runs[0].label}: their "
        "risks are not comparable."
        for run in runs[1:]
        if run.chosen.results.groups != first.groups
        or [group.rows for group in run.chosen.results.risk.by_group]
        != [group.rows for group in first.risk.by_group]
    ]


def is_report(text: str) -> bool:
    """Whether a file's text is one of our pages."""
    return re.search(rf'<meta name="generator" content="{GENERATOR} ', text) is not None


def render_advice(advice: Advice, source: str, version: str) -> str:
    """Return the page about the census named ``source`` as HTML."""
    return page_template("advice.html").render(
        source=source,
        answer=answer(advice),
        any_partition=ANY_PARTITION,
        picture=mixes_figure(advice, "mixes"),
        groups=groups_table(advice),
        costs=Table(
            COST_EXPLAINED, COST_HEADERS, tuple(tuple(cost_cells(own)) for own in advice.costs)
        ),
        reveals=Table(
            "What a site reveals to the server, by method",
            ("a site reveals", "methods"),
            tuple((shown, ", ".join(keys)) for shown, keys in advice.reveals.items()),
        ),
        remedies=remedies(advice),
        generator=ADVICE_GENERATOR,
        version=version,
        inline_svg=inline_svg,
    )


@dataclass(frozen=True)
class Exported:
    """The files, and whether the font lacked some characters of names."""

    paths: tuple[Path, ...]
    lacks_glyphs: bool


def check_figures(figures: Sequence[ReportFigure], folder: Path, *, force: bool) -> None:
    """Refuse to replace files without ``force``, and files that are not our figures at all."""
    for one in figures:
        for path in figure_paths(folder / one.name):
            if path.is_dir() or (path.exists() and MARKS[path.suffix] not in path.read_bytes()):
                raise InputError(
                    f"{path} exists and is not a figure of a report; move it, or give another "
                    "folder with --figures"
                )
            if path.exists() and not force:
                raise InputError(
                    f"{path} already exists; give another folder with --figures, or --force to "
                    "replace it"
                )


def export_figures(figures: Sequence[ReportFigure], folder: Path) -> Exported:
    """Write each figure under its name."""
    paths: list[Path] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for one in figures:
            with styled_figure(one.width, one.height, as_text=False) as figure:
                one.draw(figure)
                paths += save_figure(figure, folder / one.name, GENERATOR)
    missing = [warning for warning in caught if "missing from font" in str(warning.message)]
    for warning in caught:
        if warning not in missing:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )
    return Exported(tuple(paths), bool(missing))
