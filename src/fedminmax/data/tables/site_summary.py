"""What a site discloses about its training rows before the first round: sums and counts.

From them follows the total length of its encoded rows, which limits replies.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from fedminmax.config.schema import Kind, Schema
from fedminmax.core.bounds import RowLengths
from fedminmax.core.exact_sums import NO_ROWS, ExactSums, exact_sums
from fedminmax.core.examples import counted_each, portions
from fedminmax.data.tables.encoding import EncodedCategory, EncodedQuantity, Encoding
from fedminmax.data.tables.groups import GroupKey
from fedminmax.data.tables.parse_rows import ParsedRows

Stratum = tuple[GroupKey, int]


"""A group and a class; in regression the class is 0."""


@dataclass(frozen=True)
class SiteSummary:
    """Sums over rows: summaries can be added in any order, and the total is that of pooled rows.

    ``categories`` counts each listed category, then missing values, then values not listed.
    """

    rows: int
    quantities: Mapping[str, ExactSums]
    categories: Mapping[str, tuple[int, ...]]
    strata: Mapping[Stratum, int]
    target: ExactSums

    def __add__(self, other: "SiteSummary") -> "SiteSummary":
        return SiteSummary(
            self.rows + other.rows,
            {name: sums + other.quantities[name] for name, sums in self.quantities.items()},
            {
                name: tuple(a + b for a, b in zip(counts, other.categories[name], strict=True))
                for name, counts in self.categories.items()
            },
            dict(Counter(self.strata) + Counter(other.strata)),
            self.target + other.target,
        )

    @property
    def group_counts(self) -> dict[GroupKey, int]:
        """Rows of each group."""
        counts: Counter[GroupKey] = Counter()
        for (group, _), count in self.strata.items():
            counts[group] += count
        return dict(counts)

    @property
    def class_counts(self) -> dict[int, int]:
        """Rows of each class."""
        counts: Counter[int] = Counter()
        for (_, label), count in self.strata.items():
            counts[label] += count
        return dict(counts)


def without_counts(summary: SiteSummary) -> SiteSummary:
    """Return a summary that says of groups and categories only that they occur.

    It says nothing of classes. What number columns are scaled by stays.
    """
    categories = {
        name: tuple(int(count > 0) for count in counts)
        for name, counts in summary.categories.items()
    }
    return replace(
        summary, categories=categories, strata={(group, 0): 1 for group, _ in summary.strata}
    )


def summarise(rows: ParsedRows, schema: Schema) -> SiteSummary:
    """Summarise a site's training rows."""
    quantities = {name: _sums(values) for name, values in rows.features.quantities.items()}
    categories = {
        feature.column: tuple(
            counted_each(rows.features.codes[feature.column], len(feature.categories) + 2).tolist()
        )
        for feature in schema.features
        if feature.kind is Kind.CATEGORY and not feature.is_open
    }
    target = _sums(rows.target.astype(np.float64)) if schema.target.is_quantity else NO_ROWS
    return SiteSummary(len(rows), quantities, categories, _strata(rows, schema), target)


def _sums(values: NDArray[np.float64]) -> ExactSums:
    parts = (values[part] for part in portions(len(values)))
    return sum((exact_sums(part[~np.isnan(part)]) for part in parts), NO_ROWS)


def _strata(rows: ParsedRows, schema: Schema) -> dict[Stratum, int]:
    classes = max(len(schema.target.classes), 1)
    counts = np.zeros(len(rows.group_keys) * classes, np.int64)
    for part in portions(len(rows)):
        labels = 0 if schema.target.is_quantity else rows.target[part].astype(np.int64)
        counts += np.bincount(rows.group[part] * classes + labels, minlength=len(counts))
    return {
        (rows.group_keys[stratum // classes], stratum % classes): int(counts[stratum])
        for stratum in np.flatnonzero(counts).tolist()
    }


def row_lengths(summary: SiteSummary, encoding: Encoding) -> RowLengths:
    """Return the roots of the sums over rows of |x|^2, a 1 appended to x, and of y^2."""
    squares = summary.rows * Fraction(encoding.longest_row)
    for feature in encoding.features:
        if isinstance(feature, EncodedCategory):
            squares += _category_squares(feature, summary, encoding)
        elif isinstance(feature, EncodedQuantity):
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
