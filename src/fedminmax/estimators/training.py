"""From checked arrays to a trained model: what both estimators have in common."""

import time
from dataclasses import dataclass, replace
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedminmax.core.certificate import Certificate
from fedminmax.core.convergence import Convergence, judge_convergence, stopped_by_validation
from fedminmax.core.devices import usable_device
from fedminmax.core.losses import LOSSES_BY_NAME, Loss
from fedminmax.core.models import checked_widths, linear_or_mlp
from fedminmax.core.randomness import Purpose, torch_seeded
from fedminmax.core.safe_rate import safe_learning_rate
from fedminmax.core.small_groups import minimum_to_play, playable_groups
from fedminmax.core.validation import ValidationRisk
from fedminmax.estimators.rows import RowPlaces, Rows
from fedminmax.estimators.settings import (
    TrainingSettings,
    iterate_of,
    method_of,
    patience_of,
    ridge_of,
    rounds_of,
    small_rule_of,
)
from fedminmax.federation.inprocess import InProcessFederation
from fedminmax.federation.resumable import HistoryPoint
from fedminmax.federation.train import Round, is_out_of_patience, train
from fedminmax.methods.card import Weights, card_of
from fedminmax.methods.catalogue import goal_of
from fedminmax.methods.method import AnyMethod

ROWS_AT_ONCE = 8192


@dataclass(frozen=True, eq=False)
class Trained:
    """What a training leaves: the model on the CPU, and results by group, under their names."""

    model: nn.Module
    groups: tuple[str, ...]
    small_groups: tuple[str, ...]
    risks_by_group: dict[str, float]
    group_weights: dict[str, float]
    history: list[HistoryPoint]
    convergence: Convergence
    certificate: Certificate | None
    validation: ValidationRisk | None


def train_rows(
    settings: TrainingSettings,
    rows: Rows,
    loss_name: str,
    outputs: int,
    seed: int,
    *,
    risk_unit: float = 1.0,
) -> Trained:
    """Train a model with this many outputs by this loss; 1 output is regression.

    ``risk_unit`` is what a risk of 1 is worth in the user's units.
    """
    device, loss = usable_device(settings.device), LOSSES_BY_NAME[loss_name]
    ridge, patience = ridge_of(settings, loss_name), patience_of(settings)
    places, groups = rows.places, rows.places.groups
    x, y, group = (torch.tensor(part, device=device) for part in (rows.x, rows.y, groups.numbers))
    with torch_seeded(seed, Purpose.INITIALISATION):
        model = linear_or_mlp(x.shape[1], outputs, settings.hidden).to(device, x.dtype)
    federation = InProcessFederation(
        model,
        loss,
        [(x[own], y[own], group[own]) for own in places.by_holder(places.train)],
        group_names=groups.names,
        validation=[(x[own], y[own], group[own]) for own in places.by_holder(places.set_aside)]
        if places.set_aside.any()
        else 0.0,
        ridge=ridge,
        minimum_group=settings.minimum_group,
        small=small_rule_of(settings),
    )
    is_linear = not checked_widths(settings.hidden)
    kept = torch.from_numpy(places.train).to(device)
    rate = safe_learning_rate(loss, x[kept], group[kept], linear=is_linear, ridge=ridge)
    method = method_of(settings, rate)
    started = time.monotonic()
    rounds = train(federation, method, rounds=rounds_of(settings), seed=seed, patience=patience)
    done = next(rounds)
    history = [_history_point(done, started, risk_unit)]
    for done in rounds:
        history.append(_history_point(done, started, risk_unit))
    which = iterate_of(settings)
    trained = done.model(which).cpu()
    outputs_of_rows = outputs_of(trained, rows.x[places.train])
    risks = _risks(loss, outputs_of_rows, torch.tensor(rows.y[places.train]), places)
    names = groups.names
    least = minimum_to_play(settings.minimum_group, small_rule_of(settings))
    playable = playable_groups(places.training_counts.tolist(), least)
    convergence = judge_convergence(
        history,
        federation.census.counts.sum(dim=0).tolist(),
        goal_of(method),
        which or done.answer,
        federation.census.playable.tolist(),
        # What the method knows is of the model that it chose.
        left=done.remaining if which is None else None,
    )
    proved = done.certificate if which is None else None
    # AFL's weights, for one, are its holders': those are no weights of groups.
    weights = done.weights.tolist() if _weighs_groups(method) else []
    return Trained(
        trained,
        names,
        tuple(name for name, plays in zip(names, playable, strict=True) if not plays),
        dict(zip(names, (risks * risk_unit).tolist(), strict=True)),
        dict(zip(federation.group_names, weights, strict=False)),
        history,
        stopped_by_validation(convergence)
        if is_out_of_patience(done.progress, patience)
        else convergence,
        proved and proved.in_units(risk_unit),
        _in_unit(done.chosen, risk_unit),
    )


def outputs_of(model: nn.Module, x: NDArray[Any]) -> Tensor:
    """Return the model's outputs on the CPU, in its precision, some rows at a time."""
    like = next(model.parameters())
    with torch.no_grad():
        parts = torch.split(torch.tensor(x, dtype=like.dtype), ROWS_AT_ONCE)
        return torch.cat([model(part) for part in parts])


def _history_point(done: Round[Any], started: float, risk_unit: float) -> HistoryPoint:
    seconds = round(time.monotonic() - started, 3)
    risks = tuple((done.risks * risk_unit).tolist())
    return HistoryPoint(done.number, seconds, risks, tuple(done.weights.tolist()))


def _in_unit(chosen: ValidationRisk | None, unit: float) -> ValidationRisk | None:
    if chosen is None:
        return None
    return replace(chosen, risk=chosen.risk * unit, standard_error=chosen.standard_error * unit)


def _weighs_groups(method: AnyMethod[Any]) -> bool:
    """Tell whether the method's adversary, if it has one, weighs groups."""
    card = card_of(method)
    return card is not None and card.weights is Weights.GROUPS


def _risks(loss: Loss, outputs: Tensor, y: Tensor, places: RowPlaces) -> Tensor:
    """Return each group's mean loss over training rows."""
    losses = loss(outputs, y).double()
    group = torch.from_numpy(places.groups.numbers[places.train])
    sums = torch.bincount(group, losses, minlength=len(places.groups.names))
    return sums / torch.from_numpy(places.training_counts)
