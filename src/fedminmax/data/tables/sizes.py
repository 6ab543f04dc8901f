"""What users must know about group sizes before they believe a group's risk."""

import math
from collections.abc import Mapping, Sequence

from fedminmax.core.small_groups import MERGED_NAME, small_group_notes
from fedminmax.data.tables.encoding import Encoding
from fedminmax.data.tables.groups import GroupKey, group_name
from fedminmax.data.tables.holder_summary import HolderSummary


def size_warnings(
    encoding: Encoding, train: Mapping[GroupKey, int], test: Mapping[GroupKey, int]
) -> list[str]:
    """Warn of groups that are too small for their risk to be more than noise."""
    least = encoding.schema.minimum_group_size
    rows = zip(encoding.group_names, encoding.count(train), encoding.count(test), strict=True)
    return [
        _warning(name, trained, tested, encoding)
        for name, trained, tested in rows
        if trained < least or (test and tested < least)
    ]


def small_group_remarks(encoding: Encoding, train: Mapping[GroupKey, int]) -> list[str]:
    """Say which groups were merged, and which have too few training rows to be trained for."""
    schema = encoding.schema
    merged = [f"'{group_name(key, schema)}'" for key in encoding.merged_groups]
    note = (
        f"merged into '{MERGED_NAME}', with fewer than {schema.minimum_group_size:,} training rows "
        f"each: {', '.join(merged)}"
    )
    rows, names = encoding.count(train), encoding.group_names
    small = small_group_notes(rows, names, schema.minimum_group_size, schema.small_groups)
    return [note, *small] if merged else small


def absence_note(encoding: Encoding, holders: Sequence[HolderSummary]) -> list[str]:
    """Say which groups are not with every holder."""
    counts = [encoding.count(holder.group_counts) for holder in holders]
    having = {
        name: sum(rows[number] > 0 for rows in counts)
        for number, name in enumerate(encoding.group_names)
    }
    rare = [
        f"'{name}' with {n} of {len(holders)}" for name, n in having.items() if n < len(holders)
    ]
    return [f"not every holder has every group: {', '.join(rare)}"] if rare else []


def standard_error(rows: int, *, regression: bool) -> str:
    """Return how far chance alone moves a risk that is measured on this many rows.

    An error rate p has the standard error sqrt(p (1 - p) / n), at most 0.5 / sqrt(n). A mean
    squared error with normal residuals has sqrt(2 / n) of itself.

    >>> standard_error(25, regression=False)
    'up to 0.1 in its error rate'
    >>> standard_error(200, regression=True)
    'about 10 % of its squared error'
    """
    if regression:
        return f"about {100 * math.sqrt(2 / rows):.2g} % of its squared error"
    return f"up to {0.5 / math.sqrt(rows):.2g} in its error rate"


def _warning(name: str, train: int, test: int, encoding: Encoding) -> str:
    regression = encoding.schema.target.is_quantity
    error = standard_error(test or train, regression=regression)
    return (
        f"group '{name}' has {train:,} training and {test:,} test rows, under the minimum of "
        f"{encoding.schema.minimum_group_size:,}: its risk is mostly noise, with a standard error "
        f"of {error}"
    )
