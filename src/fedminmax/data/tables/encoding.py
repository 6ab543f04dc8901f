"""The encoding that all sites share: computed from summed summaries, exactly as from pooled rows.

For linear models, and networks on columns, a quantity becomes its distance from the mean in
standard deviations, with 0 and a separate flag for a missing value. A category becomes one column
per category that occurs in training, also with a flag for missing values. A category that is not
listed, or does not occur in training, is all zeros, in training and in predictions.

For additive models every feature becomes one code: the bin of a quantity (``data.tables.bins``), or
the number of a category; a missing value has a code of its own where training has such values, and
rare categories share the last code with unseen ones. Pairs of features have codes, too. How
strongly a model smooths the effects of codes is part of the encoding (``core.additive``). Networks
have the effects of these codes as inputs (``data.tables.plain_fit``).

A trained model's folder has the encoding as JSON.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from itertools import pairwise

from pydantic import ConfigDict, with_config

from fedminmax.config.schema import Schema
from fedminmax.config.sections import Direction
from fedminmax.core.additive.model import DIRECTIONS, Block, Pair, positions_of
from fedminmax.core.bounds import RowLengths
from fedminmax.data.tables.groups import GroupKey, group_name, merged_key
from fedminmax.data.tables.plain_fit import Inputs, PlainFit, input_names, longest_row

# Records of four kinds are told apart by their fields.
STRICT = ConfigDict(extra="forbid")


@with_config(STRICT)
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


@with_config(STRICT)
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


@with_config(STRICT)
@dataclass(frozen=True)
class BinnedQuantity:
    """Numbers, booleans and dates of an additive model: a value has the code of its bin.

    A bin begins with its edge. Missing values have the last code if ``flags_missing``, otherwise
    that of the bin ``fallback``. ``mean`` and ``deviation`` are those of the training rows. The
    effect of a ``monotone`` column may only go up, or down, from bin to bin. If there are
    ``nodes``, other bins have no effect of their own (``core.additive.model.Block``).
    """

    column: str
    edges: tuple[float, ...]
    flags_missing: bool
    fallback: int
    smoothing: float = 0.0
    _: KW_ONLY
    nodes: tuple[int, ...] = ()
    mean: float = 0.0
    deviation: float = 0.0
    monotone: Direction | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the codes."""
        flag = _flag(self.column, flagged=self.flags_missing)
        if not self.edges:
            return (f"{self.column} is there", *flag)
        marks = [f"{edge:.10g}" for edge in self.edges]
        between = (f"{self.column} {low} to {high}" for low, high in pairwise(marks))
        ends = f"{self.column} under {marks[0]}", f"{self.column} {marks[-1]} and over"
        return (ends[0], *between, ends[1], *flag)

    @property
    def block(self) -> Block:
        """How many codes there are; two bins have no order that could be smooth."""
        bins = len(self.edges) + 1
        rising = bins * DIRECTIONS[self.monotone] if self.monotone else 0
        if bins <= 2:
            return Block(bins + self.flags_missing, 0, self.smoothing, rising=rising)
        places = positions_of(self.edges)
        return Block(bins + self.flags_missing, bins, self.smoothing, places, rising, self.nodes)


@with_config(STRICT)
@dataclass(frozen=True)
class CodedCategory:
    """Categories of an additive model: a code each, then missing if flagged, then all others."""

    column: str
    categories: tuple[str, ...]
    flags_missing: bool
    smoothing: float = 0.0

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the codes."""
        values = (f"{self.column} = {category}" for category in self.categories)
        flag = _flag(self.column, flagged=self.flags_missing)
        return (*values, *flag, f"{self.column} is another value")

    @property
    def block(self) -> Block:
        """How many codes there are."""
        return Block(len(self.categories) + self.flags_missing + 1, smoothing=self.smoothing)


LinearFeature = EncodedQuantity | EncodedCategory
CodedFeature = BinnedQuantity | CodedCategory


@dataclass(frozen=True)
class Scale:
    """Mean and standard deviation of a target that is a quantity."""

    mean: float
    deviation: float


@dataclass(frozen=True)
class Encoding:
    """How rows become tensors; ``dropped`` features are constant in training.

    ``pairs`` of features, the number of training ``records`` and the ``plain_fit`` are those of an
    additive model. With ``inputs`` rows have what a network sees of that model.
    ``small_groups`` are the groups with too few training rows for minimax training;
    ``merged_groups`` are no longer separate groups, but part of the merged one.
    """

    schema: Schema
    features: tuple[LinearFeature | CodedFeature, ...]
    groups: tuple[GroupKey, ...]
    _: KW_ONLY
    target_scale: Scale | None
    dropped: tuple[str, ...]
    small_groups: tuple[GroupKey, ...] = ()
    merged_groups: tuple[GroupKey, ...] = ()
    pairs: tuple[Pair, ...] = ()
    records: int = 0
    plain_fit: PlainFit | None = None
    inputs: Inputs = ()

    @property
    def is_coded(self) -> bool:
        """Whether features become codes."""
        return all(isinstance(feature, CodedFeature) for feature in self.features)

    @property
    def is_additive(self) -> bool:
        """Whether rows are codes of an additive model."""
        return self.is_coded and not self.inputs

    @property
    def scores(self) -> int:
        """How many scores there are: one, or one for each of more than two classes."""
        return self.outputs if self.outputs > 2 else 1

    @property
    def longest_row(self) -> float:
        """The squared length of every coded row, a 1 appended, or a bound on it."""
        if self.inputs:
            return longest_row(self.inputs, self.scores)
        return len(self.blocks) + 1.0

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks of an additive model: one for each feature, then one for each pair."""
        coded = (feature for feature in self.features if isinstance(feature, CodedFeature))
        return (*(feature.block for feature in coded), *(pair.block for pair in self.pairs))

    @property
    def directions(self) -> dict[str, Direction]:
        """The columns of an additive model whose effects are monotone."""
        bins = (feature for feature in self.features if isinstance(feature, BinnedQuantity))
        return {feature.column: feature.monotone for feature in bins if feature.monotone}

    @property
    def stage(self) -> int:
        """0 before smoothing and pairs are chosen, or without any; then 1."""
        return int(any(block.smoothing for block in self.blocks))

    @property
    def risk_unit(self) -> float:
        """The factor that converts squared errors to the target's unit, squared; else 1."""
        return self.target_scale.deviation**2 if self.target_scale else 1.0

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns that the model sees, or of all codes, in their order."""
        if self.inputs:
            own = [feature.column for feature in self.features]
            both = (f"{own[pair.first]} and {own[pair.second]}" for pair in self.pairs)
            classes = self.schema.target.classes
            return input_names(self.inputs, [*own, *both], classes[: self.scores])
        columns = [name for feature in self.features for name in feature.names]
        cells = [
            f"{self.features[pair.first].column} and {self.features[pair.second].column}, "
            f"cell {number // pair.width + 1}, {number % pair.width + 1}"
            for pair in self.pairs
            for number in range(pair.block.size)
        ]
        return (*columns, *cells)

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


def with_smoothing(
    encoding: Encoding, values: Sequence[float], pairs: Sequence[Pair] = ()
) -> Encoding:
    """Return the encoding of an additive model with these pairs, and a smoothing of each block."""
    features = tuple(
        replace(feature, smoothing=value) if isinstance(feature, CodedFeature) else feature
        for feature, value in zip(encoding.features, values, strict=False)
    )
    chosen = (
        replace(pair, smoothing=value)
        for pair, value in zip(pairs, values[len(features) :], strict=True)
    )
    return replace(encoding, features=features, pairs=tuple(chosen))


def with_directions(encoding: Encoding, monotone: Mapping[str, Direction]) -> Encoding:
    """Return the encoding of an additive model whose effects of these columns are monotone."""
    features = tuple(
        replace(feature, monotone=monotone.get(feature.column))
        if isinstance(feature, BinnedQuantity)
        else feature
        for feature in encoding.features
    )
    return replace(encoding, features=features)


def unsmoothed(encoding: Encoding) -> Encoding:
    """Return the encoding before smoothing and pairs were chosen."""
    plain = with_smoothing(encoding, [0.0] * len(encoding.features))
    return replace(plain, plain_fit=None, inputs=())


def _flag(column: str, *, flagged: bool) -> tuple[str, ...]:
    return (f"{column} is missing",) if flagged else ()


def lengths_with(lengths: RowLengths, before: Encoding, now: Encoding) -> RowLengths:
    """Return the lengths of coded rows that are encoded again."""
    return replace(lengths, rows=lengths.rows * math.sqrt(now.longest_row / before.longest_row))
