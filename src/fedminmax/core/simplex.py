"""Euclidean projection on the probability simplex with a floor.

Duchi, Shalev-Shwartz, Singer, Chandra: Efficient projections onto the l1-ball for learning in
high dimensions, ICML 2008. The floor is Delta_{>= epsilon} of Papadaki et al. 2021, Eq. 2.

| symbol  | name    |
|---------|---------|
| v       | vector  |
| epsilon | floor   |
| z       | total   |
| tau     | shift   |
"""

import torch
from torch import Tensor

from fedminmax.core.errors import InputError
from fedminmax.core.numbers import is_finite


def project_on_simplex(vector: Tensor, *, floor: float = 0.0, total: float = 1.0) -> Tensor:
    """Return the point of {x >= floor, sum x = total} nearest to ``vector``, in float64.

    Clipping and renormalising is not a projection and has other fixed points; this is exact.

    >>> project_on_simplex(torch.tensor([0.75, 0.5], dtype=torch.float64)).tolist()
    [0.625, 0.375]
    """
    given: object = vector
    if not isinstance(given, Tensor) or given.is_complex():
        raise InputError(f"projection needs a tensor of real numbers, got {given!r}")
    values = vector.to(torch.float64)
    size = values.numel()
    if values.dim() != 1 or size == 0:
        raise InputError(f"projection needs a vector, got shape {tuple(values.shape)}")
    if not bool(torch.isfinite(values).all()):
        raise InputError(f"projection needs finite numbers, got {values.tolist()}")
    if not is_finite(floor) or not is_finite(total):
        raise InputError(f"floor = {floor!r}, total = {total!r}; give finite numbers")
    free_mass = total - size * floor
    # A floor that fills the whole simplex leaves one point; rounding may make it look overfull.
    if floor < 0 or free_mass < -1e-12 * max(1.0, total):
        raise InputError(
            f"floor epsilon = {floor:g} with {size} weights that sum to {total:g}: "
            f"choose epsilon between 0 and {total / size:g}"
        )
    # The projection does not see a common shift; without this one, large entries eat the digits.
    centred = values - values.max()
    descending = torch.sort(centred, descending=True).values
    partial_sums = torch.cumsum(descending, 0) - max(free_mass, 0.0)
    ranks = torch.arange(1, size + 1, dtype=torch.float64)
    support = int((ranks * descending > partial_sums).sum()) or 1
    shift = partial_sums[support - 1] / support
    return torch.clamp(centred - shift, min=0.0) + floor


def ascend_on_simplex(
    weights: Tensor, risks: Tensor, present: Tensor, *, rate: float, floor: float = 0.0
) -> Tensor:
    """Projected gradient ascent on <weights, risks>, only among the entries that are present.

    An absent entry keeps its weight exactly, and the present ones share the mass that they had:
    treating "not seen this round" as "risk 0" would take weight from whoever was not seen.
    """
    if bool(present.all()):
        return project_on_simplex(weights + rate * risks, floor=floor)
    if not bool(present.any()):
        return weights
    moved = weights.clone()
    seen = weights[present]
    moved[present] = project_on_simplex(
        seen + rate * risks[present], floor=floor, total=float(seen.sum())
    )
    return moved
