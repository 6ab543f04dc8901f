"""The server of noisy sums: looking ahead where no single number can be trusted.

Under a privacy guarantee (see ``core.privacy``) every round costs noise in all others, so there
are few, and nothing may be decided by one round's numbers: a trust region would believe noise. The
prox-linear step (see ``first_order_server``) is taken with a metric that needs no test:

- For a linear model, H = c (S + d I) + m I: S is the mean of x x', sent once before the first round
  with noise, c the largest second derivative of the loss in the outputs, m the ridge. Such an H is
  above the pooled risk's curvature everywhere, so each step lowers what it is taken on (Bohning,
  Lindsay: Monotonicity of quadratic-approximation algorithms, 1988). d is the noise's largest
  eigenvalue, about 2 s sqrt(k) for a symmetric matrix of k columns with deviation s (Wigner), and
  at least half of the mean eigenvalue that rows of the largest length would have.
- For a network, Adam's (Kingma, Ba 2015).

Slopes are running means. A risk is mostly what the last one and the slope predict, and a little of
what was reported now, as a filter would have it. In the dual's products of slopes, noise adds its
variance to the diagonal; as that is known, it is taken off. The answer is the mean of the second
half of the models, in which noise cancels (Polyak, Juditsky 1992).

| symbol | name                               |
|--------|------------------------------------|
| theta  | state.parameters                   |
| r, g   | state.risks, slope_sums            |
| mu     | state.weights                      |
| H^-1   | state.inverse, per output          |
"""

from dataclasses import KW_ONLY, dataclass, replace

import torch
from torch import Tensor

from fedminmax.core.bounds import OUTPUT_CURVATURES
from fedminmax.core.certificate import Certificate
from fedminmax.core.linear_structure import LinearStructure
from fedminmax.core.losses import LOSSES_BY_NAME
from fedminmax.core.messages import Census
from fedminmax.core.noise import NoiseLevels
from fedminmax.core.solvers.simplex import FixedShares, maximise_on_simplex
from fedminmax.methods.shared.replies import RiskSums

# The past's share in running means of slopes and of squared slopes, and at most in risks.
MOMENTUM, MEMORY_OF_SQUARES, TRUST_IN_PREDICTION = 0.7, 0.9, 0.9
# Of the mean eigenvalue of rows of the largest length.
LEAST_DAMPING = 0.5
NETWORK_RATE = 0.02


@dataclass(frozen=True, eq=False)
class NoisyState:
    """The next try, what is known at the last one, and the sum of the models to average.

    ``inverse`` [k, k] is the inverse metric of each output of a linear model (``structure``), and
    empty for a network, whose ``squares`` are the running mean of the squared weighted slope.
    ``deviation`` [m] is that of each number of a player's mean slope.
    """

    parameters: Tensor
    weights: Tensor
    _: KW_ONLY
    last: Tensor
    structure: LinearStructure | None
    counts: Tensor
    fixed: FixedShares
    risks: Tensor
    slope_sums: Tensor
    inverse: Tensor
    squares: Tensor
    deviation: Tensor
    average: Tensor
    averaged: int
    steps: int
    rounds: int

    @property
    def certificate(self) -> Certificate | None:
        """What is proved of the answer: nothing, from sums with noise."""
        return None

    @property
    def remaining(self) -> float | None:
        """The share of the worst risk that is left to gain: not known."""
        return None

    @property
    def selected(self) -> Tensor:
        """The mean of the models of the second half of the rounds; before that, the last one."""
        if not self.averaged:
            return self.parameters.unsqueeze(0)
        return (self.average / self.averaged).to(self.parameters).unsqueeze(0)


def start_noisy(
    parameters: Tensor,
    census: Census,
    noise: NoiseLevels,
    weights: Tensor,
    keep_share: float,
) -> NoisyState:
    """Nothing is known yet but the noise and, of a linear model, the mean of x x'."""
    counts, linear = census.counts.sum(dim=0), census.linear
    rows = counts.double()
    # A common shift of all outputs changes no prediction; it would only carry noise.
    start = parameters if linear is None else linear.from_free(linear.to_free(parameters))
    new = torch.zeros(0, dtype=torch.float64).new_zeros
    length = len(parameters) if linear is None else linear.free_numbers
    return NoisyState(
        parameters=start.to(parameters),
        weights=weights,
        last=new(length),
        structure=linear,
        counts=counts,
        fixed=FixedShares(rows / rows.sum(), census.included, keep_share),
        risks=new(len(counts)),
        slope_sums=new(len(counts), length),
        inverse=_inverse_metric(linear, census.moment, noise, float(rows.sum())),
        squares=new(length),
        deviation=noise.gradient / rows,
        average=new(len(parameters)),
        averaged=0,
        steps=0,
        rounds=noise.rounds,
    )


def _inverse_metric(
    linear: LinearStructure | None, moment: Tensor | None, noise: NoiseLevels, rows: float
) -> Tensor:
    if linear is None or moment is None:
        return torch.zeros(0, 0, dtype=torch.float64)
    columns = linear.columns
    damping = max(
        2.0 * noise.moment / rows * columns**0.5, LEAST_DAMPING * noise.max_row**2 / columns
    )
    values, vectors = torch.linalg.eigh(moment / rows)
    curvature = OUTPUT_CURVATURES[LOSSES_BY_NAME[linear.loss]]
    metric = curvature * (values.clamp(min=0.0) + damping) + linear.ridge
    inverse: Tensor = (vectors / metric) @ vectors.T
    return inverse


def after_noisy_round(state: NoisyState, reported: RiskSums, min_weight: float) -> NoisyState:
    """Take in a round's sums and step."""
    linear, steps = state.structure, state.steps + 1
    ridge = 0.0 if linear is None else linear.ridge
    point = state.parameters.cpu().double() if linear is None else linear.to_free(state.parameters)
    rows = reported.counts.double()
    gradients = reported.gradients.double()
    own = gradients if linear is None else linear.to_free(gradients)
    slopes = own / rows[:, None] + ridge * point
    risks = reported.losses / rows + 0.5 * ridge * float(point @ point)
    if state.steps:
        before = state.slope_sums / (1.0 - MOMENTUM**state.steps)
        trust = min(TRUST_IN_PREDICTION, state.steps / steps)
        risks = torch.lerp(risks, state.risks + before @ (point - state.last), trust)
    slope_sums = MOMENTUM * state.slope_sums + (1.0 - MOMENTUM) * slopes
    slope = state.weights @ slopes
    squares = MEMORY_OF_SQUARES * state.squares + (1.0 - MEMORY_OF_SQUARES) * slope.square()
    state = replace(
        state, risks=risks, slope_sums=slope_sums, squares=squares, last=point, steps=steps
    )
    return _step(state, point, min_weight)


def _step(state: NoisyState, point: Tensor, min_weight: float) -> NoisyState:
    """Choose the weights that will be right after the step, and take it."""
    linear, fixed = state.structure, state.fixed
    slopes = state.slope_sums / (1.0 - MOMENTUM**state.steps)
    mixed = fixed.mix(slopes)
    scaled = _scaled(state, mixed)
    # Of a running mean of independent numbers, and over all directions of the metric.
    past = MOMENTUM**state.steps
    share = (1.0 - MOMENTUM) * (1.0 + past) / ((1.0 + MOMENTUM) * (1.0 - past))
    trace = float(_scaled(state, torch.ones_like(mixed[:1])).sum())
    if linear is not None:
        trace = float(state.inverse.diagonal().sum()) * (len(point) // linear.columns)
    deviations = fixed.mix(torch.diag(state.deviation))
    variance = share * trace * deviations @ deviations.T
    products = scaled @ mixed.T
    values, vectors = torch.linalg.eigh(0.5 * (products + products.T) - variance)
    products = (vectors * values.clamp(min=0.0)) @ vectors.T
    chosen = maximise_on_simplex(
        fixed.mix(state.risks), products, fixed.chosen(state.weights), fixed.floor(min_weight)
    )
    moved = point - chosen @ scaled
    vector = moved if linear is None else linear.from_free(moved)
    keep = 2 * state.steps >= state.rounds
    return replace(
        state,
        parameters=vector.to(state.parameters),
        weights=fixed.weights(chosen),
        average=state.average + vector if keep else state.average,
        averaged=state.averaged + int(keep),
    )


def _scaled(state: NoisyState, slopes: Tensor) -> Tensor:
    """Return H^-1 times each of these slopes."""
    linear = state.structure
    if linear is None:
        mean = state.squares / (1.0 - MEMORY_OF_SQUARES**state.steps)
        return NETWORK_RATE * slopes / (mean.sqrt() + 1e-12)
    blocks = slopes.reshape(len(slopes), -1, linear.columns)
    scaled: Tensor = (blocks @ state.inverse).flatten(1)
    return scaled
