"""The encoding that all sites share: computed from summed summaries, exactly as from pooled rows.

For linear models and networks, a quantity becomes its distance from the mean in standard
deviations, with 0 and a separate flag for a missing value. A category becomes one column per
category that occurs in training, also with a flag for missing values. A category that is not
listed, or does not occur in training, is all zeros, in training and in predictions.

For additive models every feature becomes one code: the bin of a quantity (``data.tables.bins``), or
the number of a category; a missing value has a code of its own where training has such values, and
rare categories share the last code with unseen ones. Pairs of features have codes, too. How
strongly a model smooths the effects of codes is part of the encoding (``core.additive``).

A trained model's folder has the encoding as JSON.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cache
from itertools import pairwise

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from fedminmax.config.schema import Kind, Schema
from fedminmax.config.sections import Direction
from fedminmax.core.additive.model import DIRECTIONS, Block, Pair, positions_of
from fedminmax.core.bounds import RowLengths
from fedminmax.core.errors import InputError
from fedminmax.data.tables.bins import MAX_BINS, MAX_CODES
from fedminmax.data.tables.groups import GroupKey, group_name, merged_key
from fedminmax.data.tables.plain_fit import PlainFit

MAX_CELLS = 1_000
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
    additive model.
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

    @property
    def is_additive(self) -> bool:
        """Whether rows become codes of an additive model."""
        return all(isinstance(feature, CodedFeature) for feature in self.features)

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
    return replace(plain, plain_fit=None)


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
    check_encoding(encoding, source)
    return encoding


def check_encoding(encoding: Encoding, source: str) -> None:
    """Refuse an encoding that contradicts its schema."""
    for fault in _contradictions(encoding):
        raise InputError(f"{source} is damaged: its encoding {fault}; train again")


def _contradictions(encoding: Encoding) -> Iterator[str]:
    """Yield contradictions between an encoding and its schema."""
    by_column = {feature.column: feature for feature in encoding.schema.features}
    if len({feature.column for feature in encoding.features}) < len(encoding.features):
        yield "has a feature twice"
    for feature in encoding.features:
        like = by_column.get(feature.column)
        categories = isinstance(feature, EncodedCategory | CodedCategory)
        if like is None or (like.kind is Kind.CATEGORY) != categories:
            yield f"has a feature '{feature.column}' that its schema does not have"
        elif isinstance(feature, EncodedCategory | CodedCategory):
            if not {*feature.categories} <= {*like.categories}:
                yield f"has categories of '{feature.column}' that its schema does not have"
            if len({*feature.categories}) < len(feature.categories):
                yield f"has a category of '{feature.column}' twice"
        elif isinstance(feature, EncodedQuantity):
            if not _is_scale(feature):
                yield f"has no usable mean and deviation of '{feature.column}'"
        elif not _are_bins(feature):
            yield f"has no usable bins of '{feature.column}'"
    yield from _additive_contradictions(encoding)
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


def _additive_contradictions(encoding: Encoding) -> Iterator[str]:
    coded = [feature for feature in encoding.features if isinstance(feature, CodedFeature)]
    if coded and len(coded) < len(encoding.features):
        yield "has features of additive and of other models"
    if bool(coded) != (encoding.records > 0) or (encoding.pairs and not coded):
        yield "is half that of an additive model"
    if sum(feature.block.own.size for feature in coded) > MAX_CODES:
        yield f"has more than {MAX_CODES:,} effects"
    if not all(_is_pair(pair, coded) for pair in encoding.pairs):
        yield "has a pair that its features cannot have"
    elif any(coded[n].block.rising for pair in encoding.pairs for n in (pair.first, pair.second)):
        yield "has a pair with a column whose effect is monotone"
    elif not all(0 <= block.smoothing < math.inf for block in encoding.blocks):
        yield "has no usable smoothing"
    elif encoding.plain_fit and not encoding.plain_fit.fits(len(encoding.names), encoding.outputs):
        yield "has a plain fit of other codes"


def _is_pair(pair: Pair, coded: Sequence[CodedFeature]) -> bool:
    if not 0 <= pair.first < pair.second < len(coded):
        return False
    sizes = [coded[number].block.size for number in (pair.first, pair.second)]
    cells = pair.first_cells, pair.second_cells
    whole = [len(own) for own in cells] == sizes and min(map(min, cells)) >= 0
    return whole and pair.block.size <= MAX_CELLS


def _are_bins(feature: BinnedQuantity) -> bool:
    edges = feature.edges
    increase = all(low < high for low, high in pairwise(edges)) and len(edges) < MAX_BINS
    nodes = feature.nodes
    if nodes and not (
        all(low < high for low, high in pairwise(nodes))
        and (nodes[0], nodes[-1]) == (0, len(edges))
        and len(edges) > 1
    ):
        return False
    finite = all(map(math.isfinite, (*edges, feature.mean, feature.deviation)))
    return increase and finite and 0 <= feature.fallback <= len(edges) and feature.block.size > 1


def _is_scale(feature: EncodedQuantity) -> bool:
    finite = math.isfinite(feature.mean) and math.isfinite(feature.deviation)
    return finite and (feature.deviation > 0 or not feature.varies)


def longer_lengths(lengths: RowLengths, before: int, now: int) -> RowLengths:
    """Return the lengths of coded rows with another number of blocks."""
    return replace(lengths, rows=lengths.rows * math.sqrt((now + 1.0) / (before + 1.0)))
