"""The effects of a saved additive model by column and pair, in the units of the table.

For two classes an effect is on the log-odds of the second, for more on each one's score (its output
less the mean of all outputs), for a quantity on the prediction, in the target's unit. Effects are
centred over the training records (``core.additive.effects``).
"""

import math
from dataclasses import KW_ONLY, dataclass

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedminmax.config.schema import Kind
from fedminmax.core.additive.effects import CentredEffects, centred_effects
from fedminmax.core.additive.model import AdditiveModel
from fedminmax.core.errors import InputError
from fedminmax.core.models import Mixture
from fedminmax.data.tables.encoding import BinnedQuantity, CodedCategory, CodedFeature, Encoding

Numbers = tuple[float, ...]


@dataclass(frozen=True)
class Axis:
    """The codes of one column: bins between edges, or texts.

    A category's labels are its values, then those of missing and other values.
    """

    column: str
    edges: Numbers = ()
    labels: tuple[str, ...] = ()
    is_date: bool = False
    has_missing: bool = False

    @property
    def is_number(self) -> bool:
        """Whether codes are bins."""
        return bool(self.edges)


@dataclass(frozen=True)
class Effect:
    """What one column, or a pair, adds to each score: [scores][codes]; a pair's codes are cells.

    ``cells`` of a pair are, for either column, the cell of each code.
    """

    axes: tuple[Axis, ...]
    values: tuple[Numbers, ...]
    _: KW_ONLY
    errors: tuple[Numbers, ...]
    counts: Numbers
    cells: tuple[tuple[int, ...], ...] = ()

    @property
    def name(self) -> str:
        """The column, or both."""
        return " and ".join(axis.column for axis in self.axes)

    @property
    def importance(self) -> float:
        """The standard deviation over the training records, of the scores together."""
        total = sum(self.counts)
        if not total:
            return 0.0
        squares = sum(
            count * value**2
            for values in self.values
            for value, count in zip(values, self.counts, strict=True)
        )
        return math.sqrt(squares / total / len(self.values))


@dataclass(frozen=True)
class ModelEffects:
    """All effects of a model on its scores, in the order of the model's columns."""

    scores: tuple[str, ...]
    base: Numbers
    effects: tuple[Effect, ...]

    @property
    def by_importance(self) -> list[Effect]:
        """The most important first."""
        return sorted(self.effects, key=lambda effect: -effect.importance)


def effects_of(model: nn.Module, encoding: Encoding) -> ModelEffects | None:
    """Return the effects of an additive model; None of others, and of mixtures of several."""
    if not isinstance(model, AdditiveModel):
        return None
    centred = _centred(model, encoding)
    fit, sizes = encoding.plain_fit, list(centred.sizes)
    unit = 1.0 if encoding.target_scale is None else encoding.target_scale.deviation
    errors = torch.zeros_like(centred.effects)
    counts = torch.zeros(len(encoding.names), dtype=torch.float64)
    if fit is not None:
        errors = unit * torch.tensor(fit.standard_errors, dtype=torch.float64)
        counts = torch.tensor(fit.counts, dtype=torch.float64)
    axes = [_axis(feature, encoding) for feature in _features(encoding)]
    blocks: list[tuple[Axis, ...]] = [(axis,) for axis in axes]
    blocks += [(axes[pair.first], axes[pair.second]) for pair in encoding.pairs]
    cells = [()] * len(axes) + [(pair.first_cells, pair.second_cells) for pair in encoding.pairs]
    return ModelEffects(
        score_names(encoding),
        tuple(centred.base.tolist()),
        tuple(
            Effect(
                axes_of_block,
                tuple(map(tuple, values.tolist())),
                errors=tuple(map(tuple, own_errors.tolist())),
                counts=tuple(own_counts.tolist()),
                cells=own_cells,
            )
            for axes_of_block, values, own_errors, own_counts, own_cells in zip(
                blocks,
                torch.split(centred.effects, sizes, dim=1),
                torch.split(errors, sizes, dim=1),
                torch.split(counts, sizes),
                cells,
                strict=True,
            )
        ),
    )


def explain_codes(model: nn.Module, encoding: Encoding, codes: Tensor) -> pl.DataFrame:
    """Return the score of each record, the base, and what every column and pair adds to it."""
    if isinstance(model, Mixture):
        raise InputError(
            f"the model is a mixture of {len(model.members)} models, whose scores do not add up; "
            "train with a method that returns one, such as fedminmax-fast"
        )
    if not isinstance(model, AdditiveModel):
        raise InputError(
            'only additive models can be explained; train with kind = "additive" in [model]'
        )
    centred = _centred(model, encoding)
    added: NDArray[np.float64] = centred.contributions(codes).numpy()
    features = [feature.column for feature in _features(encoding)]
    names = [*features, *(f"{features[p.first]} and {features[p.second]}" for p in encoding.pairs)]
    scores = score_names(encoding)
    columns: dict[str, NDArray[np.float64]] = {}
    for number, score in enumerate(scores):
        base = np.full(len(codes), float(centred.base[number]))
        of, on = ("", "") if len(scores) == 1 else (f" of {score}", f" on {score}")
        columns[f"score{of}"] = base + added[:, number].sum(axis=1)
        columns[f"base score{of}"] = base
        columns |= {
            f"effect of {name}{on}": added[:, number, block] for block, name in enumerate(names)
        }
    return pl.DataFrame(columns)


def score_names(encoding: Encoding) -> tuple[str, ...]:
    """Return the class of each score; of two classes the second, of a quantity its column."""
    classes = encoding.schema.target.classes
    if not classes:
        return (encoding.schema.target.column,)
    return classes[1:] if len(classes) == 2 else classes


def _centred(model: AdditiveModel, encoding: Encoding) -> CentredEffects:
    sizes, fit = model.design.sizes, encoding.plain_fit
    counts = [0.0] * len(encoding.names) if fit is None else fit.counts
    centred = centred_effects(
        model.effects, model.bias, sizes, torch.tensor(counts, dtype=torch.float64)
    )
    scale = encoding.target_scale
    if scale is None:
        return centred
    base = centred.base * scale.deviation + scale.mean
    return CentredEffects(base, centred.effects * scale.deviation, centred.sizes)


def _features(encoding: Encoding) -> list[CodedFeature]:
    return [feature for feature in encoding.features if isinstance(feature, CodedFeature)]


def _axis(feature: CodedFeature, encoding: Encoding) -> Axis:
    if isinstance(feature, CodedCategory):
        missing = ("missing",) if feature.flags_missing else ()
        labels = (*feature.categories, *missing, "other values")
        return Axis(feature.column, labels=labels, has_missing=feature.flags_missing)
    kind = next(own.kind for own in encoding.schema.features if own.column == feature.column)
    if kind is Kind.BOOLEAN or not feature.edges:
        return Axis(feature.column, labels=_few_labels(feature), has_missing=feature.flags_missing)
    return Axis(
        feature.column,
        feature.edges,
        is_date=kind is Kind.DATE,
        has_missing=feature.flags_missing,
    )


def _few_labels(feature: BinnedQuantity) -> tuple[str, ...]:
    values = ("no", "yes") if feature.edges else ("there",)
    return (*values, "missing") if feature.flags_missing else values
