"""A comparison of methods on one data set: its runs, their failures, and its table.

A run that fails does not affect the others: the reason is stored next to their results. The table
has risks by group, parity, rounds and cost, over seeds.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedminmax.core.errors import DivergedError, InputError
from fedminmax.core.files import write_json
from fedminmax.core.messages import Reveals
from fedminmax.core.text import counted
from fedminmax.data.partition import Setting
from fedminmax.findings.convergence import marked
from fedminmax.methods.card import MethodCard
from fedminmax.report.style import new_figure, save_figure
from fedminmax.studies.finish import Tick, finish_runs, is_finished, run_folder
from fedminmax.studies.scores import GroupScores, RunResult, Spread, all_converged, spread
from fedminmax.studies.study import (
    CENTRALIZED,
    Length,
    RunPlan,
    Study,
    StudyConfig,
    StudyMethod,
    cost_of,
    validation_share,
)
from fedminmax.training.progress import check_reveals, initial_progress

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# What a method can raise: everything except a full disk or an interruption.
FAILURES = (DivergedError, InputError, RuntimeError, ValueError, ArithmeticError)
HEADERS = (
    "setting",
    "method",
    "worst",
    "best",
    "mean",
    "difference",
    "rounds",
    "gradients",
    "worst group",
    "parity difference",
    "opportunity difference",
    "model",
)


# They differ in both colour and shape (Okabe and Ito's colours).
MARKS = {"worst": ("#D55E00", "o"), "mean": ("#000000", "|"), "best": ("#0072B2", "D")}


@dataclass(frozen=True)
class Failure:
    """Which run failed, and why."""

    setting: str
    method: str
    fold: int
    reason: str


def write_failure(folder: Path, setting: str, method: str, fold: int, error: Exception) -> None:
    """Write why the run in this folder failed."""
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    write_json(folder / "failure.json", asdict(Failure(setting, method, fold, reason)))


def remove_failure(folder: Path) -> None:
    """Remove the failure record of a run that has finished after all."""
    (folder / "failure.json").unlink(missing_ok=True)


def read_failures(folder: Path) -> list[Failure]:
    """Read the failures of a comparison's folder."""
    return [_read(path) for path in sorted((folder / "runs").glob("*/failure.json"))]


def _read(path: Path) -> Failure:
    try:
        return Failure(**json.loads(path.read_text()))
    except (ValueError, TypeError) as error:
        raise InputError(f"{path} is damaged; remove it to retry that run") from error


@dataclass(frozen=True)
class Entry:
    """One method of a comparison, labelled by the text that chose it.

    ``only_in`` is the only setting that the method runs in; "" means all requested settings.
    """

    label: str
    card: MethodCard
    method: StudyMethod
    only_in: str = ""


def parse_entry(text: str, cards: Mapping[str, MethodCard], common: Mapping[str, object]) -> Entry:
    """Parse an entry such as ``qfedavg:q=5:epochs=3`` or ``fedminmax@centralized``."""
    label, at, only_in = text.partition("@")
    known = [*(setting.value for setting in Setting), CENTRALIZED]
    if at and only_in not in known:
        raise InputError(f"setting '{only_in}' in '{text}' is unknown; give {', '.join(known)}")
    key, *settings = label.split(":")
    if key not in cards:
        raise InputError(
            f"method '{key}' is unknown; choose from {', '.join(cards)} (see 'fedminmax methods')"
        )
    pairs = [setting.partition("=") for setting in settings]
    for name, equals, value in pairs:
        if not (name and equals and value):
            raise InputError(f"'{text}' was given; write options as {key}:name=value")
    own = {name: value for name, _, value in pairs}
    return Entry(label, cards[key], cards[key].build(common, own), only_in)


def plan_comparison(
    entries: Sequence[Entry],
    settings: Sequence[str],
    seeds: Sequence[int],
    length: Length,
    config: StudyConfig,
) -> list[RunPlan]:
    """List the runs: one whole table per seed."""
    lines = lines_of_table(entries, settings)
    return [
        RunPlan(
            setting,
            entry.method,
            seed,
            rounds=length.of(entry.method),
            cost=cost_of(entry.method, length, config.rows),
            label=entry.label,
            validation=validation_share(entry.method, network=config.network),
        )
        for seed in seeds
        for setting, entry in lines
    ]


def lines_of_table(entries: Sequence[Entry], settings: Sequence[str]) -> list[tuple[str, Entry]]:
    """Return each (setting, entry) once, line by line; settings of single entries come last."""
    every = dict.fromkeys([*settings, *(entry.only_in for entry in entries if entry.only_in)])
    lines = {
        (setting, entry.label): (setting, entry)
        for setting in every
        for entry in entries
        if (setting == entry.only_in if entry.only_in else setting in settings)
    }
    return list(lines.values())


def check_comparison(study: Study, plans: Sequence[RunPlan], shown: Reveals) -> dict[str, str]:
    """Initialise every kind of run; return for each method that cannot run the reason."""
    reasons: dict[str, str] = {}
    first = [plan for plan in plans if plan.fold == plans[0].fold]
    for rows in dict.fromkeys((plan.setting, plan.validation) for plan in first):
        alike = [plan for plan in first if (plan.setting, plan.validation) == rows]
        federation = study.federation(alike[0])
        for plan in alike:
            try:
                check_reveals(plan.method, shown)
                initial_progress(federation, plan.method)
            except InputError as error:
                reasons.setdefault(plan.title, str(error))
    return reasons


def finish_comparison(
    study: Study, plans: Sequence[RunPlan], folder: Path, seconds: float
) -> Iterator[Tick]:
    """Finish all unfinished runs; record a run that fails, and continue with the others."""
    deadline = time.monotonic() + seconds
    for number, plan in enumerate(plans):
        own = run_folder(folder, plan)
        try:
            for tick in finish_runs(study, [plan], folder, deadline - time.monotonic()):
                yield Tick(number, tick.round, tick.warning)
        except FAILURES as error:
            write_failure(own, plan.setting, plan.title, plan.fold, error)
            yield Tick(number, plan.rounds, f"{plan.setting} {plan.title} failed: {error}")
        if is_finished(plan, own):
            remove_failure(own)
        if time.monotonic() > deadline:
            return


@dataclass(frozen=True)
class ComparisonRow:
    """One method in one setting, over seeds; gaps of rates only if labels have two classes."""

    setting: str
    method: str
    _: KW_ONLY
    seeds: int
    worst: Spread
    best: Spread
    mean: Spread
    difference: Spread
    worst_group: str
    parity_difference: Spread | None
    opportunity_difference: Spread | None
    risks: dict[str, Spread]
    rounds: int
    gradient_evaluations: int
    model: str
    converged: bool


def summarise_comparison(
    results: Iterable[RunResult], settings: Sequence[str], methods: Sequence[str]
) -> list[ComparisonRow]:
    """Combine runs that differ only in their seed, in the given order.

    A method whose sites keep their own models has a second line for those.
    """
    runs: dict[tuple[str, str], list[RunResult]] = {}
    for result in results:
        runs.setdefault((result.setting, result.method), []).append(result)
    rows = []
    for setting in settings:
        for method in methods:
            own = runs.get((setting, method), [])
            if own:
                rows.append(_row(own, [run.shown_scores for run in own], own[0].shown_name))
            personal = [run.personal for run in own if run.personal]
            if personal:
                rows.append(_row(own, personal, "personal"))
    return rows


def _row(runs: list[RunResult], scores: list[GroupScores], model: str) -> ComparisonRow:
    first = runs[0]

    def over_seeds(value: Callable[[GroupScores], float]) -> Spread:
        return spread([value(one) for one in scores])

    risks = {
        name: spread([one.risks[number] for one in scores])
        for number, name in enumerate(first.groups)
    }
    two_classes = bool(scores[0].positive_rates)
    return ComparisonRow(
        setting=first.setting,
        method=first.method,
        seeds=len(runs),
        worst=over_seeds(lambda one: one.worst),
        best=over_seeds(lambda one: one.best),
        mean=over_seeds(lambda one: one.mean),
        difference=over_seeds(lambda one: one.difference),
        worst_group=max(risks, key=lambda name: risks[name].mean),
        parity_difference=over_seeds(lambda one: _range(one.positive_rates))
        if two_classes
        else None,
        opportunity_difference=over_seeds(lambda one: _range(one.true_positive_rates))
        if two_classes
        else None,
        risks=risks,
        rounds=min(run.rounds for run in runs),
        gradient_evaluations=first.gradient_evaluations,
        model=model,
        converged=all_converged(runs),
    )


def _range(values: Sequence[float]) -> float:
    return max(values) - min(values)


def comparison_cells(rows: Sequence[ComparisonRow]) -> list[tuple[str, ...]]:
    """Return the table's cells as text."""
    return [
        (
            row.setting,
            marked(row.method, converged=row.converged),
            *map(str, (row.worst, row.best, row.mean, row.difference)),
            f"{row.rounds:,}",
            f"{row.gradient_evaluations:.2g}",
            row.worst_group,
            *(
                "" if one is None else str(one)
                for one in (row.parity_difference, row.opportunity_difference)
            ),
            row.model,
        )
        for row in rows
    ]


def comparison_notes(failures: Sequence[str], seeds: int, missing: int) -> list[str]:
    """Explain the columns, and list what is not in the table."""
    notes = [
        (
            "Test Brier risk by group: worst, best, mean over groups, worst minus best. "
            "Gradients: evaluations of one row's gradient over all rounds. Parity difference: of "
            "the groups' rates of predictions 1, the highest minus the lowest; opportunity "
            "difference: the same among rows with label 1. Model: which iterate "
            "is shown; best: that of the round that validation rows chose; chosen: the method's "
            "own choice (for a mixture the mean over its members); personal: "
            "each site's own model on its share of the rows."
        )
    ]
    if seeds > 1:
        notes.append(
            f"Mean and deviation over {counted(seeds, 'seed')} (rows, partition, start, training)."
        )
    if missing:
        notes.append(
            f"{counted(missing, 'run is', 'runs are')} not finished; run the same command again to "
            "continue."
        )
    return [*notes, *failures]


def comparison_as_json(rows: Sequence[ComparisonRow]) -> list[dict[str, object]]:
    """Return the rows as plain values."""
    return [asdict(row) for row in rows]


def draw_comparison(rows: Sequence[ComparisonRow], stem: Path) -> list[Path]:
    """Draw a panel per setting: a line per method, from its best to its worst group.

    The mean over groups is marked on the line.
    """
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
