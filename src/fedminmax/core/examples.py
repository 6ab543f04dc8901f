"""One site's rows: features, targets and the group of each row, checked once on entry."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedminmax.core.errors import InputError
from fedminmax.core.stored import MOST_IN_MEMORY, new_tensor


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
        _joined([part.x for part in parts]),
        _joined([part.y for part in parts]),
        _joined([part.group for part in parts]),
    )


def _joined(parts: list[Tensor]) -> Tensor:
    if parts[0].device.type != "cpu" or sum(part.nbytes for part in parts) <= MOST_IN_MEMORY:
        return torch.cat(parts)
    together = new_tensor((sum(map(len, parts)), *parts[0].shape[1:]), parts[0].dtype)
    start = 0
    for part in parts:
        together[start : start + len(part)] = part
        start += len(part)
    return together
