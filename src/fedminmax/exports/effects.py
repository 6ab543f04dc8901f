"""The effects of a saved additive model by column and pair, in the units of the table.

Where the training records of a group differ clearly from an effect, that is told by the sums of
slopes G and of second derivatives H of the group's losses by code: with the effect alone free, the
group's own level would be G / H lower, with the variance 1 / H (a score test, Rao 1948).

For two classes an effect is on the log-odds of the second, for more on each one's score (its output
less the mean of all outputs), for a quantity on the prediction, in the target's unit. Effects are
centred over the training records (``core.additive.effects``).
"""

import math
from dataclasses import KW_ONLY, dataclass
from itertools import accumulate, pairwise
from statistics import NormalDist

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
from fedminmax.data.tables.plain_fit import MIN_SHOWN, Departure
from fedminmax.metrics.code_sums import CodeSums

Numbers = tuple[float, ...]
# Of all groups and columns together, if none differs; and the least that is worth telling, in
# log-odds or standard deviations of a prediction's errors.
FALSE_ALARMS, MIN_DEVIATION = 0.05, 0.1
MAX_CELLS, MAX_GROUPS = 12, 3


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


def departures_of(encoding: Encoding, sums: CodeSums) -> list[tuple[Departure, ...]] | None:
    """Return where groups differ clearly from an effect, by column, for each of some models.

    None if the sums are of no model.
    """
    models = range(len(sums.code_slopes))
    return [_departures(encoding, sums, number) for number in models] or None


def _departures(encoding: Encoding, sums: CodeSums, model: int) -> tuple[Departure, ...]:
    counts, groups = sums.code_counts[0], len(encoding.groups)
    slopes, bends = sums.code_slopes[model], sums.code_bends[model]
    features, unit = _features(encoding), 1.0
    sizes = [feature.block.size for feature in features]
    if encoding.outputs == 1:
        # The deviation of all predictions' errors is the unit in which groups are compared.
        all_records = float(counts[:, : sizes[0]].sum())
        unit = math.sqrt(float(sums.code_losses[model]) / max(all_records, 1.0)) or 1.0
        slopes, bends = slopes / (2.0 * unit), bends / 2.0
    limit = NormalDist().inv_cdf(1.0 - FALSE_ALARMS / (groups * len(features)))
    deviation = 1.0 if encoding.target_scale is None else encoding.target_scale.deviation
    found: list[Departure] = []
    spans = [slice(*ends) for ends in pairwise(accumulate(sizes, initial=0))]
    for feature, span in zip(features, spans, strict=True):
        ordered = 0 if isinstance(feature, CodedCategory) else len(feature.edges) + 1
        clear = []
        for group, name in enumerate(encoding.group_names):
            own = _departure(
                _cells(counts[group, span], ordered), slopes[group, span], bends[group, span], limit
            )
            if own is None:
                continue
            cells, shifts, errors, size = own
            records = (round(float(counts[group, span][list(cell)].sum())) for cell in cells)
            scale = unit * deviation
            clear.append(
                Departure(
                    feature.column,
                    name,
                    cells,
                    tuple(scale * float(shift) for shift in shifts),
                    tuple(scale * float(error) for error in errors),
                    tuple(records),
                    scale * size,
                )
            )
        found += sorted(clear, key=lambda own: -own.deviation)[:MAX_GROUPS]
    return tuple(found)


def _cells(counts: Tensor, ordered: int) -> tuple[tuple[int, ...], ...]:
    """Put codes together: bins in order, as many records in each part, and the rarest categories.

    >>> _cells(torch.tensor([8.0, 8.0, 30.0, 5.0, 12.0]), 4)
    ((0, 1), (2, 3), (4,))
    >>> _cells(torch.tensor([8.0, 30.0, 5.0]), 0)
    ((1,), (0, 2))
    """
    total, parts, current = float(counts[:ordered].sum()), [], []
    for code in range(ordered):
        current.append(code)
        if float(counts[current].sum()) >= max(total / MAX_CELLS, MIN_SHOWN):
            parts.append(tuple(current))
            current = []
    if current and parts:
        parts[-1] = (*parts[-1], *current)
    others = sorted(range(ordered, len(counts)), key=lambda code: -float(counts[code]))
    often = [code for code in others if counts[code] >= MIN_SHOWN][:MAX_CELLS]
    parts += [(code,) for code in often]
    rare = tuple(sorted(code for code in others if code not in often))
    if rare and float(counts[list(rare)].sum()) >= MIN_SHOWN:
        parts.append(rare)
    return tuple(parts)


def _departure(
    cells: tuple[tuple[int, ...], ...], slopes: Tensor, bends: Tensor, limit: float
) -> tuple[tuple[tuple[int, ...], ...], Tensor, Tensor, float] | None:
    """Return cells, shifts, errors and their deviation, if that is clearly not chance."""
    cells = tuple(cell for cell in cells if float(bends[list(cell)].sum()) > 1e-6)
    if len(cells) < 2:
        return None
    slope, bend = (
        torch.stack([own[list(cell)].sum() for cell in cells]) for own in (slopes, bends)
    )
    shifts = slope.sum() / bend.sum() - slope / bend
    squares, freedom = float((bend * shifts.square()).sum()), len(cells) - 1
    # Chi squared as a normal number (Wilson, Hilferty 1931).
    part = 2.0 / (9.0 * freedom)
    certainty = ((squares / freedom) ** (1.0 / 3.0) - (1.0 - part)) / math.sqrt(part)
    size = math.sqrt(max(squares - freedom, 0.0) / float(bend.sum()))
    if certainty < limit or size < MIN_DEVIATION:
        return None
    return cells, shifts, bend.rsqrt(), size


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
        model.effects,
        model.bias,
        sizes,
        encoding.pairs,
        torch.tensor(counts, dtype=torch.float64),
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
