"""What users hand over as holders: tensors in the model's precision, and every group with a row."""

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor

from fedminmax.core.errors import InputError
from fedminmax.core.examples import Examples, check_examples


def examples_of(rows: Sequence[object], like: Tensor, owner: str) -> Examples:
    """Check a holder's (x, y, group), in the precision and on the device of ``like``."""
    # Cast first: what is finite for the user may not be in the model's precision.
    return check_examples(*_cast(rows, like, owner), owner)


def count_rows(holders: list[Examples], group_names: Sequence[str] | None) -> Tensor:
    """Count rows by holder and group; refuse a group that no holder has."""
    if not any(len(rows) for rows in holders):
        raise InputError("no holder has a row; give at least one holder with data")
    highest = 1 + max(int(rows.group.max()) for rows in holders if len(rows))
    groups = len(group_names) if group_names else highest
    if highest > groups:
        raise InputError(
            f"group {highest - 1} occurs in the data, but only {groups} group names were given; "
            "name every group"
        )
    counts = torch.stack([torch.bincount(rows.group.cpu(), minlength=groups) for rows in holders])
    for number, rows in enumerate(holders):
        if len(rows) == 0:
            warnings.warn(f"holder {number} has no rows and is left out", stacklevel=3)
    for group, count in enumerate(counts.sum(dim=0).tolist()):
        if count == 0:
            name = f"'{group_names[group]}' (number {group})" if group_names else str(group)
            raise InputError(
                f"group {name} has no rows at any holder; remove it or renumber the groups from 0"
            )
    return counts


def _cast(rows: Sequence[object], like: Tensor, owner: str) -> tuple[Tensor, Tensor, Tensor]:
    """Move a holder's tensors to the model's device, floating-point ones to its precision.

    Without their history: training asks for gradients in the model alone.
    """
    tensors = [tensor for tensor in rows if isinstance(tensor, Tensor)]
    if len(rows) != 3 or len(tensors) != 3:
        kinds = ", ".join(type(entry).__name__ for entry in rows)
        raise InputError(f"{owner}: got ({kinds}); give (x, y, group) as three torch tensors")
    x, y, group = (
        tensor.to(like) if tensor.is_floating_point() else tensor.to(like.device)
        for tensor in (given.detach() for given in tensors)
    )
    return x, y, group
