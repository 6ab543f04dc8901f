"""Encodings as JSON, in a trained model's folder and on the way to sites, and what they must be."""

import math
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise

from pydantic import TypeAdapter, ValidationError

from fedminmax.config.schema import Kind
from fedminmax.core.additive.model import Pair
from fedminmax.core.errors import InputError
from fedminmax.data.tables.bins import MAX_BINS, MAX_CODES
from fedminmax.data.tables.encoding import (
    BinnedQuantity,
    CodedCategory,
    CodedFeature,
    EncodedCategory,
    EncodedQuantity,
    Encoding,
)
from fedminmax.data.tables.groups import merged_key
from fedminmax.data.tables.plain_fit import are_inputs

MAX_CELLS = 1_000


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
    elif encoding.plain_fit and not encoding.plain_fit.fits(
        sum(block.size for block in encoding.blocks), encoding.outputs
    ):
        yield "has a plain fit of other codes"
    elif encoding.inputs and not are_inputs(encoding.inputs, encoding.blocks, encoding.scores):
        yield "has inputs of other codes"


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
