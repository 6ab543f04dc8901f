"""What a study is: its runs, and how one of them is set up and scored."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from fedminmax.data.partition import Setting, partition_by_setting
from fedminmax.federation.inprocess import InProcessFederation
from fedminmax.methods.method import AnyMethod, takes_one_step
from fedminmax.report.run_result import GroupScores

# A table mixes methods, and so types of state; each is only ever given its own.
StudyMethod = AnyMethod[Any]
# The setting of FedMinMax with one holder.
CENTRALIZED = "centralized"


@dataclass(frozen=True)
class RunPlan:
    """One run of a study.

    ``cost`` is in gradient evaluations, which its time is proportional to; test scores are
    recorded every ``rounds_between_tests`` rounds (0: at the end alone). ``label`` tells variants
    of a method apart; without one it is the method's name.
    """

    setting: str
    method: StudyMethod
    fold: int
    rounds: int
    cost: int
    rounds_between_tests: int = 0
    label: str = ""

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
class Selection:
    """Which of a study's runs a call is about, and to which round it takes them.

    ``local_rounds`` is for methods that train locally. The steps do not depend on the number of
    rounds, so a later call may take the same runs further.
    """

    settings: list[str]
    methods: list[str]
    folds: list[int]
    rounds: int
    local_rounds: int

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
    epochs: int,
    rounds_between_tests: int = 0,
) -> list[RunPlan]:
    """List the runs in the table's order, one whole table per fold.

    ``rounds_between_tests`` is for one-step methods; a round of local epochs is worth a test each,
    where there are tests on the way at all.
    """
    return [
        _plan(selection, (setting, fold), methods[name], rows, epochs, rounds_between_tests)
        for fold in selection.folds
        for setting, name in selection.table()
    ]


def _plan(
    selection: Selection,
    place: tuple[str, int],
    method: StudyMethod,
    rows: int,
    epochs: int,
    rounds_between_tests: int,
) -> RunPlan:
    one_step = takes_one_step(method)
    rounds = selection.rounds if one_step else selection.local_rounds
    cost = rounds * (1 if one_step else epochs) * rows
    between = rounds_between_tests if one_step else min(1, rounds_between_tests)
    setting, fold = place
    return RunPlan(setting, method, fold, rounds, cost, between)


def rows_of_holders(setting: str, group: Tensor, holders: int, seed: int) -> list[Tensor]:
    """Return each holder's row positions; in the centralized setting one holder has them all."""
    if setting == CENTRALIZED:
        return [torch.arange(len(group))]
    return partition_by_setting(Setting(setting), group, holders, seed)
