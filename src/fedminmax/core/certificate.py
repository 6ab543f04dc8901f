"""A proof of how low the worst group's risk can be: a lower bound from gradients already sent.

For risks r_a = h_a + m/2 |theta|^2 with convex h_a, every point theta_k at which losses and
gradients are known gives a cut h_a(theta) >= c_ka + v_ka . theta with v_ka = grad h_a(theta_k) and
c_ka = h_a(theta_k) - v_ka . theta_k. For any weights alpha on the simplex over cuts,

    alpha . c - |V' alpha|^2 / (2 m)  <=  min over theta of max_a r_a(theta):

weights that are not the best ones still prove a bound. (Bundle methods: Smola, Vishwanathan, Le:
Bundle methods for machine learning, NIPS 2007.)

| symbol | name            |
|--------|-----------------|
| m      | ridge           |
| c      | cuts.constants  |
| V      | cuts.slopes     |
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedminmax.core.simplex_qp import maximise_on_simplex

# Outward, relative to the terms of the bound: sums of a million rounded numbers are well within.
SLACK = 1e-11


@dataclass(frozen=True, eq=False)
class Cuts:
    """Lines below the risks without their ridge: constants [m] and slopes [m, f], in float64."""

    constants: Tensor
    slopes: Tensor


def cuts_at(point: Tensor, risks: Tensor, slopes: Tensor, ridge: float) -> Cuts:
    """Return a cut per group from risks [A] and their gradients [A, f], ridge included."""
    bare = slopes - ridge * point
    return Cuts(risks - 0.5 * ridge * point @ point - bare @ point, bare)


def lower_bound(cuts: Cuts, ridge: float, floor: float = 0.0) -> float:
    """Return the best bound that these cuts prove, a little lowered against rounding.

    With a floor the cuts must be one point's, a cut per group.

    >>> cuts = Cuts(torch.tensor([1.0]).double(), torch.tensor([[1.0]]).double())
    >>> round(lower_bound(cuts, ridge=1.0), 9)
    0.5
    """
    count = len(cuts.constants)
    products = cuts.slopes @ cuts.slopes.T / ridge
    start = torch.full((count,), 1.0 / count, dtype=torch.float64)
    weights = maximise_on_simplex(cuts.constants, products, start, floor)
    slope = cuts.slopes.T @ weights
    fall = float(slope @ slope) / (2.0 * ridge)
    size = float(weights @ cuts.constants.abs()) + fall
    return float(weights @ cuts.constants) - fall - SLACK * size
