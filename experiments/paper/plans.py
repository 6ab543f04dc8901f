"""What the paper's two experiments share: methods and their settings, the runs, words on both.

A call covers a selection of the table's lines; hyperparameters are those of the paper's Table 3.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fedminmax import __version__
from fedminmax.cli.comparison import Call, show_ticks
from fedminmax.methods.afl import AFL
from fedminmax.methods.card import Pace, pace_of
from fedminmax.methods.fedavg import FedAvg
from fedminmax.methods.fedminmax import FedMinMax
from fedminmax.methods.look_ahead import AFLFast, FedAvgFast, FedMinMaxFast
from fedminmax.runs.folder import claim_folder
from fedminmax.studies.finish import finish_runs
from fedminmax.studies.study import (
    CENTRALIZED,
    Length,
    RunPlan,
    Study,
    StudyMethod,
    cost_of,
    validation_share,
)
from fedminmax.training.progress import initial_progress


@dataclass(frozen=True)
class PaperSettings:
    """The hyperparameters of the paper's methods; ``min_weight`` is the least weight of a group."""

    learning_rate: float
    adversary_rate: float
    min_weight: float
    epochs: int
    batch_size: int


def methods_of_paper(
    settings: PaperSettings, others: Mapping[str, StudyMethod] | None = None
) -> dict[str, StudyMethod]:
    """Return the methods of a table by their names on the command line, in the paper's order."""
    rate, adversary = settings.learning_rate, settings.adversary_rate
    return {
        "afl": AFL(rate, adversary),
        "fedavg": FedAvg(rate, settings.epochs, batch_size=settings.batch_size),
        **(others or {}),
        "fedminmax": FedMinMax(rate, adversary, min_weight=settings.min_weight),
        "afl-fast": AFLFast(),
        "fedavg-fast": FedAvgFast(),
        "fedminmax-fast": FedMinMaxFast(settings.min_weight),
        CENTRALIZED: FedMinMax(rate, adversary, min_weight=settings.min_weight),
    }


@dataclass(frozen=True)
class RoundsBetweenTests:
    """How often runs are tested during training; after every round of local epochs."""

    one_step: int
    fast: int

    def of(self, method: StudyMethod) -> int:
        """Return the number of rounds between two tests of this method."""
        by_pace = {
            Pace.ONE_STEP: self.one_step,
            Pace.LOCAL_EPOCHS: 1,
            Pace.LOOK_AHEAD: self.fast,
        }
        return by_pace[pace_of(method)]


@dataclass(frozen=True)
class Selection:
    """Which of a study's runs a call covers, and their number of rounds."""

    settings: list[str]
    methods: list[str]
    folds: list[int]
    length: Length

    def table(self) -> list[tuple[str, str]]:
        """Return (setting, method) line by line; the centralized setting has its own method."""
        return [
            (setting, name)
            for setting in self.settings
            for name in self.methods
            if (name == CENTRALIZED) == (setting == CENTRALIZED)
        ]


def plan_runs(
    selection: Selection,
    methods: Mapping[str, StudyMethod],
    *,
    rows: int,
    network: bool,
    between_tests: RoundsBetweenTests | None = None,
) -> list[RunPlan]:
    """List the runs in the table's order, fold by fold; by default they are tested at the end."""
    return [
        RunPlan(
            setting,
            methods[name],
            fold,
            rounds=selection.length.of(methods[name]),
            cost=cost_of(methods[name], selection.length, rows),
            rounds_between_tests=between_tests.of(methods[name]) if between_tests else 0,
            validation=validation_share(methods[name], network=network),
        )
        for fold in selection.folds
        for setting, name in selection.table()
    ]


# Each fast method, and the paper's method with the same objective.
SAME_OBJECTIVE = {"AFLFast": "AFL", "FedAvgFast": "FedAvg", "FedMinMaxFast": "FedMinMax"}


def with_fast_lines(lines: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Insert each fast method after the paper's method with the same objective.

    >>> with_fast_lines([("ESG", "FedMinMax"), ("ESG", "q-FedAvg")])
    [('ESG', 'FedMinMax'), ('ESG', 'FedMinMaxFast'), ('ESG', 'q-FedAvg')]
    """
    fast = {paper: name for name, paper in SAME_OBJECTIVE.items()}
    return [
        (setting, name)
        for setting, method in lines
        for name in (method, fast.get(method))
        if name is not None
    ]


def notes_on_fast(methods: Iterable[str]) -> list[str]:
    """Explain what the fast methods among these minimise, and how."""
    present = dict.fromkeys(methods)
    over = {"AFLFast": "sites", "FedAvgFast": "all rows together", "FedMinMaxFast": "groups"}
    parts = [
        f"{name} has {paper}'s objective, over {over[name]}"
        for name, paper in SAME_OBJECTIVE.items()
        if name in present
    ]
    return [f"{'; '.join(parts)}: solved by the fast server."] if parts else []


def shown_text(name: str, rounds: str, chosen_rounds: Sequence[int]) -> str:
    """Describe which model of a run a table shows.

    >>> shown_text("tail average", "9 rounds", ())
    'tail average iterate after 9 rounds'
    >>> shown_text("best", "9 rounds", (7, 8))
    'model that validation rows chose from 9 rounds (round 7, 8)'
    """
    if chosen_rounds:
        numbers = ", ".join(map(str, chosen_rounds))
        return f"model that validation rows chose from {rounds} (round {numbers})"
    if name == "chosen":
        return f"model with the lowest training risk from {rounds}"
    return f"{name} iterate after {rounds}"


def open_study(
    study: Study, plans: Sequence[RunPlan], config: Mapping[str, object], call: Call
) -> None:
    """Initialise every kind of run, so that mistakes are found; claim the folder or refuse it."""
    for plan in plans:
        if plan.fold == plans[0].fold:
            initial_progress(study.federation(plan), plan.method)
    claim_folder(call.folder, {"version": __version__} | dict(config))


def finish_with_bars(title: str, study: Study, plans: Sequence[RunPlan], call: Call) -> int:
    """Finish the runs, or as many as the budget allows; return how many are left."""
    seconds = math.inf if call.budget is None else call.budget
    ticks = finish_runs(study, plans, call.folder, seconds)
    return show_ticks(title, ticks, plans, call)
