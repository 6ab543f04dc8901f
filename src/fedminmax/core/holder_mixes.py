"""Which mixes of groups can weights over holders make (Papadaki et al. 2021, Lemma 1)?

A holder's mix is its share of each group. A method that weighs holders, and not groups, weighs the
groups by a mean of the holders' mixes: it reaches the convex hull of the mixes and nothing beyond.
The nearest point of a hull is found as in Wolfe: Finding the nearest point in a polytope,
Mathematical Programming 1976: a small quadratic programme over a few corners, to which the corner
that lies farthest on the target's side is added until none does.

| symbol                        | name                |
|-------------------------------|---------------------|
| P_A, a column per holder      | mixes, a line each  |
| P_A Delta                     | the hull of mixes   |
| mu                            | target              |
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedminmax.core.simplex_qp import Array, minimise_on_simplex

# Weights that differ by less are the same to everybody.
SAME = 1e-6
# Squares of distances have rounding errors of this size.
ROUNDING = 1e-15


@dataclass(frozen=True, eq=False)
class NearestMix:
    """The reachable mix that is nearest to a target, and its Euclidean distance from it."""

    mix: Tensor
    distance: float

    @property
    def is_reached(self) -> bool:
        """Tell whether the target itself is reachable."""
        return self.distance <= SAME


def mixes_of(counts: Tensor) -> Tensor:
    """Return each holder's shares of the groups [holders, groups], of holders that have rows.

    >>> mixes_of(torch.tensor([[1, 3], [0, 0], [2, 0]])).tolist()
    [[0.25, 0.75], [1.0, 0.0]]
    """
    occupied = counts[counts.sum(dim=1) > 0].to(torch.float64)
    return occupied / occupied.sum(dim=1, keepdim=True)


def nearest_mix(mixes: Tensor, target: Tensor) -> NearestMix:
    """Return the point of the mixes' convex hull that is nearest to a target.

    >>> corners = torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]], dtype=torch.float64)
    >>> found = nearest_mix(corners, torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64))
    >>> found.mix.tolist(), round(found.distance, 6)
    ([0.25, 0.5, 0.25], 0.612372)
    """
    away = (mixes - target).numpy()
    lengths = (away**2).sum(axis=1)
    # Corners of the hull that the nearest point lies between, and its weights on them.
    corners, weights = np.array([lengths.argmin()]), np.ones(1)
    point: Array = away[corners[0]]
    while True:
        along = away @ point
        farthest = int(along.argmin())
        if along[farthest] >= point @ point - ROUNDING or farthest in corners:
            break
        corners, weights = np.append(corners, farthest), np.append(weights, 0.0)
        between = away[corners]
        none, all_of_it = np.zeros(len(corners)), np.ones(len(corners))
        weights = minimise_on_simplex(between @ between.T, none, weights, none, all_of_it)
        nearer = weights @ between
        if nearer @ nearer >= point @ point:
            break
        corners, weights, point = corners[weights > 0.0], weights[weights > 0.0], nearer
    return NearestMix(target + torch.from_numpy(point), float(np.sqrt(point @ point)))
