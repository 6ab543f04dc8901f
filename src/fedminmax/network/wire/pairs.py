"""Pairs of an additive model's columns, as they travel with a question before they are chosen."""

from functools import cache

from pydantic import TypeAdapter, ValidationError

from fedminmax.core.additive.model import Pair
from fedminmax.data.tables.encoding import Encoding
from fedminmax.network.wire.codec import RefusedError, checked_bytes
from fedminmax.training.additive_class import MAX_COLUMNS_OF_PAIRS, MOST_CELLS

MAX_PAIRS_BYTES = 2**24
Pairs = tuple[Pair, ...]


@cache
def _adapter() -> TypeAdapter[Pairs]:
    return TypeAdapter(Pairs)


def pairs_to_bytes(pairs: Pairs) -> bytes:
    """Write pairs as JSON."""
    return _adapter().dump_json(pairs)


def pairs_from_bytes(message: object, encoding: Encoding, sender: str) -> Pairs:
    """Read pairs of an encoding's columns; refuse finer cells than any that can be chosen."""
    content = checked_bytes(message, MAX_PAIRS_BYTES, sender)
    try:
        pairs = _adapter().validate_json(content)
    except ValidationError as error:
        raise RefusedError(f"{sender} did not send pairs; refused") from error
    sizes = [block.size for block in encoding.blocks]
    if len(pairs) > MAX_COLUMNS_OF_PAIRS * (MAX_COLUMNS_OF_PAIRS - 1) // 2:
        raise RefusedError(f"{sender} sent {len(pairs):,} pairs, more than it may try; refused")
    for pair in pairs:
        columns = 0 <= pair.first < pair.second < len(sizes)
        if not columns or not (
            _are_cells(pair.first_cells, sizes[pair.first])
            and _are_cells(pair.second_cells, sizes[pair.second])
        ):
            raise RefusedError(f"{sender} sent a pair of other columns or cells; refused")
    return pairs


def _are_cells(cells: tuple[int, ...], size: int) -> bool:
    return len(cells) == size and min(cells) >= 0 and max(cells) < MOST_CELLS
