"""Records: one site's features, targets and groups, and columns that may be larger than memory.

Records are checked once on entry. Beyond a size, their columns are in a file on disk. It has no
name, so it never travels, and it is gone when its process ends, however that ends. The system keeps
as much of it in memory as is free. It is in the folder that the environment variable TMPDIR names,
else in /var/tmp, which is on disk where /tmp is memory.
"""

import os
import tempfile
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
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
        mapped = torch.from_file(place, shared=True, size=size, dtype=torch.uint8)
        return cast("NDArray[Any]", mapped.numpy().view(kind).reshape(shape))


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
        more = np.bincount(numbers[part], minlength=len(counts))
        more[: len(counts)] += counts
        counts = more
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
    columns = {name: _Column(column.dtype) for name, column in first.items()}
    for piece in chain((first, second), rest):
        for name, column in piece.items():
            columns[name].add(column)
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


@dataclass(frozen=True, eq=False)
class Examples:
    """Rows of one site: ``x`` [n, ...], ``y`` [n], ``group`` [n] (numbers from 0)."""

    x: Tensor
    y: Tensor
    group: Tensor

    def __len__(self) -> int:
        return int(self.group.shape[0])

    def rows(self, index: Tensor) -> "Examples":
        """Return the rows at these positions, in this order."""
        return Examples(self.x[index], self.y[index], self.group[index])

    def copy(self) -> "Examples":
        """Return the same rows in tensors of their own."""
        return Examples(self.x.clone(), self.y.clone(), self.group.clone())


def check_examples(x: Tensor, y: Tensor, group: Tensor, owner: str) -> Examples:
    """Return the rows with integers as int64; raise an ``InputError`` if something is wrong.

    >>> check_examples(torch.zeros(2, 1), torch.zeros(2), torch.tensor([0]), "site 0")
    Traceback (most recent call last):
    fedminmax.core.errors.InputError: site 0: x has 2 rows, y 2 and group 1; make them equal
    """
    for name, tensor in (("x", x), ("y", y), ("group", group)):
        if tensor.layout is not torch.strided or tensor.is_nested:
            raise InputError(f"{owner}: {name} is sparse or nested; give {name}.to_dense()")
        if tensor.is_complex():
            raise InputError(f"{owner}: {name} holds complex numbers; give real ones")
        if tensor.dim() == 0:
            raise InputError(f"{owner}: {name} is a single number; give one entry per row")
    lengths = (int(x.shape[0]), int(y.shape[0]), int(group.shape[0]))
    if len(set(lengths)) != 1:
        raise InputError(
            f"{owner}: x has {lengths[0]} rows, y {lengths[1]} and group {lengths[2]}; "
            "make them equal"
        )
    if group.dim() != 1 or group.is_floating_point() or group.dtype == torch.bool:
        raise InputError(
            f"{owner}: group must be a vector of whole numbers from 0, "
            f"got {group.dtype} of shape {tuple(group.shape)}"
        )
    if lengths[0] and int(group.min()) < 0:
        raise InputError(f"{owner}: group {int(group.min())} is negative; number groups from 0")
    for name, tensor in (("x", x), ("y", y)):
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            by_row = torch.isfinite(tensor).reshape(lengths[0], -1).all(dim=1)
            row = int((~by_row).nonzero()[0])
            raise InputError(
                f"{owner}: {name} is NaN or infinite in row {row}; fill or drop that row"
            )
    return Examples(x, y if y.is_floating_point() else y.long(), group.long())


def check_consistent(sites: Sequence[Examples]) -> None:
    """Refuse rows whose shape or type differs from those of the other sites."""
    kinds = [
        (number, name, (str(tensor.dtype), *tensor.shape[1:]))
        for number, rows in enumerate(sites)
        if len(rows)
        for name, tensor in (("x", rows.x), ("y", rows.y))
    ]
    first: dict[str, tuple[int, tuple[object, ...]]] = {}
    for number, name, kind in kinds:
        other, expected = first.setdefault(name, (number, kind))
        if kind != expected:
            raise InputError(
                f"site {number}: a row of {name} is {_format_kind(kind)}, but at site {other} "
                f"it is {_format_kind(expected)}; make them alike"
            )


def _format_kind(kind: tuple[object, ...]) -> str:
    dtype, *shape = kind
    return f"{dtype} of shape {tuple(shape)}" if shape else f"one {dtype}"


def concatenate(parts: list[Examples]) -> Examples:
    """Concatenate the rows of several records."""
    return Examples(
        _concatenated([part.x for part in parts]),
        _concatenated([part.y for part in parts]),
        _concatenated([part.group for part in parts]),
    )


def _concatenated(parts: list[Tensor]) -> Tensor:
    if parts[0].device.type != "cpu" or sum(part.nbytes for part in parts) <= MOST_IN_MEMORY:
        return torch.cat(parts)
    together = new_tensor((sum(map(len, parts)), *parts[0].shape[1:]), parts[0].dtype)
    torch.cat(parts, out=together)
    return together
