"""A proof of how low the worst group's risk can be: a lower bound from gradients already sent.

For risks r_a = h_a + m/2 |theta|^2 with convex h_a >= 0, every point theta_k at which losses and
gradients are known gives a cut h_a(theta) >= c_ka + v_ka . theta with v_ka = grad h_a(theta_k) and
c_ka = h_a(theta_k) - v_ka . theta_k. For any weights alpha on the simplex over cuts,

    alpha . c - |V' alpha|^2 / (2 m)  <=  min over theta of max_a r_a(theta):

weights that are not the best ones still prove a bound. (Bundle methods: Smola, Vishwanathan, Le:
Bundle methods for machine learning, NIPS 2007.) The cuts of a single point are the one-round bound
f_mu(theta) - |grad f_mu(theta)|^2 / (2 m) of a strongly convex f_mu = sum_a mu_a r_a, for the best
mu.

If models keep to A theta >= 0 (effects that may only go up), multipliers beta >= 0 of these rows
raise the bound: alpha . c - |V' alpha - A' beta|^2 / (2 m) (``core.solvers.cone``). Rows of A are
off by a few u, and beta . A theta at models of norm sqrt(2 U / m) accordingly.

Rounding must not invalidate it. Let u = 2^-53, k the columns of a row (with its 1), L the root of
a group's mean |x|^2, t = |theta_k|, N the number of roundings in a sum over its rows, s the
mean slope of a row's loss in its outputs (sqrt 2 for cross-entropy; 2 sqrt r for squared error, by
Cauchy and Schwarz) and b the largest second derivative in them. Outputs are off by k u |x| t, so

    h is off by at most  u (s (k + 10) L t + (N + 10) (r + 1)),
    v is off by at most  u (b (k + 10) t L^2 + s (N + 10) L).

Any model better than one with worst risk U has m/2 |theta|^2 <= U, so a cut lowered by the first
plus the second times (sqrt(2 U / m) + t) holds at all of them. We lower it by twice that, and the
bound by the rounding error of its own sums. Masked totals are rounded to whole numbers besides
(``SumErrors``).

| symbol | name            |
|--------|-----------------|
| m      | ridge           |
| c      | Cuts.constants  |
| V      | Cuts.slopes     |
| h, v   | Errors          |
| A      | Cone.rows       |
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from fedminmax.core.bounds import OUTPUT_CURVATURES
from fedminmax.core.errors import InputError
from fedminmax.core.linear_structure import LinearStructure
from fedminmax.core.losses import LOSSES_BY_NAME
from fedminmax.core.messages import Census, SumRounding
from fedminmax.core.solvers.cone import maximise_with_multipliers
from fedminmax.core.solvers.simplex import FixedShares, maximise_on_simplex

UNIT = 2.0**-53
# Roundings of a row's loss and slope besides those of its outputs, with some margin.
PER_ROW = 10
SAFETY = 2.0
# Relative: rows that are the same up to their last bits do not differ by as much.
SAME_ROWS = 1e-6

Players = Literal["group", "site"]


@dataclass(frozen=True)
class Certificate:
    """A proof for a linear model: no model has a worst risk below ``lower``.

    Both bounds are on the training risk of the worst of the ``players`` (groups or sites) plus
    the model's penalty m/2 |theta|^2, where groups that are too small to be chosen have their share
    (see ``simplex``). ``penalty`` is that of the returned model. A model whose parameters have
    at most the same norm has at most the same penalty, so its worst risk is at least ``min_risk``.

    With ``highest_own``, worst risks are excesses over what each group's own best model reaches,
    of which ``highest_own`` is the highest (see ``methods.shared.own_models``).

    If a ``limit`` on the worst risk was given, the model is within it, and no model within it has a
    mean risk below ``min_mean``; this one has at most ``mean``. Both include the penalty. With
    ``max_harm`` this is said of models that raise no group's risk above the plain model's by more,
    either. If no model keeps to both as they were given, both are raised by ``harm_raised``.
    """

    upper: float
    lower: float
    penalty: float
    ridge: float
    players: Players = "group"
    limit: float | None = None
    mean: float | None = None
    min_mean: float | None = None
    highest_own: float | None = None
    max_harm: float | None = None
    harm_raised: float | None = None

    def __post_init__(self) -> None:
        for lower, risk in ((self.lower, self.upper), (self.min_mean, self.mean)):
            if lower is not None and risk is not None and lower > risk:
                raise InputError(
                    f"the proved lower bound {lower:.9g} is above the risk {risk:.9g} of a model "
                    "that was measured, so some sums were wrong or the rows changed during the "
                    "run; nothing is proved: begin a new run"
                )

    @property
    def is_of_groups(self) -> bool:
        """Whether this is about the worst group, which is what users ask for a proof of."""
        return self.players == "group"

    @property
    def gap(self) -> float:
        """Maximum distance from the optimum, as a share of the risk with penalty.

        That is the worst risk, or the mean risk if there is a limit on the worst one. An excess
        can be 0, so it counts together with the highest own risk.
        """
        own = self.highest_own or 0.0
        lower, risk = self.lower + own, self.upper + own
        if self.min_mean is not None and self.mean is not None:
            lower, risk = self.min_mean, self.mean
        return (risk - lower) / risk if risk > 0 else 0.0

    @property
    def risk(self) -> float:
        """The returned model's worst training risk, without its penalty."""
        return self.upper - self.penalty

    @property
    def min_risk(self) -> float:
        """Lower bound on the worst training risk of any model whose norm is no larger."""
        return self.lower - self.penalty

    def in_units(self, unit: float) -> "Certificate":
        """Return the certificate for losses multiplied by ``unit``."""
        risks = ("upper", "lower", "penalty", "limit", "mean", "min_mean")
        names = (*risks, "highest_own", "max_harm", "harm_raised")
        values = {name: getattr(self, name) for name in names}
        known = {name: value * unit for name, value in values.items() if value is not None}
        return replace(self, **known)


def check_provable(structure: LinearStructure | None, asked: str = "certify") -> None:
    """Refuse models that cannot be certified, with the reason; None is a network."""
    if structure is None:
        raise InputError(
            f"{asked}: a network's risk is not convex in its parameters, so gradients prove "
            "nothing about other models; use a logistic or linear model"
        )
    if not structure.is_convex:
        raise InputError(
            f"{asked}: the Brier loss of a softmax is not convex in the parameters, so "
            "gradients prove nothing about other models; use cross-entropy"
        )
    if structure.ridge == 0.0:
        raise InputError(
            f"{asked}: without a ridge there is no useful bound; set a small one, such as 1e-4"
        )


def certificate_from_json(content: Mapping[str, Any] | None) -> Certificate | None:
    """Read a certificate from a file's content; None if it has none."""
    return None if content is None else Certificate(**content)


@dataclass(frozen=True, eq=False)
class Cuts:
    """Linear lower bounds on the risks without ridge: constants [m] and slopes [m, f], float64."""

    constants: Tensor
    slopes: Tensor


@dataclass(frozen=True, eq=False)
class Measured:
    """Risks [A] without ridge and their gradients [A, f], as measured at a point."""

    point: Tensor
    risks: Tensor
    slopes: Tensor


@dataclass(frozen=True)
class Errors:
    """Bounds on the rounding error of a risk and of its gradient."""

    value: float
    slope: float


@dataclass(frozen=True)
class SumErrors:
    """How far masked totals may put a risk, its gradient and its second derivatives off.

    The latter two are bounds on the Euclidean and on the spectral norm.
    """

    value: float = 0.0
    slope: float = 0.0
    bend: float = 0.0


@dataclass(frozen=True)
class RowSize:
    """What rounding errors depend on: L, the number of roundings in a sum N, and masked totals."""

    length: float
    roundings: float
    masked: SumErrors = SumErrors()


def row_size(census: Census, structure: LinearStructure, chunk: int) -> RowSize:
    """Return the size of a census's rows; sites sum ``chunk`` rows at a time."""
    rows = census.counts.sum(dim=0)
    most = int(rows.max())
    depth = min(most, chunk) + most / chunk + 2 * census.sites + structure.outputs
    if census.row_lengths is None:
        return RowSize(math.inf, depth)
    return RowSize(float((census.row_lengths / rows.sqrt()).max()), depth)


def masked_errors(structure: LinearStructure, rounding: SumRounding, rows: Tensor) -> SumErrors:
    """Return the errors of means over groups of this many rows, from those of their sums."""
    least, columns = float(rows[rows > 0].min()), structure.columns
    sides = 2.0 * structure.blocks if structure.outputs > 1 else 1.0
    return SumErrors(
        rounding.loss / least,
        rounding.step * math.sqrt(structure.outputs * columns) / least,
        rounding.statistics * columns * sides / least,
    )


def errors_at(structure: LinearStructure, size: RowSize, length: float, worst: float) -> Errors:
    """Return the errors at parameters of this norm, if no risk is above ``worst``."""
    slope = math.sqrt(2.0) if structure.loss == "cross_entropy" else 2.0 * math.sqrt(worst)
    bend = OUTPUT_CURVATURES[LOSSES_BY_NAME[structure.loss]] * 2.0
    columns, depth, rows = structure.columns + PER_ROW, size.roundings + PER_ROW, size.length
    value = SAFETY * UNIT * (slope * columns * rows * length + depth * (worst + 1.0))
    turn = SAFETY * UNIT * (bend * columns * length * rows**2 + slope * depth * rows)
    return Errors(value + size.masked.value, turn + size.masked.slope)


def errors_of_quadratics(errors: Errors, size: RowSize, step: float, numbers: int) -> Errors:
    """Return the errors at a step's distance from where the sums of squared errors were taken.

    The curvature is 2 x x', whose sums are off by at most 2 (N + 10) u L^2.
    """
    depth = size.roundings + PER_ROW + numbers
    bent = (SAFETY * UNIT * 2.0 * depth * size.length**2 + size.masked.bend) * step
    return Errors(errors.value + (errors.slope + bent) * step, errors.slope + bent)


@dataclass(frozen=True, eq=False)
class Tangents:
    """By point and player: linear lower bounds on a risk without ridge, and how far off they are.

    Constants [k, A] and slopes [k, A, f], in float64; a tangent is off by at most ``errors`` plus
    ``tilts`` times the norm of a model. They are those of single players, so that they serve all
    mixtures of risks that an adversary can choose from (see ``simplex.FixedShares``).
    """

    constants: Tensor
    slopes: Tensor
    errors: Tensor
    tilts: Tensor

    def after(self, earlier: "Tangents", most: int) -> "Tangents":
        """Return these and the newest of earlier points, ``most`` points in all."""
        pairs = zip(self._tensors, earlier._tensors, strict=True)
        return Tangents(*(torch.cat(both)[:most] for both in pairs))

    def mixed(self, fixed: FixedShares) -> "Tangents":
        """Return those of the mixtures."""
        by_player = (own.transpose(0, 1) for own in self._tensors)
        return Tangents(*(fixed.mix(own).transpose(0, 1) for own in by_player))

    def cuts(self, worst: float, ridge: float) -> Cuts:
        """Return cuts that hold at all models whose penalised risk is at most ``worst``."""
        reach = math.sqrt(2.0 * worst / ridge)
        lowered = self.constants - self.errors - self.tilts * reach
        return Cuts(lowered.flatten(), self.slopes.flatten(end_dim=1))

    @property
    def _tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.constants, self.slopes, self.errors, self.tilts


def tangents_at(
    point: Tensor, risks: Tensor, slopes: Tensor, *, ridge: float, errors: Errors
) -> Tangents:
    """Return the tangents of risks [A] with gradients [A, f], ridge included, at a point [f]."""
    bare = slopes - ridge * point
    length = float(point.norm())
    # Rounding of the tangents themselves.
    size = risks.abs() + ridge * length**2 + bare.norm(dim=1) * length
    off = errors.value + errors.slope * length + SAFETY * UNIT * (len(point) + PER_ROW) * size
    constants = risks - 0.5 * ridge * point @ point - bare @ point
    tilts = torch.full_like(constants, errors.slope)
    return Tangents(*(own.unsqueeze(0) for own in (constants, bare, off, tilts)))


def steepest_change(structure: LinearStructure, size: RowSize) -> float:
    """Return how fast a group's gradient can change: b L^2."""
    return OUTPUT_CURVATURES[LOSSES_BY_NAME[structure.loss]] * size.length**2


def check_same_rows(
    before: Measured, now: Measured, cuts: Cuts, *, steepest: float, masked: SumErrors
) -> None:
    """Refuse what no convex risks have at two points, given the cuts of some points.

    A risk is not below its cuts, and its gradient changes by at most ``steepest`` times the
    distance. Rows that changed in between would make the bound false.
    """
    step = now.point - before.point
    heights = (cuts.constants + cuts.slopes @ now.point).reshape(-1, len(now.risks))
    back = now.risks - now.slopes @ step - before.risks
    excess = max([float(back.max()), *(heights - now.risks).flatten().tolist()])
    turned = float((now.slopes - before.slopes).norm(dim=1).max())
    size = float(now.slopes.norm(dim=1).max() + before.slopes.norm(dim=1).max())
    away = float(step.norm())
    turn = (1.0 + SAME_ROWS) * steepest * away + SAME_ROWS * (size + steepest) + 2.0 * masked.slope
    rise = SAME_ROWS * (float(before.risks.max() + now.risks.max()) + size * away)
    if excess > rise + 2.0 * (masked.value + masked.slope * away) or turned > turn:
        raise InputError(
            "the sums of this round contradict those of earlier rounds: rows changed during the "
            "run; restore them, or begin a new run"
        )


@dataclass(frozen=True, eq=False)
class Cone:
    """The rows [k, f] of what models keep to, and the largest norm of a model that matters."""

    rows: Tensor
    reach: float


def cone_of(structure: LinearStructure, worst: float) -> Cone:
    """Return the cone of models whose worst risk is at most ``worst``."""
    rows = structure.cone if structure.has_cone else torch.zeros(0, structure.free_numbers).double()
    return Cone(rows, math.sqrt(2.0 * worst / structure.ridge))


def lower_bound(cuts: Cuts, ridge: float, floor: float = 0.0, cone: Cone | None = None) -> float:
    """Return the best bound that these cuts prove, lowered by the rounding error of its sums.

    With a floor the cuts must be those of a single point, one per group.

    >>> cuts = Cuts(torch.tensor([1.0]).double(), torch.tensor([[1.0]]).double())
    >>> round(lower_bound(cuts, ridge=1.0), 9)
    0.5
    """
    count = len(cuts.constants)
    if cone is not None and len(cone.rows):
        lines = torch.cat([cuts.slopes, -cone.rows])
        heights = torch.cat([cuts.constants, torch.zeros(len(cone.rows)).double()])
        found = maximise_with_multipliers(heights, lines @ lines.T / ridge, count, floor)
        return bound_of(cuts, found.weights, ridge, cone, found.multipliers)
    products = cuts.slopes @ cuts.slopes.T / ridge
    start = torch.full((count,), 1.0 / count, dtype=torch.float64)
    weights = maximise_on_simplex(cuts.constants, products, start, floor)
    return bound_of(cuts, weights, ridge)


def bound_of(
    cuts: Cuts,
    weights: Tensor,
    ridge: float,
    cone: Cone | None = None,
    multipliers: Tensor | None = None,
) -> float:
    """Return the bound that these cut weights and multipliers prove; any non-negative ones do.

    Weights are normalised to a sum of 1 first.
    """
    weights = weights.clamp(min=0.0)
    weights = weights / weights.sum()
    slope = cuts.slopes.T @ weights
    steep, beyond = float(weights @ cuts.slopes.norm(dim=1)), 0.0
    if cone is not None and multipliers is not None:
        multipliers = multipliers.clamp(min=0.0)
        slope = slope - cone.rows.T @ multipliers
        pull = float(multipliers @ cone.rows.norm(dim=1))
        steep, beyond = steep + pull, pull * cone.reach
    fall = float(slope @ slope) / (2.0 * ridge)
    # Each entry of the slope is a sum of rounded products; squaring doubles its relative error.
    terms = len(weights) + (0 if multipliers is None else len(multipliers))
    roundings = SAFETY * UNIT * (terms + len(slope) + PER_ROW)
    size = float(weights @ cuts.constants.abs()) + fall + beyond
    size += 2.0 * steep * float(slope.norm()) / ridge
    return float(weights @ cuts.constants) - fall - roundings * size
