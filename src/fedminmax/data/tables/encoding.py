"""The encoding that all sites share: computed from summed summaries, exactly as from pooled rows.

A quantity becomes its distance from the mean in standard deviations, with 0 and a separate flag for
a missing value. A category becomes one
column per category that occurs in training, also with a flag for missing values. A category that is
not listed, or does not occur in training, is all zeros, in training and in predictions.

A trained model's folder has the encoding as JSON. ``row_lengths`` computes the total length of a
site's encoded rows from its summary, which limits its replies.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from fractions import Fraction
from functools import cache

from pydantic import TypeAdapter, ValidationError

from fedminmax.config.schema import Feature, Kind, Schema
from fedminmax.core.bounds import RowLengths
from fedminmax.core.errors import InputError
from fedminmax.core.exact_sums import ExactSums
from fedminmax.core.small_groups import groups_to_merge, included_groups
from fedminmax.data.tables.groups import (
    GroupKey,
    check_spellings,
    group_name,
    merged_key,
    sort_groups,
)
from fedminmax.data.tables.site_summary import SiteSummary


@dataclass(frozen=True)
class EncodedQuantity:
    """Numbers, booleans and dates; without ``varies`` only the missing-value flag is used."""

    column: str
    mean: float
    deviation: float
    varies: bool
    flags_missing: bool

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns that the model sees."""
        value = (self.column,) if self.varies else ()
        return (*value, *_flag(self.column, flagged=self.flags_missing))


@dataclass(frozen=True)
class EncodedCategory:
    """One column for each category that occurs in training."""

    column: str
    categories: tuple[str, ...]
    flags_missing: bool

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns that the model sees."""
        values = (f"{self.column} = {category}" for category in self.categories)
        return (*values, *_flag(self.column, flagged=self.flags_missing))


@dataclass(frozen=True)
class Scale:
    """Mean and standard deviation of a target that is a quantity."""

    mean: float
    deviation: float


@dataclass(frozen=True)
class Encoding:
    """How rows become tensors; ``dropped`` features are constant in training.

    ``small_groups`` are the groups with too few training rows for minimax training;
    ``merged_groups`` are no longer separate groups, but part of the merged one.
    """

    schema: Schema
    features: tuple[EncodedQuantity | EncodedCategory, ...]
    groups: tuple[GroupKey, ...]
    _: KW_ONLY
    target_scale: Scale | None
    dropped: tuple[str, ...]
    small_groups: tuple[GroupKey, ...] = ()
    merged_groups: tuple[GroupKey, ...] = ()

    @property
    def risk_unit(self) -> float:
        """The factor that converts squared errors to the target's unit, squared; else 1."""
        return self.target_scale.deviation**2 if self.target_scale else 1.0

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns that the model sees, in their order."""
        return tuple(name for feature in self.features for name in feature.names)

    @property
    def group_names(self) -> tuple[str, ...]:
        """Names of the groups, in the order of their numbers."""
        return tuple(group_name(key, self.schema) for key in self.groups)

    @property
    def small_group_names(self) -> tuple[str, ...]:
        """Names of the groups with too few training rows for minimax training."""
        return tuple(group_name(key, self.schema) for key in self.small_groups)

    @property
    def merged_group_names(self) -> tuple[str, ...]:
        """Names of the groups that were merged into one."""
        return tuple(group_name(key, self.schema) for key in self.merged_groups)

    @property
    def group_numbers(self) -> dict[GroupKey, int]:
        """The number of each group, including the merged ones."""
        numbers = {key: number for number, key in enumerate(self.groups)}
        merged = numbers.get(merged_key(self.schema), 0)
        return numbers | dict.fromkeys(self.merged_groups, merged)

    def count(self, rows: Mapping[GroupKey, int]) -> list[int]:
        """Return the rows of each group, in the order of their numbers."""
        counts = [0] * len(self.groups)
        for key, number in self.group_numbers.items():
            counts[number] += rows.get(key, 0)
        return counts

    @property
    def outputs(self) -> int:
        """How many outputs the model needs: one per class, one for a quantity."""
        return len(self.schema.target.classes) or 1


def agree_on_encoding(schema: Schema, total: SiteSummary) -> Encoding:
    """Compute the encoding from the sum of all sites' summaries."""
    check_spellings(total.group_counts, schema)
    encoded = {feature.column: _encoded(feature, total) for feature in schema.features}
    kept = tuple(entry for entry in encoded.values() if entry.names)
    if not kept:
        raise InputError("every feature is constant in the training rows; name features that vary")
    groups, merged = _merged(schema, total)
    encoding = Encoding(
        schema,
        kept,
        groups,
        target_scale=_target_scale(schema, total),
        dropped=tuple(column for column, entry in encoded.items() if not entry.names),
        merged_groups=merged,
    )
    return replace(encoding, small_groups=_small(encoding, total))


def _merged(
    schema: Schema, total: SiteSummary
) -> tuple[tuple[GroupKey, ...], tuple[GroupKey, ...]]:
    """Return the groups, and those that are merged into one of them."""
    groups = sort_groups(total.group_counts, schema)
    rows = [total.group_counts[key] for key in groups]
    numbers = groups_to_merge(rows, schema.minimum_group_size, schema.small_groups)
    merged = tuple(groups[number] for number in numbers)
    if not merged:
        return groups, ()
    kept = [key for key in groups if key not in merged]
    together = merged_key(schema)
    return sort_groups([*kept, together], schema), tuple(k for k in merged if k != together)


def _small(encoding: Encoding, total: SiteSummary) -> tuple[GroupKey, ...]:
    least = encoding.schema.minimum_included
    included = included_groups(encoding.count(total.group_counts), least)
    return tuple(
        key for key, is_included in zip(encoding.groups, included, strict=True) if not is_included
    )


def _encoded(feature: Feature, total: SiteSummary) -> EncodedQuantity | EncodedCategory:
    if feature.kind is Kind.CATEGORY:
        return _encoded_category(feature, total.categories[feature.column])
    sums: ExactSums = total.quantities[feature.column]
    missing = 0 < sums.count < total.rows
    if sums.count == 0:
        return EncodedQuantity(feature.column, 0.0, 0.0, varies=False, flags_missing=False)
    deviation = sums.deviation
    return EncodedQuantity(feature.column, sums.mean, deviation, deviation > 0, missing)


def _encoded_category(feature: Feature, counts: tuple[int, ...]) -> EncodedCategory:
    *listed, missing, unseen = counts
    pairs = zip(feature.categories, listed, strict=True)
    occurring = tuple(category for category, count in pairs if count)
    constant = len(occurring) + bool(missing) + bool(unseen) < 2
    if constant:
        return EncodedCategory(feature.column, (), flags_missing=False)
    return EncodedCategory(feature.column, occurring, flags_missing=missing > 0)


def _target_scale(schema: Schema, total: SiteSummary) -> Scale | None:
    target = schema.target
    if target.is_quantity:
        if total.target.variance == 0:
            raise InputError(
                f"target '{target.column}' is the same in every training row of all sites; "
                "there is nothing to learn: choose another target"
            )
        return Scale(total.target.mean, total.target.deviation)
    occurring = [target.classes[label] for label in sorted(total.class_counts)]
    if len(occurring) < 2:
        raise InputError(
            f"target '{target.column}' has one class, '{occurring[0]}', in all {total.rows:,} "
            "training rows of all sites; give rows of another class or choose another target"
        )
    return None


def _flag(column: str, *, flagged: bool) -> tuple[str, ...]:
    return (f"{column} is missing",) if flagged else ()


@cache
def _adapter() -> TypeAdapter[Encoding]:
    """Return what converts encodings; creating it takes longer than using it."""
    return TypeAdapter(Encoding)


def encoding_as_json(encoding: Encoding) -> str:
    """Write the encoding with its schema; numbers are read back exactly."""
    return _adapter().dump_json(encoding, indent=2).decode()


def encoding_from_json(text: str, source: str) -> Encoding:
    """Read an encoding; raise an ``InputError`` if the file is damaged."""
    try:
        encoding = _adapter().validate_json(text)
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        raise InputError(
            f"{source} is not an encoding of this version ({where or 'not JSON'}); train again"
        ) from error
    for fault in _contradictions(encoding):
        raise InputError(f"{source} is damaged: its encoding {fault}; train again")
    return encoding


def _contradictions(encoding: Encoding) -> Iterator[str]:
    """Yield contradictions between an encoding and its schema."""
    by_column = {feature.column: feature for feature in encoding.schema.features}
    if len({feature.column for feature in encoding.features}) < len(encoding.features):
        yield "has a feature twice"
    for feature in encoding.features:
        like = by_column.get(feature.column)
        if like is None or (like.kind is Kind.CATEGORY) != isinstance(feature, EncodedCategory):
            yield f"has a feature '{feature.column}' that its schema does not have"
        elif isinstance(feature, EncodedCategory):
            if not {*feature.categories} <= {*like.categories}:
                yield f"has categories of '{feature.column}' that its schema does not have"
        elif not _is_scale(feature):
            yield f"has no usable mean and deviation of '{feature.column}'"
    columns = len(encoding.schema.protected)
    if not encoding.groups or any(len(key) != columns for key in encoding.group_numbers):
        yield "has groups that its schema does not have"
    if len({*encoding.groups}) < len(encoding.groups):
        yield "has a group twice"
    if not {*encoding.small_groups} <= {*encoding.groups}:
        yield "has small groups that are none of its groups"
    if {*encoding.merged_groups} & {*encoding.groups} or (
        encoding.merged_groups and merged_key(encoding.schema) not in encoding.groups
    ):
        yield "has merged groups that are not merged"
    if (encoding.target_scale is not None) != encoding.schema.target.is_quantity:
        yield "has another kind of target than its schema"


def _is_scale(feature: EncodedQuantity) -> bool:
    finite = math.isfinite(feature.mean) and math.isfinite(feature.deviation)
    return finite and (feature.deviation > 0 or not feature.varies)


def row_lengths(summary: SiteSummary, encoding: Encoding) -> RowLengths:
    """Return the roots of the sums over rows of |x|^2, a 1 appended to x, and of y^2."""
    squares = Fraction(summary.rows)
    for feature in encoding.features:
        if isinstance(feature, EncodedCategory):
            squares += _category_squares(feature, summary, encoding)
        else:
            squares += _quantity_squares(feature, summary)
    scale = encoding.target_scale
    targets = Fraction(0)
    if scale is not None:
        targets = _scaled_squares(summary.target, scale.mean, scale.deviation)
    return RowLengths(math.sqrt(squares), math.sqrt(targets))


def _quantity_squares(feature: EncodedQuantity, summary: SiteSummary) -> Fraction:
    sums, squares = summary.quantities[feature.column], Fraction(0)
    if feature.varies:
        squares += _scaled_squares(sums, feature.mean, feature.deviation)
    if feature.flags_missing:
        squares += summary.rows - sums.count
    return squares


def _category_squares(
    feature: EncodedCategory, summary: SiteSummary, encoding: Encoding
) -> Fraction:
    listed = next(f.categories for f in encoding.schema.features if f.column == feature.column)
    *counts, missing, _ = summary.categories[feature.column]
    seen = sum(
        n for category, n in zip(listed, counts, strict=True) if category in feature.categories
    )
    return Fraction(seen + (missing if feature.flags_missing else 0))


def _scaled_squares(sums: ExactSums, mean: float, deviation: float) -> Fraction:
    """Return the sum of ((x - mean) / deviation)^2."""
    centre = Fraction(mean)
    distances = sums.squares - 2 * centre * sums.total + sums.count * centre**2
    return max(distances, Fraction(0)) / Fraction(deviation) ** 2
