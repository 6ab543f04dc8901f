"""What a study is: its runs, and how one of them is set up and scored."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from fedminmax.core.iterates import Iterate
from fedminmax.core.validation import DEFAULT_SHARE_FOR_NETWORKS
from fedminmax.data.partition import Setting, partition_by_setting
from fedminmax.federation.inprocess import InProcessFederation
from fedminmax.methods.card import Pace
from fedminmax.methods.catalogue import pace_of
from fedminmax.methods.method import AnyMethod
from fedminmax.studies.scores import GroupScores

# A table mixes methods, and so types of state; each is only ever given its own.
StudyMethod = AnyMethod[Any]
# The setting of FedMinMax with one holder.
CENTRALIZED = "centralized"
# The fast methods settle in 10 to 100 rounds, or choose a round among them.
FAST_ROUNDS = 100


def papers_iterate(method: StudyMethod) -> Iterate:
    """Return what the method's paper returns: where runs answer with the tail, the average of all.

    >>> from fedminmax.methods.fedminmax import FedMinMax
    >>> papers_iterate(FedMinMax())
    <Iterate.AVERAGE: 'average'>
    """
    return Iterate.AVERAGE if method.output is Iterate.TAIL_AVERAGE else method.output


@dataclass(frozen=True)
class RunPlan:
    """One run of a study.

    ``cost`` is in gradient evaluations, which its time is proportional to; test scores are
    recorded every ``rounds_between_tests`` rounds (0: at the end alone). ``label`` tells variants
    of a method apart; without one it is the method's name. ``validation`` is the share of its rows
    that each holder sets aside to choose the round by.
    """

    setting: str
    method: StudyMethod
    fold: int
    rounds: int
    cost: int
    rounds_between_tests: int = 0
    label: str = ""
    validation: float = 0.0

    @property
    def title(self) -> str:
        """What tables call the run's method."""
        return self.label or self.method.name

    @property
    def key(self) -> str:
        """The run's folder name."""
        words = f"{self.setting} {self.title} fold {self.fold}"
        kept = (c if c.isalnum() or c == "." else "-" for c in words.lower())
        return "-".join(part for part in "".join(kept).split("-") if part)


class Study(Protocol):
    """One configuration of an experiment: what decides the numbers of all its runs."""

    def fold_seed(self, fold: int) -> int:
        """Return the seed of a fold's rows, partition, initialisation and training."""

    def federation(
        self, plan: RunPlan, precision: torch.dtype = torch.float32
    ) -> InProcessFederation:
        """Draw the fold's rows and model and hand the rows to the holders."""

    def scores(self, model: nn.Module) -> GroupScores:
        """Test a trained model."""


@dataclass(frozen=True)
class Length:
    """How far runs go: methods of one step per round, those that train locally, and fast ones.

    The steps do not depend on it, so a later call may take the same runs further.
    """

    rounds: int
    local_rounds: int
    fast_rounds: int = FAST_ROUNDS

    def of(self, method: StudyMethod) -> int:
        """Return the number of rounds of this method."""
        by_pace = {
            Pace.ONE_STEP: self.rounds,
            Pace.LOCAL_EPOCHS: self.local_rounds,
            Pace.LOOK_AHEAD: self.fast_rounds,
        }
        return by_pace[pace_of(method)]


@dataclass(frozen=True)
class RoundsBetweenTests:
    """How often runs are tested on the way; a round of local epochs is worth a test each."""

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
    """Which of a study's runs a call is about, and how far it takes them."""

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
    """List the runs in the table's order, one whole table per fold; None tests at the end alone."""
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


def cost_of(method: StudyMethod, length: Length, rows: int) -> int:
    """Return a run's gradient evaluations, about."""
    return length.of(method) * rows * int(getattr(method, "epochs", 1))


def validation_share(method: StudyMethod, *, network: bool) -> float:
    """Return the share of rows that choose the round: a fast method overfits a network fast.

    The papers' methods have none, and train on all rows.
    """
    fast = pace_of(method) is Pace.LOOK_AHEAD
    return DEFAULT_SHARE_FOR_NETWORKS if fast and network else 0.0


def rows_of_holders(setting: str, group: Tensor, holders: int, seed: int) -> list[Tensor]:
    """Return each holder's row positions; in the centralized setting one holder has them all."""
    if setting == CENTRALIZED:
        return [torch.arange(len(group))]
    return partition_by_setting(Setting(setting), group, holders, seed)
