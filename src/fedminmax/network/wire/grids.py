"""What travels so that sites agree on an additive model: grids of number columns, then pairs.

A grid comes from the server, and cells that are narrower or more than the agreed rule makes could
single out rows. So a site takes grids of its plan's number columns alone, each a possible one, the
first of a job as it is and each further one as a refinement of the one before. Pairs of columns
travel with a question before they are chosen.
"""

from dataclasses import replace
from functools import cache

from pydantic import TypeAdapter, ValidationError

from fedminmax.config.schema import Kind, Schema
from fedminmax.core.additive.model import Pair
from fedminmax.data.tables.agree import Grids
from fedminmax.data.tables.bins import CELLS_PER_BIN, MAX_FINE_BINS
from fedminmax.data.tables.encoding import Encoding
from fedminmax.network.wire.codec import RefusedError, checked_bytes
from fedminmax.training.additive_class import MAX_COLUMNS_OF_PAIRS, MOST_CELLS

MAX_GRIDS_BYTES = 2**25
MAX_PAIRS_BYTES = 2**24
Pairs = tuple[Pair, ...]


@cache
def _adapter() -> TypeAdapter[Grids]:
    return TypeAdapter(Grids)


def grids_to_bytes(grids: Grids) -> bytes:
    """Write grids as JSON."""
    return _adapter().dump_json(grids)


def grids_from_bytes(message: object, schema: Schema, before: Grids, sender: str) -> Grids:
    """Read grids; refuse those that do not follow from the grids ``before``, which may be none."""
    content = checked_bytes(message, MAX_GRIDS_BYTES, sender)
    try:
        grids = _adapter().validate_json(content)
    except ValidationError as error:
        raise RefusedError(f"{sender} did not send grids; refused") from error
    numbers = [f.column for f in schema.features if f.kind in (Kind.NUMERIC, Kind.DATE)]
    columns = [grid.column for grid in grids]
    if not grids or columns != [column for column in numbers if column in columns]:
        raise RefusedError(f"{sender} sent grids of other columns than its plan's; refused")
    if sum(grid.cells for grid in grids) > CELLS_PER_BIN * MAX_FINE_BINS:
        raise RefusedError(f"{sender} sent grids with too many cells; refused")
    for grid in grids:
        for fault in grid.faults():
            raise RefusedError(f"{sender} sent a grid of '{grid.column}' with {fault}; refused")
    if tuple(replace(grid, splits=grid.splits[:-1]) for grid in grids) != before and not (
        # The same may be asked again, from the first grid on.
        all(not grid.splits for grid in grids) or grids == before
    ):
        raise RefusedError(f"{sender} sent grids that do not refine those before; refused")
    return grids


@cache
def _adapter_of_pairs() -> TypeAdapter[Pairs]:
    return TypeAdapter(Pairs)


def pairs_to_bytes(pairs: Pairs) -> bytes:
    """Write pairs as JSON."""
    return _adapter_of_pairs().dump_json(pairs)


def pairs_from_bytes(message: object, encoding: Encoding, sender: str) -> Pairs:
    """Read pairs of an encoding's columns; refuse finer cells than any that can be chosen."""
    content = checked_bytes(message, MAX_PAIRS_BYTES, sender)
    try:
        pairs = _adapter_of_pairs().validate_json(content)
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
