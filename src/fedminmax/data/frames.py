"""Data frames of pandas or polars as sites' rows: named columns become (x, y, group).

All columns but the target and the group columns are features, in the order of the first frame, and
hold numbers. The target is a class number or a quantity; groups may have any values, which are also
their names. Text features and labels need an encoding: use ``fedminmax train`` for those.

The group of each row, from sensitive attributes in any form that Fairlearn accepts.

One column, or several that are crossed: a Series, a list or an array (of one or two dimensions), a
data frame of pandas or polars, a dict of columns. Only combinations that occur become groups.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

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


# Numpy's kinds of booleans and numbers.
NUMBERS = "biuf"
Arrays = tuple[NDArray[Any], NDArray[Any], NDArray[np.int64]]


class Frame(Protocol):
    """The interface of a data frame, of either library."""

    @property
    def columns(self) -> Any:
        """The columns' names."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, column: Any, /) -> Any: ...


@dataclass(frozen=True)
class FrameColumns:
    """Which column is the target, and which ones define the groups; several are crossed."""

    target: str
    group: tuple[str, ...]


def is_frame(given: object) -> bool:
    """Return whether an object is a data frame of pandas or polars."""
    return hasattr(given, "columns") and hasattr(given, "to_numpy")


def frame_columns(target: str | None, group: str | Sequence[str] | None) -> FrameColumns:
    """Check the names of the target and group columns."""
    if not isinstance(target, str) or group is None:
        raise InputError(
            f"sites are data frames, with target = {target!r} and group = {group!r}; name their "
            "columns, such as target='outcome', group='sex'"
        )
    groups = (group,) if isinstance(group, str) else tuple(group)
    if not groups or not all(isinstance(name, str) for name in groups) or target in groups:
        raise InputError(
            f"group = {group!r}; give the name of a column that is not the target, or several"
        )
    return FrameColumns(target, groups)


def rows_of_frames(
    sites: Sequence[Frame], validation: Sequence[Frame], columns: FrameColumns
) -> tuple[list[Arrays], list[Arrays], tuple[str, ...]]:
    """Return (x, y, group) of training and validation frames, and the groups' names."""
    if not sites:
        raise InputError("no site has a row; give at least one site with data")
    features = _feature_names(sites[0], columns)
    owners = [f"site {number}" for number in range(len(sites))]
    owners += [f"validation rows of site {number}" for number in range(len(validation))]
    frames = [*sites, *validation]
    for frame, owner in zip(frames, owners, strict=True):
        _check_columns(frame, features, columns, owner)
    groups = _groups(frames, columns)
    ends = np.cumsum([len(frame) for frame in frames])
    numbers = np.split(groups.numbers, ends[:-1])
    arrays = [
        (_features(frame, features, owner), _numbers(frame, columns.target, owner), group)
        for frame, owner, group in zip(frames, owners, numbers, strict=True)
    ]
    return arrays[: len(sites)], arrays[len(sites) :], groups.names


def _feature_names(frame: Frame, columns: FrameColumns) -> list[str]:
    features = [name for name in frame.columns if name not in (columns.target, *columns.group)]
    if not features:
        raise InputError("site 0: the data frame has no column besides target and group")
    return features


def _check_columns(
    frame: Frame, features: Sequence[str], columns: FrameColumns, owner: str
) -> None:
    """Refuse a frame with a missing, duplicate or extra column."""
    names = list(frame.columns)
    wanted = {*features, columns.target, *columns.group}
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{owner}: two columns are named {name!r}; rename one")
        if name not in wanted:
            raise InputError(
                f"{owner}: column {name!r} is not in the data frame of site 0; drop it"
            )
    for name in (columns.target, *columns.group, *features):
        if name not in names:
            raise InputError(f"{owner}: there is no column {name!r}; it has {names}")


def _groups(frames: Sequence[Frame], columns: FrameColumns) -> RowGroups:
    """Number the groups over all frames, so that a value is the same group everywhere."""
    values = {
        name: np.concatenate([np.asarray(frame[name]).astype(object) for frame in frames])
        for name in columns.group
    }
    try:
        return group_rows(values, sum(len(frame) for frame in frames))
    except InputError as error:
        raise InputError(f"group columns of all sites together: {error}") from error


def _features(frame: Frame, features: Sequence[str], owner: str) -> NDArray[Any]:
    return np.stack([_numbers(frame, name, owner).astype(np.float64) for name in features], axis=1)


def _numbers(frame: Frame, name: str, owner: str) -> NDArray[Any]:
    values = np.asarray(frame[name])
    if values.dtype.kind not in NUMBERS:
        raise InputError(
            f"{owner}: column {name!r} holds {frame[name].dtype}, not numbers; encode it, or let "
            "'fedminmax train' do so"
        )
    return values
