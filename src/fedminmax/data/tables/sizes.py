"""What users must know about group sizes before they believe a group's risk."""

import math
from collections.abc import Mapping, Sequence

from fedminmax.data.tables.encoding import Encoding
from fedminmax.data.tables.groups import GroupKey
from fedminmax.data.tables.holder_summary import HolderSummary


def size_warnings(
    encoding: Encoding, train: Mapping[GroupKey, int], test: Mapping[GroupKey, int]
) -> list[str]:
    """Warn of groups that are too small for their risk to be more than noise."""
    least = encoding.schema.minimum_group_size
    return [
        _warning(name, train[key], test.get(key, 0), encoding)
        for key, name in zip(encoding.groups, encoding.group_names, strict=True)
        if train[key] < least or (test and test.get(key, 0) < least)
    ]


def absence_note(encoding: Encoding, holders: Sequence[HolderSummary]) -> list[str]:
    """Say which groups are not with every holder."""
    having = {
        name: sum(key in holder.group_counts for holder in holders)
        for key, name in zip(encoding.groups, encoding.group_names, strict=True)
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
