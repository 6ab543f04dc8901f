"""The probability simplex: projection, small quadratic programmes, and fixed shares.

Weights over groups or sites lie on it. ``ascend_on_simplex`` updates an adversary's weights by
projected gradient ascent. ``minimise_on_simplex`` solves quadratic programmes with one unknown per
group or site; ``min_norm_weights`` finds the shortest mixture of vectors. ``FixedShares`` is for
games in which some players have fixed weights, such as groups that are too small to be chosen.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedminmax.core.errors import InputError
from fedminmax.core.text import is_finite

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
# Relative to the largest entry of the programme.
TOLERANCE = 1e-13
# Larger than any feasible move: bounds are at most 1 apart.
MAX_MOVE = 10.0
# A weight rarely reaches or leaves a bound more than once; this stops cycles caused by rounding.
STEPS_PER_WEIGHT = 50


def project_on_simplex(vector: Tensor, *, floor: float = 0.0, total: float = 1.0) -> Tensor:
    """Return the point of {x >= floor, sum x = total} nearest to ``vector``, in float64.

    Clipping and renormalising is not a projection and has different fixed points; this is exact:
    Duchi, Shalev-Shwartz, Singer, Chandra: Efficient projections onto the l1-ball for learning in
    high dimensions, ICML 2008. The floor is Delta_{>= epsilon} of Papadaki et al. 2021, Eq. 2.

    | symbol  | name    |
    |---------|---------|
    | v       | vector  |
    | epsilon | floor   |
    | z       | total   |
    | tau     | shift   |

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
    # If the floor takes up all the mass, one point is left; rounding may make it look infeasible.
    if floor < 0 or free_mass < -1e-12 * max(1.0, total):
        raise InputError(
            f"floor epsilon = {floor:g} with {size} weights that sum to {total:g}: "
            f"choose epsilon between 0 and {total / size:g}"
        )
    # The projection is invariant to a common shift; this one avoids cancellation in large entries.
    centred = values - values.max()
    descending = torch.sort(centred, descending=True).values
    partial_sums = torch.cumsum(descending, 0) - max(free_mass, 0.0)
    ranks = torch.arange(1, size + 1, dtype=torch.float64)
    support = int((ranks * descending > partial_sums).sum()) or 1
    shift = partial_sums[support - 1] / support
    return torch.clamp(centred - shift, min=0.0) + floor


def ascend_on_simplex(
    weights: Tensor,
    risks: Tensor,
    present: Tensor,
    *,
    rate: float,
    floor: float = 0.0,
    kept: Tensor | None = None,
) -> Tensor:
    """Projected gradient ascent on <weights, risks>, only among the entries that are present.

    An absent entry keeps its weight exactly, and the present ones share the mass that they had:
    treating "absent this round" as "risk 0" would take weight away from absent groups. Weights are
    at least ``floor``, or that much above ``kept`` if it is given.

    >>> half, all_seen = torch.full((2,), 0.5).double(), torch.tensor([True, True])
    >>> worse = torch.tensor([9.0, 0.0], dtype=torch.float64)
    >>> ascend_on_simplex(half, worse, all_seen, rate=1.0, kept=0.5 * half).tolist()
    [0.75, 0.25]
    """
    if not bool(present.any()):
        return weights
    kept = torch.zeros_like(weights) if kept is None else kept
    moved = weights.clone()
    above = (weights - kept)[present]
    total = 1.0 - float(kept.sum()) if bool(present.all()) else float(above.sum())
    raised = project_on_simplex(above + rate * risks[present], floor=floor, total=total)
    moved[present] = kept[present] + raised
    return moved


def maximise_on_simplex(
    linear: Tensor, quadratic: Tensor, start: Tensor, floor: float = 0.0
) -> Tensor:
    """Return weights of at least ``floor`` that maximise linear . x - 1/2 x' quadratic x.

    >>> none = torch.zeros(2, 2, dtype=torch.float64)
    >>> linear = torch.tensor([1.0, 2.0], dtype=torch.float64)
    >>> maximise_on_simplex(linear, none, torch.full((2,), 0.5).double(), 0.25).tolist()
    [0.25, 0.75]
    """
    low = np.full(len(linear), floor)
    high = np.full(len(linear), 1.0 - floor * (len(linear) - 1))
    found = minimise_on_simplex(
        quadratic.numpy(), linear.numpy(), start.numpy(), low=low, high=high
    )
    return torch.from_numpy(found)


def minimise_on_simplex(
    quadratic: Array, linear: Array, start: Array, *, low: Array, high: Array
) -> Array:
    """Return a minimiser of a quadratic over the simplex with bounds, exact up to rounding.

    It minimises 1/2 x' Q x - b . x over sum x = 1 and low <= x <= high, with Q (``quadratic``)
    positive semidefinite and b ``linear``. A primal active-set method (Nocedal, Wright: Numerical
    optimization, 2006, Section 16.5) takes finitely many steps, also where Q is singular. ``start``
    must satisfy the constraints.

    >>> minimise_on_simplex(
    ...     np.diag([1.0, 3.0]), np.zeros(2), np.full(2, 0.5), low=np.zeros(2), high=np.ones(2)
    ... ).round(9).tolist()
    [0.75, 0.25]
    """
    movable = low < high
    # A common shift of the slopes does not matter on the simplex, and centring reduces rounding.
    shifted = linear - linear.mean()
    size = max(float(np.abs(quadratic).max()), float(np.abs(shifted).max()))
    if not movable.any() or size == 0.0:
        return start
    return _active_set(quadratic / size, shifted / size, start, low=low, high=high, movable=movable)


def _active_set(
    quadratic: Array, linear: Array, start: Array, *, low: Array, high: Array, movable: Mask
) -> Array:
    """Optimise the free weights, fix those that reach a bound, free those that gain by it."""
    weights, free = start.copy(), movable & (low < start) & (start < high)
    for _ in range(STEPS_PER_WEIGHT * len(start)):
        move, ends_at_best = _best_move(quadratic, linear, weights, free)
        bound = np.where(move < 0.0, low, high)
        room = np.full_like(weights, np.inf)
        np.divide(bound - weights, move, out=room, where=move != 0.0)
        nearest = int(room.argmin())
        if room[nearest] < 1.0:
            weights = weights + room[nearest] * move
            weights[nearest] = bound[nearest]
            free[nearest] = False
            continue
        weights = weights + move
        if not ends_at_best:
            continue
        slopes = quadratic @ weights - linear
        freed = _weight_to_free(slopes, weights, free, low, movable)
        if freed is None:
            break
        free[freed] = True
    return weights


def _best_move(quadratic: Array, linear: Array, weights: Array, free: Mask) -> tuple[Array, bool]:
    """Return a change of the free weights, of sum 0, and whether it ends at their optimum.

    Where the objective bends it is Newton's step. If it still falls in directions in which it does
    not bend, the change is along them, and ends at a bound.
    """
    size = int(free.sum())
    move = np.zeros_like(weights)
    if size < 2:
        return move, True
    matrix = quadratic[np.ix_(free, free)]
    bends, directions = np.linalg.eigh(_centred(matrix))
    pull = (linear - quadratic @ weights)[free]
    pulls = directions.T @ (pull - pull.mean())
    is_flat = bends <= TOLERANCE * np.abs(matrix).max()
    falls = directions @ np.where(is_flat, pulls, 0.0)
    # Among the directions that are flat is that of a common shift.
    falls -= falls.mean()
    steepest = float(np.abs(falls).max())
    if steepest > TOLERANCE:
        step = falls * (MAX_MOVE / steepest)
    else:
        step = directions @ np.divide(pulls, bends, out=np.zeros(size), where=~is_flat)
    move[free] = step - step.mean()
    return move, steepest <= TOLERANCE


def _centred(matrix: Array) -> Array:
    """Return the same quadratic function of weights that add up to 0, flat where they do not."""
    rows: Array = matrix - matrix.mean(axis=0)
    centred: Array = rows - rows.mean(axis=1, keepdims=True)
    return centred


def _weight_to_free(
    slopes: Array, weights: Array, free: Mask, low: Array, movable: Mask
) -> int | None:
    """Return the weight that gains most by leaving its bound; None if none gains."""
    if free.any():
        level = slopes[free].mean()
    else:
        # All weights are at bounds: move mass from the steepest that can shrink to the least steep.
        shrink, grow = movable & (weights > low), movable & (weights <= low)
        if not shrink.any():
            return None
        level = slopes[shrink].max()
        if not grow.any() or level - slopes[grow].min() <= TOLERANCE:
            return None
        return int(np.flatnonzero(shrink)[slopes[shrink].argmax()])
    gain = np.where(weights <= low, level - slopes, slopes - level)
    gain[free | ~movable] = -np.inf
    return int(gain.argmax()) if gain.max() > TOLERANCE else None


def min_norm_weights(gram: Tensor, centre: Tensor, radius: float) -> Tensor:
    """Return weights, near given ones, of the shortest mixture of vectors.

    They minimise |sum_k lambda_k d_k|^2 over sum_k lambda_k = 1, lambda >= 0 and
    |lambda - lambda_0|_inf <= e. Only inner products of the vectors matter, so the programme has
    one unknown per vector, however long the vectors are. scipy's SLSQP leaves gaps of 1e-9 and is
    slower than the solver here (benchmarks/results/README.md).

    | symbol               | name    |
    |----------------------|---------|
    | G_jk = <d_j, d_k>    | gram    |
    | lambda               | weights |
    | lambda_0             | centre  |
    | e                    | radius  |

    ``centre`` must lie on the simplex. The shortest mixture is unique, its weights may not be.

    >>> gram = torch.tensor([[1.0, 0.0], [0.0, 3.0]], dtype=torch.float64)
    >>> half = torch.tensor([0.5, 0.5], dtype=torch.float64)
    >>> [round(weight, 9) for weight in min_norm_weights(gram, half, 1.0).tolist()]
    [0.75, 0.25]
    >>> [round(weight, 9) for weight in min_norm_weights(gram, half, 0.125).tolist()]
    [0.625, 0.375]
    """
    start = centre.numpy()
    low, high = np.maximum(start - radius, 0.0), np.minimum(start + radius, 1.0)
    return torch.from_numpy(
        minimise_on_simplex(gram.numpy(), np.zeros(len(start)), start, low=low, high=high)
    )


@dataclass(frozen=True, eq=False)
class FixedShares:
    """Each player's share [m], which players may be chosen [m], and the share that those keep.

    A player that may not be chosen has its share rho_b as weight. With ``keep_share`` k, the others
    keep that part of theirs: mu_a >= k rho_a + epsilon. With f the weight that is left to
    distribute, and kappa_b = rho_b or kappa_a = k rho_a what is kept, that is a plain simplex over
    nu = (mu - kappa) / f, if the risk of every player that may be chosen is replaced by

        R_a = f r_a + sum_b kappa_b r_b,    that is R = M r and mu = M' nu,

    since mu . r = nu . R. Gradients, curvatures and lower bounds on the risks mix in the same way,
    so anything computed or proved with R holds for this game. If every player may be chosen, its
    value is (1 - k) times the worst risk plus k times the mean risk.

    | symbol  | name     |
    |---------|----------|
    | rho     | shares   |
    | kappa   | kept     |
    | f       | free     |
    | epsilon | floor    |
    """

    shares: Tensor
    included: Tensor
    keep_share: float = 0.0

    @property
    def kept(self) -> Tensor:
        """The weight that each player has in any case."""
        return torch.where(self.included, self.keep_share * self.shares, self.shares)

    def inside(self, weights: Tensor) -> Tensor:
        """Return the nearest weights of which every player has what it keeps (Euclidean distance).

        >>> shares = torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64)
        >>> all_may = torch.tensor([True, True, True])
        >>> FixedShares(shares, all_may, 0.5).inside(torch.tensor([1.0, 0.0, 0.0])).tolist()
        [0.75, 0.125, 0.125]
        """
        found, kept, may = weights.to(torch.float64), self.kept, self.included
        raised = project_on_simplex((found - kept)[may], total=self.free)
        return kept.masked_scatter(may, kept[may] + raised)

    @property
    def free(self) -> float:
        """The weight that the adversary may distribute."""
        return 1.0 - float(self.kept.sum())

    def mix(self, values: Tensor) -> Tensor:
        """Return M values: one row per included player, of risks or anything linear in them.

        >>> shares = torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64)
        >>> fixed = FixedShares(shares, torch.tensor([True, True, False]))
        >>> fixed.mix(torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64)).tolist()
        [1.75, 2.5]
        >>> half = FixedShares(shares, torch.tensor([True, True, True]), keep_share=0.5)
        >>> half.mix(torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64)).tolist()
        [1.5, 2.0, 3.0]
        """
        if self.keep_share == 0.0 and bool(self.included.all()):
            return values
        common: Tensor = torch.tensordot(self.kept.to(values), values, dims=1)
        return self.free * values[self.included] + common

    def floor(self, epsilon: float) -> float:
        """Return the minimum nu of an included player."""
        return epsilon / self.free

    def chosen(self, weights: Tensor) -> Tensor:
        """Return nu for these weights mu."""
        return (weights - self.kept)[self.included] / self.free

    def weights(self, chosen: Tensor) -> Tensor:
        """Return mu = M' nu."""
        weights = self.kept
        weights[self.included] += self.free * chosen
        return weights


def tilted_weights(shares: Tensor, risks: Tensor, tilt: float) -> Tensor:
    """Return weights proportional to ``shares * exp(tilt * risks)``, without overflow.

    >>> half = torch.tensor([0.5, 0.5], dtype=torch.float64)
    >>> tilted_weights(half, torch.tensor([1e6, 0.0], dtype=torch.float64), 3.0).tolist()
    [1.0, 0.0]
    """
    return torch.softmax(torch.log(shares) + tilt * risks, dim=0)


def tilted_mean(shares: Tensor, values: Tensor, tilt: float) -> Tensor:
    """(1/t) log sum_a shares_a exp(t values_a); the mean for t = 0.

    >>> half = torch.tensor([0.5, 0.5], dtype=torch.float64)
    >>> float(tilted_mean(half, torch.tensor([1.0, 3.0], dtype=torch.float64), 0.0))
    2.0
    """
    if tilt == 0:
        return torch.dot(shares, values)
    return torch.logsumexp(torch.log(shares) + tilt * values, dim=0) / tilt
