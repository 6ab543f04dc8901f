"""What is behind the first screen: closed questions, each with an answer in its line."""

from dataclasses import KW_ONLY, dataclass

from fedminmax import __version__
from fedminmax.core.small_groups import MERGED_NAME
from fedminmax.core.text import counted, first_few, listed, percent
from fedminmax.findings.advice import group_weights, what_would_help
from fedminmax.findings.disclosure import (
    LEAST,
    NO_GUARANTEE,
    merged_groups_text,
    publishable,
    remarks,
    what_the_server_sees,
)
from fedminmax.findings.findings import harm_text
from fedminmax.findings.records import RISK, Change, Results
from fedminmax.findings.tables import (
    Table,
    groups_table,
    metrics_table,
    mistakes_tables,
    models_table,
    parity_table,
    personal_table,
)
from fedminmax.findings.text import (
    LOSS_NAMES,
    MEANINGS,
    capitalised,
    interval_name,
    metric_name,
    risk_name,
)
from fedminmax.findings.training import (
    ABOUT_CERTIFICATES,
    own_risks_table,
    own_risks_text,
    why_not_certified,
)
from fedminmax.findings.verdict import (
    RULE,
    kinds_of,
    mistakes_of,
)
from fedminmax.methods.catalogue import CARDS
from fedminmax.report.curves import curves_of, rounds_figure
from fedminmax.report.effects import effects_part
from fedminmax.report.frontier import boundary_figure, frontier_figure, trade_off_figure
from fedminmax.report.read_run import Run
from fedminmax.report.settings import (
    Download,
    changed_settings,
    configuration_file,
    measures_file,
    settings_table,
)
from fedminmax.report.style import ReportFigure

MAX_NAMED = 3
# A weight that would round to nothing is not named.
MIN_WEIGHT = 0.005
PASSED_ON = (
    "This page may be passed on: it contains no record, no path, and no count of records from 1 "
    f"to {LEAST - 1}. Keep the run folder to yourself: it contains exact counts."
)


@dataclass(frozen=True)
class Detail:
    """A question, its answer in a line, and what the answer rests on."""

    name: str
    question: str
    answer: str
    _: KW_ONLY
    texts: tuple[str, ...] = ()
    points: tuple[str, ...] = ()
    figures: tuple[ReportFigure, ...] = ()
    others: tuple[ReportFigure, ...] = ()
    tables: tuple[Table, ...] = ()
    downloads: tuple[Download, ...] = ()


def details_of(run: Run, name: str, *, appendix: bool) -> tuple[Detail, ...]:
    """Return a run's details; those of research only with ``appendix``."""
    parts = [
        _mistakes(run),
        _frontier(run, name),
        _effects(run, name),
        _better(run),
        _certainty(run),
        _measures(run),
        _training(run, name),
        _sizes(run),
        _privacy(run),
        _settings(run),
        _appendix(run, name) if appendix else None,
    ]
    return tuple(part for part in parts if part is not None)


def _mistakes(run: Run) -> Detail | None:
    results = run.chosen.results
    kinds = kinds_of(results)[1:]
    if results.change is None or not kinds:
        return None
    rates = [own for kind in kinds for own in mistakes_of(results, kind) if own and own.is_clear]
    rates.sort(key=lambda own: -abs(own.value))
    answer = "No error rate clearly changed for any group."
    if rates:
        said = [_rate_text(results, own) for own in rates[:MAX_NAMED]]
        left = len(rates) - len(said)
        more = f", and {counted(left, 'further change')}" if left else ""
        answer = f"{capitalised('; '.join(said))}{more}."
    tables = tuple(mistakes_tables(results)[1:])
    return Detail("mistakes", "Which mistakes changed?", answer, tables=tables)


def _rate_text(results: Results, change: Change) -> str:
    text = harm_text(results, change)
    if change.value > 0:
        return text
    return text.replace("more ", "fewer ", 1).replace("did worse", "did better")


def _frontier(run: Run, name: str) -> Detail | None:
    if run.frontier is not None:
        figure: ReportFigure | None = frontier_figure(run.frontier, f"{name}-frontier")
        models = counted(len(run.frontier.points), "model")
        answer = (
            f"{models} from standard to minimax; number {run.frontier.recommended} is recommended."
        )
    else:
        plain = run.baseline.results if run.baseline else None
        figure = boundary_figure(run.chosen.results, plain, f"{name}-boundary")
        answer = "No model can pass a certified limit; fedminmax frontier finds models along it."
    if figure is None:
        return None
    return Detail("frontier", "What would a compromise cost?", answer, figures=(figure,))


def _effects(run: Run, name: str) -> Detail | None:
    effects = effects_part(run, name)
    if effects is None:
        return None
    names = [f"“{line[0]}”" for line in effects.importance.lines[:MAX_NAMED]]
    answer = f"Most of all {listed(names)}." if names else "Nothing but a constant."
    return Detail(
        "effects",
        "What does the model use?",
        answer,
        texts=(effects.introduction,),
        figures=effects.shown,
        others=effects.others,
        tables=(effects.importance,),
    )


def _better(run: Run) -> Detail:
    results, found = run.chosen.results, run.findings
    proof, own_risks = results.proof, own_risks_table(results)
    size = run.section("groups").get("minimum_size")
    least = size if isinstance(size, int) else 0
    about = ABOUT_CERTIFICATES if proof and proof.is_of_groups else why_not_certified(results)
    return Detail(
        "better",
        "Could another model do better?",
        found.could_be_better,
        texts=(about, own_risks_text(results), "What would help, the most important first:"),
        points=tuple(what_would_help(results, run.chosen.rounds, run.census, least)),
        tables=(own_risks,) if own_risks else (),
    )


def _certainty(run: Run) -> Detail:
    results = run.chosen.results
    interval, change = interval_name(results.test), results.change
    answer = f"{interval}s of each value; one split of the records, one seed."
    texts = []
    if change is not None:
        at_once = counted(change.comparisons, "comparison")
        answer = f"{interval}s for {at_once} at once, paired by record; one split, one seed."
        texts.append(f"The rule of the verdict: {RULE}")
    texts.append(
        f"The {interval}s show how far a value would move with other test records of the same "
        "groups. They do not cover other training records or another seed: fedminmax train --seeds "
        "5 shows that spread. This page makes no claim about groups that were not named, about "
        "other measures, or about how predictions are used."
    )
    if merged := merged_groups_text(results):
        texts.append(merged)
    return Detail("certainty", "How sure is this?", answer, texts=tuple(texts))


def _measures(run: Run) -> Detail:
    results = run.chosen.results
    names = [metric_name(metric, results) for metric in results.test.metrics]
    tables = list(models_table(results, run.baseline.results if run.baseline else None))
    if results.merged and results.merged.test.metrics:
        own = results.model_copy(update={"groups": results.merged.groups, "change": None})
        title = f"Each of the {MERGED_NAME}"
        tables.append(metrics_table(own, results.merged.test, title, [RISK]))
    if between := parity_table(results, results.test):
        tables.append(between)
    if results.personal and results.personal.metrics:
        tables.append(personal_table(results, results.personal))
    meaning = (
        f"{capitalised(risk_name(results))}: {MEANINGS[results.task]}. Intervals are in the file. "
        "A group with fewer than ten test records has no values."
    )
    return Detail(
        "measures",
        "All measures by group",
        f"{capitalised(first_few(names, 6))}. With a CSV file.",
        texts=(meaning,),
        tables=tuple(tables),
        downloads=(measures_file(run),),
    )


def _training(run: Run, name: str) -> Detail | None:
    results, found = run.chosen.results, run.findings
    if results.is_audit:
        return None
    rounds = counted(results.method.rounds, "round")
    state = {True: "converged", False: "not converged", None: "convergence hidden by noise"}
    answer = f"{results.method.name}: {rounds}, {state[results.converged]}.{_trained_for(run)}"
    texts = [text for one in found.models for text in (one.convergence, one.validation) if text]
    if results.loss not in ("brier", "squared_error"):
        texts.append(
            f"The picture shows {LOSS_NAMES[results.loss]}, which training minimises; results on "
            f"test records are given in another measure, the {risk_name(results)}."
        )
    return Detail(
        "training",
        "Training",
        answer,
        texts=tuple(texts),
        points=tuple(remarks(results)),
        figures=(rounds_figure(curves_of(run), f"{name}-rounds"),),
    )


def _trained_for(run: Run) -> str:
    """Name the groups that the model was trained for."""
    heaviest = sorted(
        (
            (weight, name)
            for name, weight in group_weights(
                run.chosen.rounds[-1], run.chosen.results.groups
            ).items()
        ),
        reverse=True,
    )
    named = [f"{percent(weight)} “{name}”" for weight, name in heaviest if weight >= MIN_WEIGHT]
    return f" Weight of groups: {first_few(named, MAX_NAMED, 'others')}." if named else ""


def _sizes(run: Run) -> Detail:
    results, census = run.chosen.results, run.census
    table, notes = groups_table(results, census)
    trained = publishable([sum(line) for line in census.train])
    tested = publishable([sum(line) for line in census.test])
    sites = Table(
        "Records by site",
        ("site", "training records", "test records"),
        tuple(zip(census.sites, trained.cells, tested.cells, strict=True)),
    )
    notes += [
        own.note(census.sites, what)
        for own, what in ((trained, "training record"), (tested, "test record"))
        if own.hidden
    ]
    records = counted(trained.total or 0, "training record")
    if results.is_audit:
        records = counted(results.test.rows, "record")
    sites_of = counted(len(census.sites), "site")
    return Detail(
        "sizes",
        "How large are groups and sites?",
        f"{records} of {sites_of}; counts below {LEAST} are not shown.",
        texts=tuple(notes),
        tables=(table, sites),
    )


def _privacy(run: Run) -> Detail:
    results, found = run.chosen.results, run.findings
    if results.is_audit:
        where = "The model was applied to records in one place."
    else:
        card = CARDS.get(results.method.key)
        where = what_the_server_sees(results, card.reveals if card else "its replies")
    guarantee = "No differential privacy."
    if results.privacy is not None:
        guarantee = (
            f"Differential privacy with epsilon {results.privacy.epsilon:g}, delta "
            f"{results.privacy.delta:g}."
        )
    at_once = "One process read all files." if results.sites is None else "Records stayed at sites."
    return Detail(
        "privacy",
        "Privacy and data handling",
        f"{at_once} {guarantee}",
        texts=(where, *(found.privacy or (NO_GUARANTEE,)), PASSED_ON),
    )


def _settings(run: Run) -> Detail:
    results, changed = run.chosen.results, changed_settings(run)
    differ = counted(len(changed.lines), "setting differs", "settings differ")
    differ = f"{differ} from the defaults" if changed.lines else "all settings are the defaults"
    return Detail(
        "settings",
        "Settings",
        f"fedminmax {__version__}, seed {results.seed}; {differ}.",
        tables=(changed,) if changed.lines else (),
        downloads=(configuration_file(run),) if run.settings else (),
    )


def _appendix(run: Run, name: str) -> Detail:
    found = run.findings
    one = trade_off_figure([run], f"{name}-trade-off")
    return Detail(
        "appendix",
        "Research appendix",
        "Certificate, weights and bytes in full, all settings, mean against worst group.",
        texts=tuple(own.certificate for own in found.models if own.certificate)
        + found.after_training,
        figures=(one,) if one else (),
        tables=(settings_table([own.results for own in found.models]),),
    )
