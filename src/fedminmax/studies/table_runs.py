"""The runs of a configuration on tables: the method, and a baseline that differs in its goal alone.

Where the configuration leaves the learning rate open, a method of one step per round takes the
largest one that is safe for these features, rounded down to two digits. The baseline takes the same
learning rate, steps, rounds and iterate, so that what differs is what it minimises.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_DOWN, Context
from pathlib import Path
from typing import Any

import torch

from fedminmax.core.iterates import Iterate
from fedminmax.core.losses import LOSSES_BY_NAME
from fedminmax.data.tables.config import TableConfig
from fedminmax.data.tables.load import FederatedTables
from fedminmax.estimators.safe_rate import safe_learning_rate
from fedminmax.methods.card import MethodCard, Pace
from fedminmax.methods.catalogue import CARDS
from fedminmax.studies.study import StudyMethod

BASELINE_FOLDER = "baseline"


@dataclass(frozen=True)
class TableRun:
    """One run: its folder, its method and how far it goes."""

    folder: Path
    card: MethodCard
    method: StudyMethod
    rounds: int
    participation: float
    iterate: Iterate

    @property
    def options(self) -> dict[str, object]:
        """The method's settings by name, as they are used."""
        return {name: _plain(getattr(self.method, name)) for name in self.card.option_types}


def plan_table_runs(config: TableConfig, tables: FederatedTables, folder: Path) -> list[TableRun]:
    """Return the method's run, and the baseline's unless there is to be none, or it is the same."""
    choice = config.method
    card = CARDS[choice.name]
    method = card.build({}, _with_rate(config, tables, card, choice.options))
    run = TableRun(folder, card, method, choice.rounds, choice.participation, choice.iterate)
    if choice.baseline is None or choice.baseline == choice.name:
        return [run]
    return [run, _baseline(run, CARDS[choice.baseline])]


def _with_rate(
    config: TableConfig, tables: FederatedTables, card: MethodCard, options: Mapping[str, str]
) -> dict[str, str]:
    """Return the options with a learning rate, if the method has one that was left open."""
    given = dict(options)
    if "learning_rate" in given or card.pace is not Pace.ONE_STEP:
        return given
    parts = [part.examples for part in tables.train]
    rate = safe_learning_rate(
        LOSSES_BY_NAME[config.model.loss],
        torch.cat([part.x for part in parts]),
        torch.cat([part.group for part in parts]),
        linear=not config.model.hidden,
    )
    # Two digits: the same whatever the order in which the rows were added up.
    rounded = Context(prec=2, rounding=ROUND_DOWN).create_decimal(rate)
    return given | {"learning_rate": str(rounded)}


def _baseline(run: TableRun, card: MethodCard) -> TableRun:
    common: dict[str, Any] = {
        name: getattr(run.method, name)
        for name in ("learning_rate", "epochs", "batch_size")
        if name in run.card.option_types
    }
    rounds = run.rounds
    if run.card.pace is Pace.ONE_STEP:
        common |= {"epochs": 1, "batch_size": None}
    elif card.pace is Pace.ONE_STEP:
        rounds *= int(common.get("epochs", 1))
    method = card.build(common)
    folder = run.folder / BASELINE_FOLDER
    return TableRun(folder, card, method, rounds, run.participation, run.iterate)


def _plain(value: Any) -> object:
    return value if isinstance(value, bool | int | float | str | None) else value.name.lower()
