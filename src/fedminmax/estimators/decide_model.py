"""Decide for ``model="auto"`` between a linear model and splines, by rows that are set aside.

Both are trained on the other rows, and compared as ``metrics.model_choice`` says. Then the chosen
one is trained on all rows.
"""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fedminmax.core.errors import InputError
from fedminmax.core.losses import LOSSES_BY_NAME
from fedminmax.core.small_groups import minimum_to_play, playable_groups
from fedminmax.core.validation import SMALL_GROUPS, ValidationRisk
from fedminmax.estimators.settings import (
    AUTO,
    LINEAR,
    SPLINE,
    TrainingSettings,
    kind_of,
    small_rule_of,
    validation_share,
)
from fedminmax.estimators.training import RowPlaces, Rows, outputs_of, train_rows
from fedminmax.metrics.model_choice import (
    DEFAULT_SHARE_FOR_CHOICE,
    ComparedModels,
    compare_models,
)


@dataclass(frozen=True)
class DecidedModel:
    """Why a kind of model was chosen: worst validation risks, in the user's units, and groups.

    ``standard_error`` is that of the difference of both risks; without validation rows the risks
    are infinite.
    """

    chosen: str
    _: KW_ONLY
    linear_risk: float
    linear_worst: str
    spline_risk: float
    spline_worst: str
    standard_error: float


def decide(
    settings: TrainingSettings,
    rows_with: Callable[[float], Rows],
    *,
    loss_name: str,
    outputs: int,
    seed: int,
) -> tuple[TrainingSettings, ComparedModels | None]:
    """Return the settings with a kind of model, and the comparison that decided, if one did.

    ``rows_with`` prepares all rows with this share of them set aside.
    """
    if kind_of(settings) != AUTO:
        return settings, None
    rows = rows_with(validation_share(settings) or DEFAULT_SHARE_FOR_CHOICE)
    places = rows.places
    training = _training_rows(rows)
    target = torch.tensor(rows.y[places.set_aside])
    losses: list[Tensor] = []
    for kind in (LINEAR, SPLINE):
        own = replace(settings, model=kind, validation=0.0, patience=None, iterate=None)
        trained = train_rows(own, training, loss_name=loss_name, outputs=outputs, seed=seed)
        scores = outputs_of(trained.model, rows.x[places.set_aside])
        losses.append(LOSSES_BY_NAME[loss_name](scores, target))
    group = torch.from_numpy(places.groups.numbers[places.set_aside])
    least = minimum_to_play(settings.minimum_group, small_rule_of(settings))
    playable = torch.tensor(playable_groups(places.training_counts.tolist(), least))
    counts = torch.bincount(group, minlength=len(places.groups.names))
    plain, richer = losses
    compared = compare_models(plain, richer, group, torch.where(playable, counts, 0))
    return replace(settings, model=SPLINE if compared.prefers_richer else LINEAR), compared


def decided_model(
    settings: TrainingSettings,
    compared: ComparedModels | None,
    groups: tuple[str, ...],
    unit: float = 1.0,
) -> DecidedModel | None:
    """Return the record of a comparison, with names and units; None if there was none."""
    if compared is None:
        return None
    return DecidedModel(
        kind_of(settings),
        linear_risk=compared.plain.risk * unit,
        linear_worst=_name(compared.plain, groups),
        spline_risk=compared.richer.risk * unit,
        spline_worst=_name(compared.richer, groups),
        standard_error=compared.error * unit,
    )


def _name(risk: ValidationRisk, groups: tuple[str, ...]) -> str:
    return "small groups" if risk.group == SMALL_GROUPS else groups[risk.group]


def _training_rows(rows: Rows) -> Rows:
    """Return the rows that are not set aside, as all rows."""
    kept, places = rows.places.train, rows.places
    if not kept.any() or kept.all():
        raise InputError(
            f'model = "auto" needs rows to compare on, and none of {len(kept)} can be set aside; '
            'give "linear" or "spline"'
        )
    groups = replace(places.groups, numbers=places.groups.numbers[kept])
    nothing = np.zeros(int(kept.sum()), dtype=bool)
    return Rows(rows.x[kept], rows.y[kept], RowPlaces(groups, places.sites[kept], nothing))
