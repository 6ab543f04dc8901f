"""Columns of records that may be larger than memory: beyond a size they are in a file on disk.

Such a file has no name, so it never travels, and it is gone when its process ends, however that
ends. The system keeps as much of it in memory as is free. It is in the folder that the environment
variable TMPDIR names, else in /var/tmp, which is on disk where /tmp is memory.
"""

import os
import tempfile
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray
from torch import Tensor

from fedminmax.core.errors import InputError

# Bytes of one column that memory holds.
MOST_IN_MEMORY = 2**26
# Records that are worked on at a time.
PORTION = 2**20
ArrayT = TypeVar("ArrayT", bound=NDArray[Any])
KeyT = TypeVar("KeyT", bound=Hashable)


def portions(records: int) -> Iterator[slice]:
    """Yield slices of all records in turn.

    >>> list(portions(3)), list(portions(0))
    ([slice(0, 3, None)], [])
    """
    return (slice(at, min(at + PORTION, records)) for at in range(0, records, PORTION))


def new_array(shape: Sequence[int], kind: DTypeLike) -> NDArray[Any]:
    """Return an array to be filled, in memory or on disk."""
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(kind).itemsize
    if size <= MOST_IN_MEMORY:
        return np.empty(shape, kind)
    with _explained(size), tempfile.TemporaryFile(dir=_folder()) as file:
        # Memory that a full disk cannot hold would end the process without a word.
        os.posix_fallocate(file.fileno(), 0, size)
        # NumPy would keep each column's file open, and a process may open only so many.
        place = f"/dev/fd/{file.fileno()}"
        own = torch.from_file(place, shared=True, size=size, dtype=torch.uint8)
        return cast("NDArray[Any]", own.numpy().view(kind).reshape(shape))


def new_tensor(shape: Sequence[int], kind: torch.dtype) -> Tensor:
    """Return a tensor to be filled, in memory or on disk."""
    return torch.from_numpy(new_array(shape, str(kind).removeprefix("torch.")))


def taken(column: ArrayT, places: NDArray[np.int64]) -> ArrayT:
    """Return the entries at these places, in this order."""
    if len(places) * column.itemsize <= MOST_IN_MEMORY:
        return cast("ArrayT", column[places])
    many = new_array((len(places),), column.dtype)
    for part in portions(len(places)):
        many[part] = column[places[part]]
    return cast("ArrayT", many)


def counted_each(numbers: NDArray[np.integer[Any]], least: int = 0) -> NDArray[np.int64]:
    """Return how often each number from 0 occurs, up to the highest, or more.

    >>> counted_each(np.array([2, 0, 2]), least=4).tolist()
    [1, 0, 2, 0]
    """
    counts = np.zeros(least, np.int64)
    for part in portions(len(numbers)):
        own = np.bincount(numbers[part], minlength=len(counts))
        own[: len(counts)] += counts
        counts = own
    return counts


def gathered(pieces: Iterable[Mapping[KeyT, NDArray[Any]]]) -> dict[KeyT, NDArray[Any]]:
    """Put the columns of several pieces together; a single piece stays as it is.

    >>> gathered([{"age": np.array([1, 2])}, {"age": np.array([3])}])["age"].tolist()
    [1, 2, 3]
    """
    rest = iter(pieces)
    first, second = next(rest), next(rest, None)
    if second is None:
        return dict(first)
    columns = {name: _Column(own.dtype) for name, own in first.items()}
    for piece in chain((first, second), rest):
        for name, own in piece.items():
            columns[name].add(own)
    return {name: column.whole() for name, column in columns.items()}


class _Column:
    """The parts of a column: the latest as they came, those before put together."""

    def __init__(self, kind: np.dtype[Any]) -> None:
        self._kind = kind
        self._before, self._latest = list[NDArray[Any]](), list[NDArray[Any]]()

    def add(self, part: NDArray[Any]) -> None:
        self._latest.append(part)
        if sum(map(len, self._latest)) * self._kind.itemsize > MOST_IN_MEMORY:
            self._before.append(_joined(self._latest, self._kind))

    def whole(self) -> NDArray[Any]:
        parts = self._before + self._latest
        self._before, self._latest = [], []
        return parts[0] if len(parts) == 1 else _joined(parts, self._kind)


def _joined(parts: list[NDArray[Any]], kind: np.dtype[Any]) -> NDArray[Any]:
    """Return the parts in one array; the list is emptied, as each part's room is wanted."""
    whole, start = new_array((sum(map(len, parts)),), kind), 0
    while parts:
        part = parts.pop(0)
        whole[start : start + len(part)] = part
        start += len(part)
    return whole


def _folder() -> str | None:
    lasting = Path("/", "var", "tmp")
    return None if os.environ.get("TMPDIR") or not lasting.is_dir() else str(lasting)


@contextmanager
def _explained(size: int) -> Iterator[None]:
    """Say in one line why a column cannot be kept on disk."""
    try:
        yield
    except OSError as error:
        folder = _folder() or tempfile.gettempdir()
        raise InputError(
            f"{folder} has no room for {size / 2**20:,.0f} MB of records that are larger than "
            "memory should hold; free some, or name a folder with room in the variable TMPDIR"
        ) from error
    except RuntimeError as error:
        raise InputError(
            f"{size / 2**20:,.0f} MB of records, larger than memory should hold, cannot be mapped "
            f"from a file ({error}); name another folder in the variable TMPDIR"
        ) from error
