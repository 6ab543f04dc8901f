"""The runs of a configuration on tables that this process can read."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch

from fedminmax.core.convergence import (
    Convergence,
    judge_convergence,
    stopped_by_validation,
)
from fedminmax.core.iterates import Iterate
from fedminmax.core.losses import LOSSES_BY_NAME
from fedminmax.core.safe_rate import rounded_rate, safe_learning_rate
from fedminmax.data.tables.config import TableConfig
from fedminmax.data.tables.load import FederatedTables
from fedminmax.federation.planned_runs import planned_runs, rate_is_open, with_rate
from fedminmax.methods.card import MethodCard
from fedminmax.methods.catalogue import CARDS, goal_of
from fedminmax.report.round_records import RoundRecord
from fedminmax.report.run_folder_records import CensusFile, MethodOfRun, ValidationOfRun
from fedminmax.studies.study import StudyMethod

BASELINE_FOLDER = "baseline"
# In place of an iterate.
CHOSEN = "chosen by the method"


@dataclass(frozen=True)
class TableRun:
    """One run: its folder, its method and how far it goes."""

    folder: Path
    card: MethodCard
    method: StudyMethod
    rounds: int
    participation: float
    iterate: Iterate
    patience: int | None = None

    @property
    def options(self) -> dict[str, object]:
        """The method's settings by name, as they are used."""
        return {name: _plain(getattr(self.method, name)) for name in self.card.option_types}

    @property
    def options_that_matter(self) -> dict[str, object]:
        """The settings that decide a run's numbers: not those that say when to stop."""
        method: Any = self.method
        shown = {own.name for own in fields(method) if own.repr}
        return {name: value for name, value in self.options.items() if name in shown}

    @property
    def gap(self) -> float:
        """What may be left to gain when the run stops; 0 if it goes on up to its last round."""
        return float(getattr(self.method, "gap", 0.0))

    def trained_for(self, rounds: int) -> MethodOfRun:
        """Say what trained, as the results have it."""
        return MethodOfRun(
            key=self.card.key,
            name=self.method.name,
            options=self.options,
            rounds=rounds,
            participation=self.participation,
        )

    def judge(
        self,
        rounds: Sequence[RoundRecord],
        census: CensusFile,
        answer: str,
        validation: ValidationOfRun | None,
    ) -> Convergence:
        """Say whether these rounds converged; the answer is an iterate, or the method's choice."""
        rows = [sum(column) for column in zip(*census.train, strict=True)]
        iterate = None if answer == CHOSEN else self.iterate
        playable = [group not in census.small_groups for group in census.groups]
        left = rounds[-1].remaining if rounds else None
        found = judge_convergence(rounds, rows, goal_of(self.method), iterate, playable, left)
        if validation is None or not validation.exhausts(self.patience):
            return found
        return stopped_by_validation(found)


def plan_table_runs(config: TableConfig, tables: FederatedTables, folder: Path) -> list[TableRun]:
    """Return the configuration's runs with their folders: the method's, then the baseline's."""
    runs = planned_runs(config.method)
    if rate_is_open(runs):
        runs = with_rate(runs, _safe_rate(config, tables))
    folders = (folder, folder / BASELINE_FOLDER)
    return [
        TableRun(
            own,
            CARDS[run.method],
            run.build(),
            run.rounds,
            run.participation,
            config.iterate,
            config.patience,
        )
        for own, run in zip(folders, runs, strict=False)
    ]


def _safe_rate(config: TableConfig, tables: FederatedTables) -> str:
    parts = [part.examples for part in tables.train]
    rate = safe_learning_rate(
        LOSSES_BY_NAME[config.model.loss],
        torch.cat([part.x for part in parts]),
        torch.cat([part.group for part in parts]),
        linear=not config.model.hidden,
        ridge=config.model.ridge,
    )
    return rounded_rate(rate)


def _plain(value: Any) -> object:
    return value if isinstance(value, bool | int | float | str | None) else value.name.lower()
