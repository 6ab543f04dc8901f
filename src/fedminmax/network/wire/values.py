"""What travels so that sites agree on categories: counts by bucket, then names of common values.

Counts are those of ``data.tables.agreed_values``, one column after the other. A site names a value
only where the totals that it is told say so, and takes no list with a value that they do not allow.
It cannot know whether these totals are true; but they may open at most half of the buckets, so that
a server that lies learns at most one in 2^TABLES of the rare values that it cannot guess.
"""

from collections.abc import Mapping
from functools import cache
from typing import Annotated

import torch
from pydantic import Field, TypeAdapter, ValidationError
from torch import Tensor

from fedminmax.config.schema import Schema
from fedminmax.data.tables.agreed_values import (
    BUCKETS,
    MAX_LENGTH,
    MAX_VALUES,
    TABLES,
    Counts,
    bucket_counts,
    may_be_named,
)
from fedminmax.data.tables.parse_rows import FeatureRows
from fedminmax.network.wire.codec import (
    RefusedError,
    check_length,
    checked_bytes,
    read_vectors,
    write_vectors,
)

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


def max_totals_bytes(schema: Schema) -> int:
    """Return the maximum size of a message with the counts over all sites."""
    return 8 * COUNTS_PER_COLUMN * len(schema.open_columns) + HEADER_BYTES


def totals_to_bytes(totals: Tensor) -> bytes:
    """Write the counts over all sites."""
    return write_vectors({"totals": totals})


def totals_from_bytes(message: object, schema: Schema, sender: str) -> Tensor:
    """Read the counts over all sites."""
    length = COUNTS_PER_COLUMN * len(schema.open_columns)
    limit = max_totals_bytes(schema)
    vectors = read_vectors(message, {"totals": (torch.int64,)}, limit, sender)
    check_length(vectors, "totals", length, sender)
    return vectors["totals"]


@cache
def _adapter() -> TypeAdapter[dict[str, Names]]:
    return TypeAdapter(dict[str, Names])


def values_to_bytes(values: Mapping[str, tuple[str, ...]]) -> bytes:
    """Write values by column as JSON."""
    return _adapter().dump_json(dict(values))


def values_from_bytes(message: object, schema: Schema, sender: str) -> dict[str, tuple[str, ...]]:
    """Read values of all columns that the sites have yet to agree on, each once and in order."""
    content = checked_bytes(message, MAX_NAMES_BYTES, sender)
    try:
        values = _adapter().validate_json(content)
    except ValidationError as error:
        raise RefusedError(
            f"{sender} sent no lists of at most {MAX_VALUES:,} values by column; refused"
        ) from error
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
