"""Coordinates in which a column's mean does not matter: the intercept at the columns' centre.

A linear model w . x + b is w . (x - m) + (b + w . m). If a column's mean m is large beside its
deviation d, the direction (1, -m) is flat: its curvature is d^2, where the diagonal of the
curvature has m^2. A damping in proportion to that diagonal then freezes it, and a step along it
seems to promise nothing. With b + w . m in place of b, the diagonal has d^2.

| symbol | name   |
|--------|--------|
| m      | centre |
"""

import torch
from torch import Tensor

from fedminmax.core.linear_structure import LinearStructure
from fedminmax.core.solvers.max_of_quadratics import Quadratics


def centre_of(structure: LinearStructure, packed: Tensor) -> Tensor:
    """Return the columns' means, weighted by curvature, from its packed sums [A, q].

    The last row of each triangle belongs to the intercept; without one, the centre is 0, and so
    it is for codes.
    """
    if not structure.intercept or structure.coded:
        return torch.zeros(structure.inputs, dtype=torch.float64)
    rows = packed.reshape(-1, structure.curvature_numbers // structure.blocks).sum(dim=0)
    last = rows[-structure.columns :]
    return last[:-1] / last[-1] if float(last[-1]) > 0 else torch.zeros_like(last[:-1])


def centred(structure: LinearStructure, functions: Quadratics, centre: Tensor) -> Quadratics:
    """Return the functions of a step in w and b + w . m, given those of a step in w and b.

    >>> plain = LinearStructure(1, 1, intercept=True, loss="squared_error")
    >>> curvature = torch.tensor([[[101.0, 10.0], [10.0, 1.0]]], dtype=torch.float64)
    >>> functions = Quadratics(torch.zeros(1).double(), torch.ones(1, 2).double(), curvature)
    >>> moved = centred(plain, functions, torch.tensor([10.0]).double())
    >>> moved.curvatures.tolist(), moved.slopes.tolist()
    ([[[1.0, 0.0], [0.0, 1.0]]], [[-9.0, 1.0]])
    """
    if not structure.intercept or structure.coded:
        return functions
    players, columns = len(functions.values), structure.columns
    slopes = functions.slopes.reshape(players, -1, columns).clone()
    slopes[..., :-1] -= slopes[..., -1:] * centre
    outputs = slopes.shape[1]
    bends = functions.curvatures.reshape(players, outputs, columns, outputs, columns).clone()
    bends[:, :, :-1] -= bends[:, :, -1:] * centre[:, None, None]
    bends[..., :-1] -= bends[..., -1:] * centre
    return Quadratics(functions.values, slopes.flatten(1), bends.reshape_as(functions.curvatures))


def to_centred(structure: LinearStructure, step: Tensor, centre: Tensor) -> Tensor:
    """Return a step in w and b as one in w and b + w . m."""
    if not structure.intercept:
        return step
    rows = step.reshape(-1, structure.columns).clone()
    rows[:, -1] += rows[:, :-1] @ centre
    return rows.flatten()


def from_centred(structure: LinearStructure, step: Tensor, centre: Tensor) -> Tensor:
    """Return a step in w and b + w . m as one in w and b."""
    return to_centred(structure, step, -centre)
