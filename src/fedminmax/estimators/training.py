"""Train on checked arrays: what both estimators have in common.

Each row has features, a target, a group and a site, and is used for training or for validation.
Features are scaled before training (``Scaling``).

Additive models behind ``fit``: how rows are coded, where training starts, what pulls a score.

The class of models, which is how strongly each column is smoothed and which pairs of columns are
in, is chosen first, by the plain mean fit on all training rows (``training.additive_class``). The
method then starts from that fit.
"""

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedminmax.core.additive.effects import centred_effects
from fedminmax.core.additive.model import AdditiveModel
from fedminmax.core.certificate import Certificate
from fedminmax.core.convergence import Convergence, judge_convergence, stopped_by_validation
from fedminmax.core.exact_sums import exact_sums
from fedminmax.core.examples import Examples
from fedminmax.core.linear_structure import LinearStructure
from fedminmax.core.losses import LOSSES_BY_NAME, Loss
from fedminmax.core.models import linear_or_mlp
from fedminmax.core.randomness import Purpose, torch_seeded
from fedminmax.core.small_groups import included_groups, minimum_included
from fedminmax.core.validation import ValidationRisk
from fedminmax.core.workspace import usable_device
from fedminmax.data.frames import RowGroups, group_rows, number_values
from fedminmax.data.partition import split_strata
from fedminmax.estimators.coding import TableCodes
from fedminmax.estimators.settings import (
    TrainingSettings,
    iterate_of,
    method_of,
    patience_of,
    ridge_of,
    rounds_of,
    small_rule_of,
)
from fedminmax.methods.card import Weights, card_of, goal_of
from fedminmax.methods.method import AnyMethod
from fedminmax.training.additive_class import choose_class
from fedminmax.training.checkpoint import resume_run
from fedminmax.training.round_record import RoundRecord
from fedminmax.training.simulation import Simulation
from fedminmax.training.train import is_out_of_patience

ROWS_AT_ONCE = 8192


@dataclass(frozen=True, eq=False)
class RowPlaces:
    """Each row's group and site, numbered from 0, and whether it is held out for validation."""

    groups: RowGroups
    sites: NDArray[np.int64]
    set_aside: NDArray[np.bool_]

    @property
    def train(self) -> NDArray[np.bool_]:
        """Which rows are trained on."""
        return ~self.set_aside

    @property
    def training_counts(self) -> NDArray[np.int64]:
        """Training rows of each group."""
        return np.bincount(self.groups.numbers[self.train], minlength=len(self.groups.names))

    def by_site(self, rows: NDArray[np.bool_]) -> Iterator[torch.Tensor]:
        """Return each site's positions among these rows, in the order of the rows."""
        own = np.flatnonzero(rows)
        order = own[np.argsort(self.sites[own], kind="stable")]
        counts = np.bincount(self.sites[own], minlength=int(self.sites.max()) + 1)
        for positions in np.split(order, np.cumsum(counts)[:-1]):
            yield torch.from_numpy(positions)


@dataclass(frozen=True, eq=False)
class Rows:
    """All rows: scaled features or codes, targets, and their groups and sites.

    ``start`` is the additive model to begin with.
    """

    x: NDArray[Any]
    y: NDArray[Any]
    places: RowPlaces
    start: AdditiveModel | None = None


def place_rows(
    labels: NDArray[Any], *, sensitive_features: Any, sites: Any, validation: float, seed: int
) -> RowPlaces:
    """Find groups and sites, and draw the validation rows; None is one group, or one site.

    ``labels`` are class numbers, or all equal if targets are quantities.
    """
    number = len(labels)
    groups = group_rows(sensitive_features, number)
    at = np.zeros(number, dtype=np.int64)
    if sites is not None:
        at, _ = number_values("sites", sites, number)
    set_aside = np.zeros(number, dtype=bool)
    for site in range(int(at.max()) + 1 if validation else 0):
        own = np.flatnonzero(at == site)
        strata = np.stack([groups.numbers[own], labels[own].astype(np.int64)])
        _, drawn = split_strata(
            strata, validation, seed=seed, site=str(site), purpose=Purpose.VALIDATION
        )
        set_aside[own[drawn]] = True
    return RowPlaces(groups, at, set_aside)


@dataclass(frozen=True, eq=False)
class Trained:
    """The result of training: the model on the CPU, and results by group name."""

    model: nn.Module
    groups: tuple[str, ...]
    _: KW_ONLY
    small_groups: tuple[str, ...]
    risks_by_group: dict[str, float]
    group_weights: dict[str, float]
    history: list[RoundRecord]
    convergence: Convergence
    certificate: Certificate | None
    validation: ValidationRisk | None


def train_rows(
    settings: TrainingSettings,
    rows: Rows,
    *,
    loss_name: str,
    outputs: int,
    seed: int,
    risk_unit: float = 1.0,
) -> Trained:
    """Train a model with this many outputs by this loss; 1 output is regression.

    ``risk_unit`` is a risk of 1 in the user's units.
    """
    device, loss = usable_device(settings.device), LOSSES_BY_NAME[loss_name]
    if rows.start is not None:
        # Sums over codes are histograms, which the processor adds up.
        device = torch.device("cpu")
    ridge = ridge_of(settings, loss_name)
    places, groups = rows.places, rows.places.groups
    x, y, group = (torch.tensor(part, device=device) for part in (rows.x, rows.y, groups.numbers))
    with torch_seeded(seed, Purpose.INITIALISATION):
        model: nn.Module = (
            linear_or_mlp(x.shape[1], outputs, settings.hidden).to(device, x.dtype)
            if rows.start is None
            else rows.start
        )
    federation = Simulation(
        model,
        loss,
        [(x[own], y[own], group[own]) for own in places.by_site(places.train)],
        group_names=groups.names,
        validation=[(x[own], y[own], group[own]) for own in places.by_site(places.set_aside)]
        if places.set_aside.any()
        else 0.0,
        ridge=ridge,
        minimum_group=settings.minimum_group,
        small=small_rule_of(settings),
    )
    patience = patience_of(settings, has_validation_rows=bool(places.set_aside.any()))
    method = method_of(settings)
    training = resume_run(
        None,
        federation,
        method,
        rounds=rounds_of(settings),
        seed=seed,
        patience=patience,
        unit=risk_unit,
    )
    steps = [(one.done, one.record) for one in training if one.done and one.record]
    done, history = steps[-1][0], [record for _, record in steps]
    which = iterate_of(settings)
    trained = done.model(which).cpu()
    outputs_of_rows = outputs_of(trained, rows.x[places.train])
    risks = _risks(loss, outputs_of_rows, torch.tensor(rows.y[places.train]), places)
    names = groups.names
    least = minimum_included(settings.minimum_group, small_rule_of(settings))
    included = included_groups(places.training_counts.tolist(), least)
    convergence = judge_convergence(
        history,
        federation.census.counts.sum(dim=0).tolist(),
        goal_of(method),
        answer=which or done.answer,
        included=federation.census.included.tolist(),
        # The method's own estimate is for the model that it chose.
        left=done.remaining if which is None else None,
    )
    proved = done.certificate if which is None else None
    # Some methods' weights are over sites, such as AFL's.
    weights = done.weights.tolist() if _weights_groups(method) else []
    return Trained(
        trained,
        names,
        small_groups=tuple(
            name for name, is_included in zip(names, included, strict=True) if not is_included
        ),
        risks_by_group=dict(zip(names, (risks * risk_unit).tolist(), strict=True)),
        group_weights=dict(zip(federation.group_names, weights, strict=False)),
        history=history,
        convergence=stopped_by_validation(convergence)
        if is_out_of_patience(done.progress, patience)
        else convergence,
        certificate=proved and proved.in_units(risk_unit),
        validation=_in_unit(done.chosen, risk_unit),
    )


def outputs_of(model: nn.Module, x: NDArray[Any]) -> Tensor:
    """Return the model's outputs on the CPU, in its precision, in batches."""
    like = next(model.parameters())
    with torch.no_grad():
        dtype = None if isinstance(model, AdditiveModel) else like.dtype
        parts = torch.split(torch.tensor(x, dtype=dtype), ROWS_AT_ONCE)
        return torch.cat([model(part) for part in parts])


def _in_unit(chosen: ValidationRisk | None, unit: float) -> ValidationRisk | None:
    if chosen is None:
        return None
    return replace(chosen, risk=chosen.risk * unit, standard_error=chosen.standard_error * unit)


def _weights_groups(method: AnyMethod[Any]) -> bool:
    """Whether the method has weights over groups."""
    card = card_of(method)
    return card is not None and card.weights is Weights.GROUPS


def _risks(loss: Loss, outputs: Tensor, y: Tensor, places: RowPlaces) -> Tensor:
    """Return each group's mean loss over training rows."""
    losses = loss(outputs, y).double()
    group = torch.from_numpy(places.groups.numbers[places.train])
    sums = torch.bincount(group, losses, minlength=len(places.groups.names))
    return sums / torch.from_numpy(places.training_counts)


@dataclass(frozen=True, eq=False)
class Scaling:
    """Mean and scale of each column, in float64: the pooled mean and standard deviation.

    Both come from exact sums over rows, which sites can add up: no split among them changes a
    bit. Columns of zeros and ones stay as they are: divided by its deviation, a rare word's 1
    becomes so large that the safe step for all columns shrinks by an order of magnitude.
    """

    mean: NDArray[np.float64]
    scale: NDArray[np.float64]

    def apply(self, table: NDArray[Any]) -> NDArray[Any]:
        """Return the scaled table, in the table's own precision."""
        return ((table - self.mean) / self.scale).astype(table.dtype)

    def undo(self, table: NDArray[Any]) -> NDArray[Any]:
        """Return the unscaled table; the inverse of ``apply``."""
        return table * self.scale + self.mean


def measure_scaling(table: NDArray[Any], *, wanted: bool) -> Scaling:
    """Measure the columns; a constant one is only shifted, and none are scaled unless ``wanted``.

    >>> scaling = measure_scaling(np.array([[0.0, 7.0, 1.0], [2.0, 7.0, 0.0]]), wanted=True)
    >>> scaling.apply(np.array([[4.0, 7.0, 1.0]])).tolist()
    [[3.0, 0.0, 1.0]]
    """
    measured = [_measure(column) if wanted else (0.0, 1.0) for column in table.T]
    mean, scale = zip(*measured, strict=True)
    return Scaling(np.array(mean), np.array(scale))


def _measure(column: NDArray[Any]) -> tuple[float, float]:
    if ((column == 0.0) | (column == 1.0)).all():
        return 0.0, 1.0
    sums = exact_sums(np.ascontiguousarray(column, dtype=np.float64))
    return sums.mean, sums.deviation or 1.0


@dataclass(frozen=True, eq=False)
class AdditiveStart:
    """Coded rows with the model to start from, their coding, and training rows by code."""

    rows: Rows
    codes: TableCodes
    counts: torch.Tensor


def start_additive(
    settings: TrainingSettings, codes: TableCodes, rows: Rows, *, loss: str, outputs: int
) -> AdditiveStart:
    """Choose the class of models; ``rows`` have the features as they are.

    It is chosen by likelihood, also if the method trains with the Brier loss.
    """
    ridge, train = ridge_of(settings, loss), rows.places.train
    structure = LinearStructure(
        outputs,
        sum(block.own.size for block in codes.blocks),
        intercept=True,
        loss="cross_entropy" if outputs > 1 else "squared_error",
        ridge=ridge,
        coded=True,
    )
    x = torch.from_numpy(codes.apply(rows.x))
    pooled = Examples(
        x[torch.from_numpy(train)],
        torch.tensor(rows.y[train]),
        torch.zeros(int(train.sum()), dtype=torch.int64),
    )
    chosen = choose_class(
        [pooled],
        structure,
        codes.blocks,
        max_pairs=settings.pairs,
        smoothness=float(settings.smoothness),
    )
    codes = codes.with_pairs(chosen.pairs)
    model = AdditiveModel(outputs, chosen.blocks, records=int(train.sum()), ridge=ridge)
    model.load_effects(chosen.effects, chosen.intercepts)
    coded = replace(rows, x=codes.apply(rows.x), start=model)
    return AdditiveStart(coded, codes, chosen.counts)


@dataclass(frozen=True, eq=False)
class Explanation:
    """What pulls the scores of rows up and down: ``score`` is ``base`` plus all contributions.

    The score of two classes is the log-odds of the second, of more classes one for each (its output
    less the mean of all), of a quantity the prediction itself. ``base`` [scores] is the mean score
    of the training rows, ``contributions`` [rows, scores, effects] have the mean 0 over them.

    Args:
        effects: the names of columns and pairs of columns.
        scores: the names of the scores.
    """

    effects: tuple[str, ...]
    scores: tuple[str, ...]
    base: NDArray[np.float64]
    contributions: NDArray[np.float64]

    @property
    def score(self) -> NDArray[np.float64]:
        """The scores of all rows [rows, scores]."""
        total: NDArray[np.float64] = self.base + self.contributions.sum(axis=2)
        return total


def explanation_of(
    model: AdditiveModel,
    codes: TableCodes,
    counts: torch.Tensor,
    table: NDArray[Any],
    scores: tuple[str, ...],
) -> Explanation:
    """Explain the rows of a table."""
    centred = centred_effects(model.effects, model.bias, model.design.sizes, codes.pairs, counts)
    contributions = centred.contributions(torch.from_numpy(codes.apply(table)))
    return Explanation(codes.block_names, scores, centred.base.numpy(), contributions.numpy())
