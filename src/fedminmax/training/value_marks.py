"""A few numbers by group that differ if the values of rows do, but not because of rounding.

A run must not be resumed with other values in as many rows: what it knows would be false. A digest
of the values would also differ in their last bits, as on another machine, and with the rows' order.
"""

import math

import torch
from torch import Tensor

from fedminmax.core.examples import Examples

ROWS_AT_A_TIME = 4096
# Relative to deviations: one of 100,000 rows with another label changes a mean by more.
SAME = 1e-6


def value_marks(sites: list[Examples], groups: int) -> Tensor:
    """Return [A, 5]: means and deviations of features and targets, and their correlation.

    Of a row's features, each divided by its deviation over all rows, one random combination is
    taken; likewise of targets. Means are in deviations, deviations as logarithms.
    """
    parts = [own for own in sites if len(own)]
    group = torch.cat([own.group for own in parts]).cpu()
    rows = torch.bincount(group, minlength=groups).double()

    def by_group(values: Tensor) -> Tensor:
        return torch.bincount(group, weights=values, minlength=groups) / rows

    columns, centred = [], []
    for values in ([own.x for own in parts], [own.y for own in parts]):
        number = _combined(values)
        mean = by_group(number)
        rest = number - mean[group]
        deviation = by_group(rest.square()).sqrt()
        # Rounding of equal numbers is no deviation.
        deviation = torch.where(deviation > 1e-12 * mean.abs(), deviation, 1.0)
        columns += [mean / deviation, deviation.log()]
        centred.append(rest / deviation[group])
    marks = torch.stack([*columns, by_group(centred[0] * centred[1])], dim=1)
    return marks.nan_to_num()


def are_same(before: str, now: str) -> bool:
    """Compare marks that were written as text; those of a server that sees no rows are empty.

    >>> are_same("0.5 1", "0.5000000000001 1"), are_same("0.5", "0.6"), are_same("", "0.5")
    (True, False, True)
    """
    pairs = list(zip(before.split(), now.split(), strict=False))
    return all(
        math.isclose(float(old), float(new), rel_tol=SAME, abs_tol=SAME) for old, new in pairs
    )


def as_text(marks: Tensor | None) -> str:
    """Return the marks as text, without loss."""
    return "" if marks is None else " ".join(map(repr, marks.flatten().tolist()))


def _combined(parts: list[Tensor]) -> Tensor:
    """Return one random combination of the numbers of each row, in float64."""
    chunks = [
        chunk.flatten(1) if chunk.dim() > 1 else chunk.unsqueeze(1)
        for part in parts
        for chunk in torch.split(part, ROWS_AT_A_TIME)
    ]
    count = sum(map(len, chunks))
    none = torch.zeros(chunks[0].shape[1], dtype=torch.float64, device=chunks[0].device)
    mean = sum((chunk.double().sum(dim=0) for chunk in chunks), none) / count
    squares = sum(((chunk.double() - mean).square().sum(dim=0) for chunk in chunks), none) / count
    deviation = torch.where(squares > 0, squares.sqrt(), 1.0)
    generator = torch.Generator().manual_seed(0)
    factors = 1.0 + torch.rand(len(deviation), generator=generator, dtype=torch.float64)
    weights = factors.to(deviation.device) / deviation
    return torch.cat([chunk.double() @ weights for chunk in chunks]).cpu()
