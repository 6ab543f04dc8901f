"""The report: one HTML file that needs nothing else, from run folders of `fedminmax train`."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from fedminmax.report.advice_of_run import after_words, mixes_of_run
from fedminmax.report.certificate_words import certificate_words
from fedminmax.report.convergence_words import verdict
from fedminmax.report.html_about import About, about
from fedminmax.report.html_bars import risk_by_group_figure
from fedminmax.report.html_census import census_figure
from fedminmax.report.html_curves import rounds_figure
from fedminmax.report.html_figure import ReportFigure, Table
from fedminmax.report.html_people import MISJUDGED, people
from fedminmax.report.html_read_run import Run
from fedminmax.report.html_story import Fact, comparison, facts, story
from fedminmax.report.html_svg import inline_svg
from fedminmax.report.html_tables import measures_tables, settings_table
from fedminmax.report.html_tradeoff import trade_off_figure
from fedminmax.report.html_words import interval_name, risk_meaning, risk_name
from fedminmax.report.run_folder_records import Results
from fedminmax.report.table_metrics import merged_words, small_groups_words
from fedminmax.report.validation_words import validation_words

# Tells our own pages from a user's other files.
GENERATOR = "fedminmax report"


@dataclass(frozen=True)
class RunPart:
    """What the page says of one run."""

    name: str
    run: Run
    people: str
    story: str
    small_groups: str
    facts: tuple[Fact, ...]
    figures: tuple[ReportFigure, ...]
    measures: tuple[Table, ...]
    settings: Table
    warnings: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Report:
    """All that the page shows."""

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
    """Put together what the page shows."""
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
    """Write the page."""
    results = report.parts[0].run.chosen.results
    return page_template("report.html").render(
        report=report,
        results=results,
        risk=risk_name(results),
        risk_meaning=risk_meaning(results),
        misjudged=MISJUDGED,
        interval=interval_name(results),
        generator=GENERATOR,
        version=version,
        inline_svg=inline_svg,
    )


def page_template(name: str) -> Template:
    """Return a page to be filled in; what is filled in is escaped."""
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
    unconverged = [
        verdict(model.results.method.name, model.results.convergence)
        for model in models
        if not model.results.converged
    ]
    further = (certificate_words(results), validation_words(results))
    return RunPart(
        name,
        run,
        people(run),
        " ".join([story(run), *(words for words in further if words)]),
        " ".join(
            words
            for words in (small_groups_words(results.groups, results.test), merged_words(results))
            if words
        ),
        tuple(facts(run)),
        (
            risk_by_group_figure(run, f"{name}-risk-by-group"),
            rounds_figure(run, f"{name}-rounds"),
            census_figure(run, f"{name}-census"),
            mixes_of_run(run, f"{name}-mixes"),
        ),
        tuple(chain.from_iterable(measures_tables(model.results) for model in models)),
        settings_table(run),
        tuple(
            dict.fromkeys(
                (*unconverged, *_old_intervals(results), *results.warnings, *from_baseline)
            )
        ),
        (*after_words(results), *results.notes),
    )


def _old_intervals(results: Results) -> list[str]:
    """Warn of intervals of earlier versions."""
    if results.test.min_rows:
        return []
    name = results.method.name
    return [f"{name} was measured by an earlier version, whose intervals are too narrow."]


def _incomparable(runs: Sequence[Run]) -> list[str]:
    """Warn of runs that were measured on other groups or rows than the first."""
    first = runs[0].chosen.results
    return [
        f"{run.label} was measured on other groups or test rows than {runs[0].label}: their "
        "risks are not of the same people."
        for run in runs[1:]
        if run.chosen.results.groups != first.groups
        or [group.rows for group in run.chosen.results.risk.by_group]
        != [group.rows for group in first.risk.by_group]
    ]


def is_report(text: str) -> bool:
    """Whether a file's text is a page of ours."""
    return re.search(rf'<meta name="generator" content="{GENERATOR} ', text) is not None
