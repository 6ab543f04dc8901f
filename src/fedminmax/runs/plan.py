"""Plan the runs of a configuration on tables that this process can read.

These are the method's run and, if there is one, the baseline's. Both train on the same federation,
which is built from the encoded tables. The identity of the runs is also defined here: everything
that determines their numbers, apart from the method.
"""

import hashlib
import warnings
from collections.abc import Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from torch import Tensor

from fedminmax.config.planned_runs import PlannedRun, needs_learning_rate, planned_runs, with_rate
from fedminmax.config.read import TableConfig
from fedminmax.config.sections import FRONTIER
from fedminmax.core.additive.model import AdditiveModel
from fedminmax.core.convergence import Convergence, judge_convergence, stopped_by_validation
from fedminmax.core.iterates import Iterate
from fedminmax.core.losses import LOSSES_BY_NAME
from fedminmax.core.randomness import Purpose, torch_seeded
from fedminmax.core.workspace import usable_device
from fedminmax.data.tables.census import CensusFile
from fedminmax.data.tables.encode import initial_model
from fedminmax.data.tables.encoding_json import encoding_as_json
from fedminmax.data.tables.load import FederatedTables, OwnedExamples
from fedminmax.findings.records import MethodOfRun, Results, ValidationOfRun
from fedminmax.methods.card import MethodCard, goal_of
from fedminmax.methods.catalogue import CARDS
from fedminmax.methods.method import AnyMethod
from fedminmax.runs.folder import BASELINE_FOLDER, finished_results, read_results
from fedminmax.training.additive_class import (
    AdditiveClass,
    choose_class,
    class_structure,
    encoding_of_class,
)
from fedminmax.training.round_record import RoundRecord
from fedminmax.training.simulation import Simulation

# Used in place of an iterate's name.
CHOSEN = "chosen by the method"


@dataclass(frozen=True)
class TableRun:
    """One run: its folder, its method and its number of rounds."""

    folder: Path
    card: MethodCard
    method: AnyMethod[Any]
    _: KW_ONLY
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
        """The settings that determine a run's numbers, without those that say when to stop."""
        method: Any = self.method
        shown = {own.name for own in fields(method) if own.repr}
        return {name: value for name, value in self.options.items() if name in shown}

    @property
    def optimality_gap(self) -> float:
        """The relative gap at which the run stops; 0 if it runs to its last round."""
        return float(getattr(self.method, "optimality_gap", 0.0))

    def trained_for(self, rounds: int) -> MethodOfRun:
        """Return the method's record for the results."""
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
        """Judge whether these rounds converged; ``answer`` is an iterate or the method's choice."""
        rows = [sum(column) for column in zip(*census.train, strict=True)]
        iterate = None if answer == CHOSEN else self.iterate
        included = [group not in census.small_groups for group in census.groups]
        left = rounds[-1].remaining if rounds else None
        found = judge_convergence(
            rounds, rows, goal_of(self.method), answer=iterate, included=included, left=left
        )
        if validation is None or not validation.exhausts(self.patience):
            return found
        return stopped_by_validation(found)


def plan_table_runs(config: TableConfig, federation: Simulation, folder: Path) -> list[TableRun]:
    """Return the configuration's runs with their folders: the method's, then the baseline's."""
    runs = planned_runs(config.method)
    # Under a privacy guarantee it depends on noise, and is chosen when the run starts.
    if needs_learning_rate(runs) and config.privacy is None:
        runs = with_rate(runs, repr(federation.safe_learning_rate))
    return table_runs(runs, config, folder)


def table_runs(planned: Sequence[PlannedRun], config: TableConfig, folder: Path) -> list[TableRun]:
    """Return these runs with their folders."""
    return [
        TableRun(
            own,
            CARDS[run.method],
            run.build(),
            rounds=run.rounds,
            participation=run.participation,
            iterate=config.iterate,
            patience=config.patience,
        )
        for own, run in zip((folder, folder / BASELINE_FOLDER), planned, strict=False)
    ]


def _plain(value: Any) -> object:
    return value if isinstance(value, bool | int | float | str | None) else value.name.lower()


def federate(
    config: TableConfig,
    tables: FederatedTables,
    device: str,
    noise_key: bytes | None = None,
    prepared: AdditiveClass | None = None,
) -> Simulation:
    """Build the federation of the sites' encoded rows and the initial model.

    An additive model starts at the plain mean fit of its class.
    """
    encoding = tables.encoding
    with torch_seeded(config.seed, Purpose.INITIALISATION):
        model = initial_model(encoding, config.model.hidden, config.model.ridge)
    if prepared is not None and isinstance(model, AdditiveModel):
        model.load_effects(prepared.effects, prepared.intercepts)
    model.to(usable_device(device))
    validation = [_given(part) for part in tables.validation]
    with warnings.catch_warnings():
        # A site whose rows were all skipped is already named in the notes.
        warnings.filterwarnings("ignore", message="site .* has no rows")
        return Simulation(
            model,
            LOSSES_BY_NAME[config.model.loss],
            [_given(part) for part in tables.train],
            group_names=tables.group_names,
            validation=validation,
            ridge=config.model.ridge,
            minimum_group=config.schema.minimum_included,
            seed=config.seed,
            privacy=config.promise,
            noise_key=noise_key,
        )


def _given(part: OwnedExamples) -> tuple[Tensor, Tensor, Tensor]:
    return part.examples.x, part.examples.y, part.examples.group


def with_class(
    config: TableConfig, tables: FederatedTables
) -> tuple[FederatedTables, AdditiveClass | None]:
    """Choose the smoothing and the pairs of an additive model, or find a network's inputs."""
    encoding = tables.encoding
    if not encoding.is_coded:
        return tables, None
    chosen = choose_class(
        [part.examples for part in tables.train],
        class_structure(encoding.outputs, encoding.blocks, config.model.class_ridge),
        encoding.blocks,
        max_pairs=config.model.pairs,
        smoothness=config.model.smoothness,
    )
    network = not config.model.is_additive
    return tables.with_pairs(encoding_of_class(encoding, chosen, network=network)), chosen


def identity(config: TableConfig, tables: FederatedTables, device: str) -> dict[str, object]:
    """Return what determines the numbers of all runs on these tables, except the method."""
    schema, promise = config.schema, config.promise
    return {
        "data": {
            "target": schema.target.column,
            "classes": list(schema.target.classes),
            "sites": list(tables.sites),
            "held_out": config.held_out,
            "validation": config.validation,
            "digest": _digest(tables),
        },
        "features": list(tables.encoding.names),
        "groups": list(tables.group_names),
        "small_groups": list(tables.encoding.small_group_names),
        "model": {
            "kind": config.model.kind,
            "hidden": list(config.model.hidden),
            "loss": config.model.loss,
            "ridge": config.model.ridge,
        },
        "seed": config.seed,
        "device": device,
        # With its number of rounds.
        "privacy": asdict(promise) | {"unit": promise.unit.value} if promise else None,
    }


def _digest(tables: FederatedTables) -> str:
    """Return a short digest of these encoded rows, and of how they are encoded.

    In another unit, a column has the same encoded numbers.
    """
    found = hashlib.sha256(encoding_as_json(tables.encoding).encode())
    for part in (*tables.train, *tables.validation, *tables.test):
        for tensor in (part.examples.x, part.examples.y, part.examples.group):
            found.update(tensor.contiguous().numpy().data)
    return found.hexdigest()[:16]


@dataclass(frozen=True, eq=False)
class TableTraining:
    """The runs of a configuration over the same tables: the method's, then the baseline's."""

    config: TableConfig
    runs: tuple[TableRun, ...]
    _: KW_ONLY
    tables: FederatedTables = field(repr=False)
    federation: Simulation
    device: str
    noise_key: bytes | None = field(default=None, repr=False)

    @property
    def is_finished(self) -> bool:
        """Whether all runs are finished."""
        return all(is_finished(run) for run in self.runs)

    @property
    def results(self) -> list[Results]:
        """The results of the finished runs, the method's first."""
        return [finished_results(run.folder) for run in self.runs if is_finished(run)]


def is_finished(run: TableRun, *, certified: bool = False) -> bool:
    """Whether the run has all its rounds, or met its stopping rule, and is proved if required."""
    results = read_results(run.folder)
    proof = results.proof if results else None
    if certified and not (proof and proof.is_of_groups):
        return False
    if results is None or results.method.rounds >= run.rounds:
        return results is not None
    if results.method.options.get(FRONTIER):
        return True
    reached = (
        run.optimality_gap > 0
        and results.gap_left is not None
        and results.gap_left <= run.optimality_gap
    )
    validation = results.validation
    return reached or (validation is not None and validation.exhausts(run.patience))
