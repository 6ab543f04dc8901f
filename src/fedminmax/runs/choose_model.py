"""Decide for ``kind = "auto"`` which of a configuration's models to train, by validation rows.

Every site sets a share of its training rows aside. Both models are trained on the others by the
configuration's method, and compared on the rows that were set aside (``metrics.model_choice``). The
chosen model is then trained on all rows. Everything follows from the configuration and the files,
so a run that continues decides the same again.
"""

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedminmax.core.losses import LOSSES_BY_NAME
from fedminmax.core.text import counted
from fedminmax.core.validation import SMALL_GROUPS, ValidationRisk
from fedminmax.data.tables.config import ModelChoice, TableConfig
from fedminmax.data.tables.load import FederatedTables, load_federated_tables
from fedminmax.metrics.model_choice import (
    DEFAULT_SHARE_FOR_CHOICE,
    ComparedModels,
    compare_models,
)
from fedminmax.runs.plan import federate, plan_table_runs
from fedminmax.runs.records import ComparedModel, ModelsOfRun
from fedminmax.runs.remarks import LOSS_NAMES
from fedminmax.training.train import Round, train


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A trained model: the losses, groups and playable groups of its validation rows."""

    losses: Tensor
    group: Tensor
    _: KW_ONLY
    rows: Tensor
    tables: FederatedTables
    rounds: int


@dataclass(frozen=True)
class ModelStep:
    """Rounds so far, and the configuration, which has one model in the last step, and why."""

    rounds: int
    config: TableConfig
    models: ModelsOfRun | None = None


def choose_model(config: TableConfig, device: str) -> Iterator[ModelStep]:
    """Yield each round of both trainings, and last the configuration with one model.

    If it has one already, that is the only step.
    """
    if not config.candidates:
        yield ModelStep(0, config)
        return
    tried: list[_Candidate] = []
    rounds = 0
    for model in config.candidates:
        for step in _tried(config, model, device):
            if isinstance(step, _Candidate):
                tried.append(step)
            else:
                rounds += 1
                yield ModelStep(rounds, config)
    plain, richer = tried
    compared = compare_models(plain.losses, richer.losses, plain.group, plain.rows)
    chosen = config.candidates[compared.prefers_richer]
    record = _record(config, chosen, compared, plain, richer)
    yield ModelStep(rounds, replace(config, model=chosen, candidates=()), record)


def _tried(
    config: TableConfig, model: ModelChoice, device: str
) -> Iterator[Round[Any] | _Candidate]:
    """Train one model without the rows that were set aside, and measure it on them, last."""
    share = config.validation or DEFAULT_SHARE_FOR_CHOICE
    tables = load_federated_tables(replace(config, model=model, candidates=(), validation=share))
    # Validation rows choose between the models, not between the rounds of one.
    method = replace(config.method, patience=None, iterate=None, baseline=None)
    own = replace(config, model=model, candidates=(), validation=0.0, method=method)
    federation = federate(own, replace(tables, validation=()), device)
    run, *_ = plan_table_runs(own, federation, Path())
    rounds = train(
        federation,
        run.method,
        rounds=run.rounds,
        seed=config.seed,
        participation=run.participation,
    )
    done = next(rounds)
    yield done
    for done in rounds:
        yield done
    trained, loss = done.model(run.iterate).cpu(), LOSSES_BY_NAME[model.loss]
    parts = [part.examples for part in tables.validation]
    with torch.no_grad():
        losses = torch.cat([loss(trained(part.x), part.y) for part in parts])
    group = torch.cat([part.group for part in parts])
    counts = torch.bincount(group, minlength=len(tables.group_names))
    rows = torch.where(federation.census.playable, counts, 0)
    yield _Candidate(losses, group, rows=rows, tables=tables, rounds=done.number)


def _record(
    config: TableConfig,
    chosen: ModelChoice,
    compared: ComparedModels,
    plain: _Candidate,
    richer: _Candidate,
) -> ModelsOfRun:
    unit = plain.tables.encoding.risk_unit

    def named(model: ModelChoice, risk: ValidationRisk, own: _Candidate) -> ComparedModel:
        pooled = risk.group == SMALL_GROUPS
        worst = "small groups" if pooled else own.tables.group_names[risk.group]
        return ComparedModel(
            kind=model.kind,
            risk=risk.risk * unit if risk.is_measured else None,
            worst_group=worst,
            rounds=own.rounds,
        )

    linear, spline = config.candidates
    return ModelsOfRun(
        chosen=chosen.kind,
        compared=(
            named(linear, compared.plain, plain),
            named(spline, compared.richer, richer),
        ),
        loss=chosen.loss,
        rows=len(plain.losses),
        standard_error=compared.error * unit,
    )


def choice_text(found: ModelsOfRun) -> str:
    """Say which model was chosen, and why."""
    plain, richer = found.compared
    start = f'kind = "auto" chose {found.chosen}: '
    rows = counted(found.rows, "validation row")
    if plain.risk is None or richer.risk is None:
        return f"{start}{rows} cannot tell {plain.kind} and {richer.kind} models apart"
    gain = plain.risk - richer.risk
    clear = gain > found.standard_error
    verdict = (
        f"lower by {gain:.4g}, more than" if clear else f"{gain:.4g} is its gain, not more than"
    )
    return (
        f"{start}on {rows} the worst group's risk ({LOSS_NAMES[found.loss]}) was "
        f"{plain.risk:.4g} with a {plain.kind} model ('{plain.worst_group}') and "
        f"{richer.risk:.4g} with a {richer.kind} model ('{richer.worst_group}'); {verdict} the "
        f"standard error of {found.standard_error:.2g}. The chosen model is trained on all "
        "training rows"
    )
