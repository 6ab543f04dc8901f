"""The group of each row, from sensitive attributes in any form that Fairlearn accepts.

One column, or several that are crossed: a Series, a list or an array (of one or two dimensions), a
data frame of pandas or polars, a dict of columns. Only combinations that occur become groups.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedminmax.core.errors import InputError

SEPARATOR = " / "
EVERYONE = "all"


@dataclass(frozen=True, eq=False)
class RowGroups:
    """Each row's group as a number from 0, and the groups' names in the order of the numbers."""

    numbers: NDArray[np.int64]
    names: tuple[str, ...]

    @property
    def counts(self) -> NDArray[np.int64]:
        """Rows of each group."""
        return np.bincount(self.numbers, minlength=len(self.names))


def group_rows(sensitive_features: Any, rows: int) -> RowGroups:
    """Number the groups of ``rows`` rows; None puts all of them into one group.

    >>> group_rows({"sex": ["f", "m", "f"], "old": [True, True, False]}, 3).names
    ('f / False', 'f / True', 'm / True')
    """
    if sensitive_features is None:
        return RowGroups(np.zeros(rows, dtype=np.int64), (EVERYONE,))
    columns = _columns(sensitive_features)
    if not columns:
        raise InputError("sensitive_features has no column; give at least one, or None")
    parts = [_one_column(name, values, rows) for name, values in columns.items()]
    crossed = parts[0].numbers
    for part in parts[1:]:
        crossed = crossed * len(part.names) + part.numbers
    _, first, numbers = np.unique(crossed, return_index=True, return_inverse=True)
    names = tuple(SEPARATOR.join(part.names[part.numbers[row]] for part in parts) for row in first)
    if len(set(names)) < len(names):
        raise InputError(
            f"two groups have the same name, such as {max(names, key=names.count)!r}; "
            f"rename values of sensitive_features that contain {SEPARATOR!r}"
        )
    return RowGroups(numbers.astype(np.int64), names)


def number_values(name: str, values: Any, rows: int) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Number the values of one column from 0 in their order; return numbers and values.

    >>> number_values("sites", ["b", "a", "b"], 3)[0].tolist()
    [1, 0, 1]
    """
    column = np.asarray(values)
    if column.ndim == 2 and column.shape[1] == 1:
        column = column[:, 0]
    if column.ndim != 1 or len(column) != rows:
        raise InputError(f"{name} has shape {column.shape} for {rows} rows; give one entry per row")
    missing = is_missing(column)
    if missing.any():
        raise InputError(
            f"{name} is missing in {int(missing.sum())} of {rows} rows, first in row "
            f"{int(missing.argmax())}; give them their own value, or drop the rows"
        )
    comparable = column.astype(str) if column.dtype == object else column
    values_in_order, numbers = np.unique(comparable, return_inverse=True)
    return numbers.astype(np.int64), values_in_order


def _columns(given: Any) -> dict[str, Any]:
    if isinstance(given, Mapping):
        return {str(name): values for name, values in given.items()}
    if hasattr(given, "columns"):
        return {str(name): given[name] for name in given.columns}
    array = np.asarray(given)
    if array.ndim == 2:
        return {f"sensitive_features column {j}": array[:, j] for j in range(array.shape[1])}
    return {"sensitive_features": array}


def _one_column(name: str, values: Any, rows: int) -> RowGroups:
    numbers, distinct = number_values(name, values, rows)
    return RowGroups(numbers, tuple(map(str, distinct.tolist())))


def is_missing(column: NDArray[Any]) -> NDArray[np.bool_]:
    """Find None, NaN and NaT, and pandas' NA, which cannot be compared."""
    if column.dtype != object:
        return np.asarray(column != column)
    return np.array(
        [value is None or type(value).__name__ == "NAType" or value != value for value in column],
        dtype=bool,
    )
