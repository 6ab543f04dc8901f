"""What travels so that sites agree: on categories of values, and on an additive model.

Categories: counts by bucket, then names of common values. Counts are those of
``data.tables.agreed_values``, one column after the other. A site names a value only where the
totals that it is told say so, and takes no list with a value that they do not allow. It cannot know
whether these totals are true; but they may open at most half of the buckets, so that a server that
lies learns at most one in 2^TABLES of the rare values that it cannot guess.

An additive model: grids of number columns, then pairs. A grid comes from the server, and cells that
are narrower or more than the agreed rule makes could single out rows. So a site takes grids of its
plan's number columns alone, each a possible one, the first of a job as it is and each further one
as a refinement of the one before. Pairs of columns travel with a question before they are chosen.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from fedminmax.config.schema import Kind, Schema
from fedminmax.core.additive.model import Pair
from fedminmax.data.tables.agree import Grids
from fedminmax.data.tables.agreed_values import (
    BUCKETS,
    MAX_LENGTH,
    MAX_VALUES,
    TABLES,
    Counts,
    bucket_counts,
    may_be_named,
)
from fedminmax.data.tables.bins import CELLS_PER_BIN, MAX_FINE_BINS
from fedminmax.data.tables.encoding import Encoding
from fedminmax.data.tables.parse_rows import FeatureRows
from fedminmax.network.wire.codec import (
    RefusedError,
    check_length,
    read_vectors,
    record_from_bytes,
    write_vectors,
)
from fedminmax.training.additive_class import MAX_COLUMNS_OF_PAIRS, MOST_CELLS

COUNTS_PER_COLUMN = TABLES * BUCKETS
# More columns than this would make messages that a transport does not take.
MAX_OPEN_COLUMNS = 50
MAX_NAMES_BYTES = 2**25
HEADER_BYTES = 2**12
Names = Annotated[
    tuple[Annotated[str, Field(max_length=MAX_LENGTH)], ...], Field(max_length=MAX_VALUES)
]


def counts_of(rows: FeatureRows, schema: Schema) -> Tensor:
    """Return the counts by bucket of all columns that the sites have yet to agree on."""
    counts = [torch.from_numpy(bucket_counts(rows, name)) for name in schema.open_columns]
    return torch.cat([own.flatten() for own in counts])


def by_column(counts: Tensor, schema: Schema) -> dict[str, Counts]:
    """Return the counts of each column [TABLES, BUCKETS]."""
    shaped = counts.reshape(len(schema.open_columns), TABLES, BUCKETS).numpy()
    return dict(zip(schema.open_columns, shaped, strict=True))


def check_counts(counts: Tensor, schema: Schema, most: int, sender: str) -> None:
    """Refuse counts that no rows can have: each table counts the same rows."""
    for column, tables in by_column(counts, schema).items():
        rows = tables.sum(axis=1)
        if tables.min() < 0 or len({*rows.tolist()}) > 1 or rows[0] > most:
            raise RefusedError(f"{sender} sent impossible counts of the values of '{column}'")


def totals_to_bytes(totals: Tensor) -> bytes:
    """Write the counts over all sites."""
    return write_vectors({"totals": totals})


def totals_from_bytes(message: object, schema: Schema, sender: str) -> Tensor:
    """Read the counts over all sites."""
    length = COUNTS_PER_COLUMN * len(schema.open_columns)
    limit = 8 * length + HEADER_BYTES
    vectors = read_vectors(message, {"totals": (torch.int64,)}, limit, sender)
    check_length(vectors, "totals", length, sender)
    return vectors["totals"]


Values = dict[str, Names]


def values_from_bytes(message: object, schema: Schema, sender: str) -> dict[str, tuple[str, ...]]:
    """Read values of all columns that the sites have yet to agree on, each once and in order."""
    what = f"lists of at most {MAX_VALUES:,} values by column"
    values: Values = record_from_bytes(message, Values, MAX_NAMES_BYTES, sender, what)
    if values.keys() != {*schema.open_columns}:
        raise RefusedError(f"{sender} sent values of other columns than those without a list")
    for column, own in values.items():
        if list(own) != sorted(set(own)):
            raise RefusedError(f"{sender} sent values of '{column}' twice or in no order; refused")
    return values


def names_from_bytes(
    message: object, totals: Tensor, schema: Schema, sender: str
) -> dict[str, tuple[str, ...]]:
    """Read the values that a site names; refuse those that are too rare by these totals."""
    names = values_from_bytes(message, schema, sender)
    check_names(names, totals, schema, sender)
    return names


def check_names(
    names: Mapping[str, tuple[str, ...]], totals: Tensor, schema: Schema, sender: str
) -> None:
    """Refuse values that are too rare by these totals."""
    for column, counts in by_column(totals, schema).items():
        if not all(may_be_named(value, counts) for value in names[column]):
            raise RefusedError(f"{sender} names a value of '{column}' that is too rare; refused")


MAX_GRIDS_BYTES = 2**25
MAX_PAIRS_BYTES = 2**24
Pairs = tuple[Pair, ...]


def grids_from_bytes(message: object, schema: Schema, before: Grids, sender: str) -> Grids:
    """Read grids; refuse those that do not follow from the grids ``before``, which may be none."""
    grids: Grids = record_from_bytes(message, Grids, MAX_GRIDS_BYTES, sender, "grids")
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


def pairs_from_bytes(message: object, encoding: Encoding, sender: str) -> Pairs:
    """Read pairs of an encoding's columns; refuse finer cells than any that can be chosen."""
    pairs: Pairs = record_from_bytes(message, Pairs, MAX_PAIRS_BYTES, sender, "pairs")
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
