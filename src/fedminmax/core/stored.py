"""Columns of records that may be larger than memory: beyond a size they are in a file on disk.

Such a file has no name, so it never travels, and it is gone when its process ends, however that
ends. The system keeps as much of it in memory as is free. It is in the folder that the environment
variable TMPDIR names, else in /var/tmp, which is on disk where /tmp is memory.
"""

import errno
import os
import tempfile
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from typing import IO, Any, TypeVar, cast

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
    with _explained(size), _file() as file:
        # Memory that a full disk cannot hold would end the process without a word.
        os.posix_fallocate(file.fileno(), 0, size)
        return np.memmap(file, kind, "r+", shape=tuple(shape))


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
    with ExitStack() as files:
        for piece in chain((first, second), rest):
            for name, own in piece.items():
                columns[name].add(own, files)
        return {name: column.whole() for name, column in columns.items()}


class _Column:
    """The parts of a column: in memory as long as they are few, then in a file."""

    def __init__(self, kind: np.dtype[Any]) -> None:
        self._kind, self._parts, self._length = kind, list[NDArray[Any]](), 0
        self._file: IO[bytes] | None = None

    def add(self, part: NDArray[Any], files: ExitStack) -> None:
        self._length += len(part)
        self._parts.append(part)
        size = self._length * self._kind.itemsize
        if self._file is None and size <= MOST_IN_MEMORY:
            return
        with _explained(size):
            self._file = self._file or files.enter_context(_file())
            for own in self._parts:
                self._file.write(np.ascontiguousarray(own, self._kind).data.cast("B"))
        self._parts = []

    def whole(self) -> NDArray[Any]:
        if self._file is None:
            return np.concatenate(self._parts)
        with _explained(self._length * self._kind.itemsize):
            self._file.flush()
            return np.memmap(self._file, self._kind, "r+", shape=(self._length,))


def _file() -> IO[bytes]:
    return tempfile.TemporaryFile(dir=_folder())


def _folder() -> str | None:
    lasting = Path("/", "var", "tmp")
    return None if os.environ.get("TMPDIR") or not lasting.is_dir() else str(lasting)


@contextmanager
def _explained(size: int) -> Iterator[None]:
    """Say in one line why a column cannot be kept on disk."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.EMFILE:
            raise InputError(
                "each large column of a site is an open file, and this process may open no more; "
                "allow it more with 'ulimit -n 65536', or give fewer columns"
            ) from error
        folder = _folder() or tempfile.gettempdir()
        raise InputError(
            f"{folder} has no room for {size / 2**20:,.0f} MB of records that are larger than "
            "memory should hold; free some, or name a folder with room in the variable TMPDIR"
        ) from error
