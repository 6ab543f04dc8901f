"""How sites agree on an encoding: from sums and counts over all sites, exactly as from pooled rows.

An additive model needs bins first. ``bin_rounds`` is a generator: it yields the grids in which to
count (``data.tables.bins``) and is sent the totals over all sites, so that tables in memory and
sites in a network agree in the same way.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add

import numpy as np

from fedminmax.config.schema import Feature, Kind, Schema
from fedminmax.core.errors import InputError
from fedminmax.core.small_groups import groups_to_merge, included_groups
from fedminmax.data.tables.bins import (
    MAX_CATEGORIES,
    MAX_CODES,
    REFINEMENTS,
    ColumnBins,
    Counts,
    Grid,
    Values,
    bins_of,
    codes_each,
    count_cells,
    fine_bins,
    first_grid,
    most_bins,
    refined,
)
from fedminmax.data.tables.encoding import (
    BinnedQuantity,
    CodedCategory,
    CodedFeature,
    EncodedCategory,
    EncodedQuantity,
    Encoding,
    LinearFeature,
    Scale,
)
from fedminmax.data.tables.groups import GroupKey, check_spellings, merged_key, sort_groups
from fedminmax.data.tables.parse_rows import FeatureRows
from fedminmax.data.tables.site_summary import SiteSummary

Grids = tuple[Grid, ...]
BinRounds = Generator[Grids, Sequence[Counts], dict[str, ColumnBins]]
ONE_BIN = ColumnBins((), 0)


def agree_on_encoding(
    schema: Schema, total: SiteSummary, bins: Mapping[str, ColumnBins] | None = None
) -> Encoding:
    """Compute the encoding from the sum of all sites' summaries.

    With ``bins`` of number columns (``bin_rounds``) it is that of an additive model.
    """
    check_spellings(total.group_counts, schema)
    encoded = {
        column: entry
        for column, entry in _encoded_features(schema, total, bins).items()
        if entry is not None
    }
    kept = tuple(encoded.values())
    if not kept:
        raise InputError(
            "every feature is constant in the training rows, or nearly so; name features that vary"
        )
    groups, merged = _merged(schema, total)
    encoding = Encoding(
        schema,
        kept,
        groups,
        target_scale=_target_scale(schema, total),
        dropped=tuple(column for column in schema.feature_columns if column not in encoded),
        merged_groups=merged,
        records=0 if bins is None else total.rows,
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


def _encoded_features(
    schema: Schema, total: SiteSummary, bins: Mapping[str, ColumnBins] | None
) -> dict[str, LinearFeature | CodedFeature | None]:
    """Return how each feature is encoded; None if it is constant in training."""
    if bins is None:
        return {feature.column: _linear(feature, total) for feature in schema.features}
    most = codes_per_column(schema, total)
    return {feature.column: _coded(feature, total, bins, most) for feature in schema.features}


def _linear(feature: Feature, total: SiteSummary) -> LinearFeature | None:
    if feature.kind is Kind.CATEGORY:
        category = _occurring(feature, total)
        if category is None:
            return None
        return EncodedCategory(feature.column, category.categories, category.flags_missing)
    sums = total.quantities[feature.column]
    flags_missing = 0 < sums.count < total.rows
    deviation = sums.deviation if sums.count else 0.0
    if deviation == 0.0 and not flags_missing:
        return None
    return EncodedQuantity(feature.column, sums.mean, deviation, deviation > 0, flags_missing)


def _coded(
    feature: Feature, total: SiteSummary, bins: Mapping[str, ColumnBins], most: int
) -> CodedFeature | None:
    if feature.kind is Kind.CATEGORY:
        category = _occurring(feature, total)
        if category is None:
            return None
        return CodedCategory(
            feature.column, category.most_frequent(most), flags_missing=category.flags_missing
        )
    sums = total.quantities[feature.column]
    if sums.count == 0:
        return None
    flags_missing, own = sums.count < total.rows, bins.get(feature.column, ONE_BIN)
    if feature.kind is Kind.BOOLEAN and sums.variance > 0:
        own = ColumnBins((0.5,), median=int(2 * sums.total > sums.count))
    if not own.edges and not flags_missing:
        return None
    return BinnedQuantity(
        feature.column,
        own.edges,
        flags_missing,
        own.median,
        nodes=own.nodes,
        mean=sums.mean,
        deviation=sums.deviation,
    )


@dataclass(frozen=True)
class Occurring:
    """The categories of a column that occur in training, and how often."""

    categories: tuple[str, ...]
    counts: tuple[int, ...]
    flags_missing: bool

    def most_frequent(self, most: int) -> tuple[str, ...]:
        """Return at most so many categories, in the order of all."""
        order = sorted(range(len(self.counts)), key=lambda number: -self.counts[number])
        return tuple(self.categories[number] for number in sorted(order[:most]))


def _occurring(feature: Feature, total: SiteSummary) -> Occurring | None:
    """Return what occurs in a column of categories; None if that is always the same."""
    *listed, missing, unseen = total.categories[feature.column]
    counts = {c: n for c, n in zip(feature.categories, listed, strict=True) if n}
    if len(counts) + bool(missing) + bool(unseen) < 2:
        return None
    return Occurring(tuple(counts), tuple(counts.values()), missing > 0)


def codes_per_column(schema: Schema, total: SiteSummary) -> int:
    """Return how many bins or categories a column of an additive model may have."""
    wanted, others = [], 0
    for feature in schema.features:
        if feature.kind is Kind.CATEGORY:
            category = _occurring(feature, total)
            if category is not None:
                wanted.append(min(len(category.counts), MAX_CATEGORIES))
                others += 1 + category.flags_missing
        elif total.quantities[feature.column].count:
            sums = total.quantities[feature.column]
            wanted.append(2 if feature.kind is Kind.BOOLEAN else most_bins(total.rows))
            others += sums.count < total.rows
    most = codes_each(wanted, others, total.rows)
    if most is None:
        raise InputError(
            f'[model] kind = "additive" has at most {MAX_CODES:,} effects, too few for '
            f'{len(wanted):,} columns; set kind = "{_linear_kind(schema)}", or name fewer features'
        )
    return most


def _linear_kind(schema: Schema) -> str:
    return "linear" if schema.target.is_quantity else "logistic"


def bin_rounds(schema: Schema, total: SiteSummary) -> BinRounds:
    """Choose bins of number columns; yields grids, is sent the counts in all grids so far.

    Counts are one vector for each round, over all columns in turn.
    """
    most = codes_per_column(schema, total)
    bins = fine_bins(most, len(schema.features), total.rows)
    numbers = [f.column for f in schema.features if f.kind in (Kind.NUMERIC, Kind.DATE)]
    sums = {column: total.quantities[column] for column in numbers}
    rounds: list[Grids] = [
        tuple(first_grid(c, own, bins) for c, own in sums.items() if own.count and own.variance > 0)
    ]
    counts: Sequence[Counts] = ()
    while sum(grid.numbers for grid in rounds[-1]):
        counts = yield rounds[-1]
        if len(rounds) > REFINEMENTS:
            break
        by_column = counts_by_column(rounds, counts)
        rounds.append(tuple(refined(grid, by_column[grid.column]) for grid in rounds[-1]))
    by_column = counts_by_column(rounds, counts)
    return {grid.column: bins_of(grid, by_column[grid.column], most) for grid in rounds[-1]}


def bins_in_memory(
    schema: Schema, total: SiteSummary, sites: Sequence[FeatureRows]
) -> dict[str, ColumnBins]:
    """Choose bins for sites whose training rows, summarised in ``total``, are all at hand."""
    rounds = bin_rounds(schema, total)
    counts: list[Counts] = []
    try:
        grids = next(rounds)
        while True:
            counts.append(reduce(add, (count_grids(site.quantities, grids) for site in sites)))
            grids = rounds.send(counts)
    except StopIteration as finished:
        bins: dict[str, ColumnBins] = finished.value
        return bins


def count_grids(quantities: Mapping[str, Values], grids: Grids) -> Counts:
    """Return the counts of a site's values in the last refinement of all grids, in turn."""
    counts = [count_cells(quantities[grid.column], grid) for grid in grids]
    return np.concatenate(counts) if counts else np.zeros(0, np.int64)


def counts_by_column(rounds: Sequence[Grids], counts: Sequence[Counts]) -> dict[str, list[Counts]]:
    """Return the counts of each column in all rounds."""
    by_column: dict[str, list[Counts]] = {grid.column: [] for grid in rounds[0]}
    for grids, vector in zip(rounds, counts, strict=False):
        ends = np.cumsum([grid.numbers for grid in grids])[:-1]
        for grid, own in zip(grids, np.split(vector, ends), strict=True):
            by_column[grid.column].append(own)
    return by_column


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
