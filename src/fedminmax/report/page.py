"""The pages of `fedminmax report` and `fedminmax advise`.

Each page is one self-contained HTML file. The report is made from run folders of `fedminmax train`.
Its first screen says what was predicted, for which groups, on which records, when, and what the
model is for.

The report's tables without a figure: every measure, every setting, records by site.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import chain
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from fedminmax.advice.counts import Advice
from fedminmax.config.messages import validated
from fedminmax.config.sections import ReportSection
from fedminmax.core.errors import InputError
from fedminmax.core.small_groups import MERGED_NAME
from fedminmax.core.text import counted, duration_text
from fedminmax.data.tables.census import CensusFile
from fedminmax.findings.advice import (
    ANY_PARTITION,
    QUESTION,
    answer,
    costs_table,
    groups_table,
    remedies,
    reveals_table,
)
from fedminmax.findings.findings import Findings
from fedminmax.findings.records import RISK, Results
from fedminmax.findings.tables import Table, metrics_table, mistakes_tables, parity_table
from fedminmax.findings.text import (
    LOSS_NAMES,
    MEANINGS,
    NOT_STATED,
    NOTHING,
    capitalised,
    interval_name,
    named,
    risk_name,
)
from fedminmax.findings.training import risk_with_error, short_convergence
from fedminmax.findings.verdict import RULE
from fedminmax.metrics.row_scores import FALSE_ALARMS, MISSED
from fedminmax.report.advice_figure import mixes_figure
from fedminmax.report.bars import risk_by_group_figure
from fedminmax.report.curves import curves_of, rounds_figure
from fedminmax.report.effects import EffectsPart, effects_part
from fedminmax.report.frontier import boundary_figure, frontier_figure
from fedminmax.report.questions import Answer, could_be_better, too_small, what_would_help
from fedminmax.report.read_run import Run
from fedminmax.report.style import ReportFigure, inline_svg, short
from fedminmax.report.tradeoff import comparison, trade_off_figure

MAX_CHARACTERS = 60
# Identifies our own pages and figures among a user's other files.
GENERATOR = "fedminmax report"
ADVICE_GENERATOR = "fedminmax advise"


@dataclass(frozen=True)
class About:
    """A title, and named facts to know before reading any number."""

    title: str
    facts: tuple[tuple[str, str], ...]


def about(run: Run) -> About:
    """Describe this run; what users state themselves comes from its configuration."""
    results, census = run.chosen.results, run.census
    stated = _stated(run.settings)
    kind = f"one of {_named(results.classes)}" if results.classes else "a number"
    trained = counted(sum(map(sum, census.train)), "record")
    sites = f"{counted(len(census.sites), 'site')} ({_named(census.sites)})"
    measured = counted(results.test.rows, "other record")
    on_records = f"Trained on {trained} of {sites}; measured on {measured}, not used in training."
    if results.is_audit:
        on_records = f"Measured on {counted(results.test.rows, 'record')} of {sites}."
    facts = {
        "What is predicted": f"“{results.target}”, {kind}.",
        "For which groups": f"{_columns(run.settings)}{counted(len(results.groups), 'group')}: "
        f"{_named(results.groups)}.",
        "On which records": on_records,
        "When": results.finished,
        "Intended use": stated.intended_use or f"{capitalised(NOT_STATED)}.",
        "Not for": stated.not_for or f"{capitalised(NOT_STATED)}.",
    }
    return About(stated.title or f"Predicting “{results.target}”", tuple(facts.items()))


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
    return f"By {named([str(column) for column in columns])}, "


def _named(names: Sequence[str]) -> str:
    return named([short(name, MAX_CHARACTERS) for name in names])


@dataclass(frozen=True)
class RunPart:
    """The page's content about one run."""

    name: str
    run: Run
    _: KW_ONLY
    found: Findings
    remarks: str
    mistakes: tuple[Table, ...]
    figures: tuple[ReportFigure, ...]
    effects: EffectsPart | None
    questions: tuple[Answer, ...]
    measures: tuple[Table, ...]
    other_measures: tuple[Table, ...]
    settings: Table
    counts: tuple[Table, ...]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def all_figures(self) -> list[ReportFigure]:
        """All figures in the order of the page."""
        effects = (*self.effects.shown, *self.effects.others) if self.effects else ()
        return [*self.figures, *effects]


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
        return [*first, *chain.from_iterable(part.all_figures for part in self.parts)]


def build_report(runs: Sequence[Run]) -> Report:
    """Assemble the page's content."""
    several = len(runs) > 1
    parts = [
        _part(run, f"run-{number}" if several else "run") for number, run in enumerate(runs, 1)
    ]
    return Report(
        tuple(dict.fromkeys(map(about, runs))),
        tuple(parts),
        trade_off_figure(runs, "trade-off") if several else None,
        comparison(runs) if several else None,
        tuple(_incomparable(runs)),
    )


def _part(run: Run, name: str) -> RunPart:
    results, found = run.chosen.results, run.findings
    baseline = run.baseline.results if run.baseline else None
    not_converged = [
        one.convergence
        for one in found.models
        if not (one.results.converged or one.results.is_audit)
    ]
    from_baseline = baseline.warnings if baseline else ()
    remarks = (found.small_groups, found.model.validation, *found.privacy)
    return RunPart(
        name,
        run,
        found=found,
        remarks=" ".join(text for text in remarks if text),
        mistakes=tuple(mistakes_tables(results)),
        questions=(could_be_better(run), what_would_help(run), too_small(run)),
        figures=(
            risk_by_group_figure(run, f"{name}-risk-by-group"),
            *_frontier_figures(run, name),
            *([] if results.is_audit else [rounds_figure(curves_of(run), f"{name}-rounds")]),
        ),
        effects=effects_part(run, name),
        measures=tuple(measures_tables(results)),
        other_measures=tuple(measures_tables(baseline)) if baseline else (),
        settings=settings_table([one.results for one in found.models]),
        counts=tuple(counts_tables(run.census)),
        warnings=tuple(dict.fromkeys((*not_converged, *results.warnings, *from_baseline))),
        notes=(*found.after_training, *results.notes),
    )


def _frontier_figures(run: Run, name: str) -> list[ReportFigure]:
    """Return the picture of mean and worst group: of the models found, or what is proved."""
    if run.frontier is not None:
        return [frontier_figure(run.frontier, f"{name}-frontier")]
    plain = run.baseline.results if run.baseline else None
    proved = boundary_figure(run.chosen.results, plain, f"{name}-boundary")
    return [] if proved is None else [proved]


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
    results = report.parts[0].run.chosen.results
    return page_template("report.html").render(
        report=report,
        results=results,
        risk=capitalised(risk_name(results)),
        risk_meaning=MEANINGS[results.task],
        loss=LOSS_NAMES[results.loss],
        interval=interval_name(results.test),
        rule=RULE,
        generator=GENERATOR,
        version=version,
        inline_svg=inline_svg,
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
        remedies=remedies(advice),
        generator=ADVICE_GENERATOR,
        version=version,
        inline_svg=inline_svg,
    )


# What a model gets wrong; the risk, which training minimises, comes first.
MAX_COLUMNS = 4
ERRORS = ("accuracy", "absolute_error", MISSED, FALSE_ALARMS)


def measures_tables(results: Results) -> list[Table]:
    """Return the model's scores and, if sites keep their own models, the scores of these."""
    name = results.method.name
    tables = _measures(results, name)
    if results.personal and results.personal.metrics:
        own = results.model_copy(update={"test": results.personal, "site_parity": None})
        tables += _measures(own, f"{name}, personal models, each on the test records of its site")
    if results.merged and results.merged.test.metrics:
        merged = {
            "groups": results.merged.groups,
            "test": results.merged.test,
            "site_parity": None,
        }
        own = results.model_copy(update=merged)
        tables += _measures(own, f"{name}, each of the {MERGED_NAME}")
    return tables


def _measures(results: Results, label: str) -> list[Table]:
    """Return every metric in tables that fit on a screen, errors before the rest."""
    first = [name for name in (RISK, *ERRORS) if name in results.test.metrics]
    others = [name for name in results.test.metrics if name not in first]
    parts = {f"{label}: errors by group": first, f"{label}: other measures by group": others}
    if len(first) + len(others) <= MAX_COLUMNS:
        parts = {f"{label}: every measure by group": [*first, *others]}
    tables = [
        metrics_table(results, results.test, title, names)
        for title, names in parts.items()
        if names
    ]
    between = parity_table(results, results.test)
    return tables if between is None else [*tables, between]


def counts_tables(census: CensusFile) -> list[Table]:
    """Return the training and test records by site and group."""
    tests = dict(zip(census.sites, census.test, strict=True)) | census.other_tests
    return [
        _counts("Training", dict(zip(census.sites, census.train, strict=True)), census.groups),
        _counts("Test", tests, census.groups),
    ]


def _counts(part: str, counts: Mapping[str, Sequence[int]], groups: Sequence[str]) -> Table:
    totals = [sum(column) for column in zip(*counts.values(), strict=True)]
    return Table(
        f"{part} records by site and group",
        ("Site", *groups, "all groups"),
        tuple(
            (site, *(f"{count:,}" for count in line), f"{sum(line):,}")
            for site, line in [*counts.items(), ("all sites", totals)]
        ),
    )


def settings_table(models: Sequence[Results]) -> Table:
    """Return each model's settings and costs."""
    columns = [_settings(results) for results in models]
    names = dict.fromkeys(name for column in columns for name in column)
    return Table(
        "Settings and costs",
        ("Setting", *(results.method.name for results in models)),
        tuple((name, *(column.get(name, NOTHING) for column in columns)) for name in names),
    )


def _settings(results: Results) -> dict[str, str]:
    return {
        "task": results.task,
        "target": results.target,
        **{f"model {name}": _plain(value) for name, value in results.model},
        "loss": results.loss,
        "method": results.method.key,
        "rounds": f"{results.method.rounds:,}",
        "participation": f"{results.method.participation:g}",
        "converged": short_convergence(results.convergence),
        "seed": str(results.seed),
        "returned model": results.iterate.replace("_", " "),
        **_validation(results),
        **{f"option {name}": _plain(value) for name, value in results.method.options.items()},
        "gradient evaluations": f"{results.gradient_evaluations:,}",
        "time": duration_text(results.seconds),
    }


def _validation(results: Results) -> dict[str, str]:
    validation = results.validation
    if validation is None:
        return {}
    chosen, last = validation.chosen, validation.last
    return {
        "validation records": f"{sum(validation.rows):,}",
        "patience": _plain(validation.patience),
        "round chosen by validation": NOTHING if chosen is None else f"{chosen.round:,}",
        "its validation risk": NOTHING if chosen is None else risk_with_error(chosen),
        "validation risk at the end": NOTHING if last is None else risk_with_error(last),
    }


def _plain(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={_plain(part)}" for key, part in value.items()) or "none"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(_plain(part) for part in value) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None or value == "" else str(value)
