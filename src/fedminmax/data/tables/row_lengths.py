"""The total length of a site's encoded rows, computed from its summary: it limits replies."""

import math
from fractions import Fraction

from fedminmax.core.bounds import RowLengths
from fedminmax.core.exact_sums import ExactSums
from fedminmax.data.tables.encoding import EncodedCategory, EncodedQuantity, Encoding
from fedminmax.data.tables.site_summary import SiteSummary


def row_lengths(summary: SiteSummary, encoding: Encoding) -> RowLengths:
    """Return the roots of the sums over rows of |x|^2, a 1 appended to x, and of y^2."""
    # Of codes, one per block is 1 and all others are 0.
    squares = Fraction(summary.rows * (1 + len(encoding.blocks)))
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
