"""The server for networks: from loss and gradient sums to the next candidate model.

The prox-linear step (Drusvyatskiy, Paquette: Efficiency of minimizing compositions of convex
functions and smooth maps, 2019) with an adaptive diagonal metric: at theta, with risks r_a and
slopes g_a of the players (groups, or sites),

    minimise over p:  max_a (r_a + g_a . p) + 1/(2 eta) p' D p.

Its dual has one unknown per player; players that may not be chosen have fixed weights (see
``simplex``). So the weights are those that will be optimal after the step; weights that follow
the risks of the previous round make both oscillate. g_a are running means of the slopes,
D = diag(sqrt(v)) with v the running mean of the squared weighted slope, both as in Adam (Kingma,
Ba: Adam, ICLR 2015).

The rate eta is adapted automatically. Every sum covers all rows, so the worst risk is exact and not
an estimate: a candidate that does not lower it has failed, and the next one starts from the best
model, with half the rate and reset running means. Each success increases the rate. The risk itself
is compared, not the decrease that a step predicts: by that measure a candidate with momentum often
looks bad although it is not, and rates became too small too early. So the worst risk never rises,
and a failure costs one round.

If sites are missing, the worst risks of two rounds are on different rows, and the same candidate
is sent again, a few times. If they stay away, every candidate is kept, unless its risk is far off;
the rate grows while the smoothed worst risk falls, and shrinks once that has stopped.

A network with all its units trained at once passes by the linear model, and where effects are
straight lines it ends above it. So the first rounds fit the linear model with second derivatives
(``second_order_server``, some five rounds), and the network starts as that model (``LinearStart``):
validation rows can only choose what is better. The first rounds ask for the linear model's sums,
which an order says by a weight; the models that are sent are networks throughout.

| symbol     | name                                |
|------------|-------------------------------------|
| theta      | state.parameters, the next candidate |
| r, g       | state.risks, slopes, at state.best  |
| mu         | state.weights                       |
| eta        | state.rate                          |
| v          | state.squares, before bias correction |
"""

import math
from dataclasses import KW_ONLY, dataclass, replace

import torch
from torch import Tensor

from fedminmax.core.certificate import Certificate
from fedminmax.core.linear_structure import LinearStart
from fedminmax.core.solvers.max_of_quadratics import highest_mix
from fedminmax.core.solvers.simplex import FixedShares, maximise_on_simplex
from fedminmax.methods.shared.replies import MAX_REPEATS, RiskSums
from fedminmax.methods.shared.second_order_server import after_second_order_round
from fedminmax.methods.shared.second_order_state import SecondOrderState

# Factors of the rate: after a success before and after the first failure, and after a failure.
FIRST_GROWTH, GROWTH, SHRINKAGE = 2.0, 1.2, 0.5
# Decay of the running mean of squared slopes.
SQUARES_DECAY = 0.99
# No parameter moves further in one step than this, or this multiple of the largest one; and at
# least one of them moves by a few units in the last place of the largest one.
MAX_MOVE, MAX_RELATIVE_MOVE, MIN_DIGITS = 1.0, 10.0, 8.0
# Relative to the metric's largest entry: where the slope was always 0, any value works.
MIN_METRIC = 1e-8
# With partial participation: decay of the worst risk's running mean, which increase is a failure,
# after how many rounds without a new minimum the rate shrinks, and its growth with a new minimum.
SMOOTHING, FAR_OFF, PATIENCE, PARTIAL_GROWTH = 0.9, 2.0, 30, 1.1


@dataclass(frozen=True, eq=False)
class FirstOrderState:
    """The next candidate, and the model that it starts from with what is known there.

    ``slope_sums`` [m, p] are the running means of slopes before bias correction, over ``steps``
    rounds. ``level`` is the worst risk of ``best``, smoothed if only some sites take part,
    ``lowest`` its minimum, and ``stale`` the rounds since. ``is_exact`` says whether the level was
    measured on all rows, and ``repeats`` how often in a row the candidate was sent again.
    ``rounds`` counts the candidates that were kept, ``failures`` the others.
    """

    parameters: Tensor
    weights: Tensor
    _: KW_ONLY
    best: Tensor
    ridge: float
    counts: Tensor
    fixed: FixedShares
    risks: Tensor
    slopes: Tensor
    slope_sums: Tensor
    squares: Tensor
    rate: float
    level: float
    lowest: float
    stale: int
    is_exact: bool
    repeats: int
    steps: int
    rounds: int
    failures: int

    @property
    def certificate(self) -> Certificate | None:
        """Nothing is proved about the selected model."""
        return None

    @property
    def remaining(self) -> float | None:
        """The possible improvement of the worst risk is unknown."""
        return None

    @property
    def selected(self) -> Tensor:
        """The model that the next candidate starts from: with all sites, that of lowest risk."""
        return self.best.unsqueeze(0)


def start_first_order(
    parameters: Tensor,
    *,
    ridge: float,
    weights: Tensor,
    counts: Tensor,
    included: Tensor,
    keep_share: float,
    rate: float,
) -> FirstOrderState:
    """Nothing is known yet: the first round collects the sums of the initial model."""
    slopes = parameters.new_zeros(len(counts), len(parameters), device="cpu")
    return FirstOrderState(
        parameters=parameters,
        weights=weights,
        best=parameters,
        ridge=ridge,
        counts=counts,
        fixed=FixedShares(counts.double() / counts.sum(), included, keep_share),
        risks=torch.zeros(len(counts), dtype=torch.float64),
        slopes=slopes,
        slope_sums=slopes,
        squares=slopes.new_zeros(len(parameters)),
        rate=rate,
        level=math.inf,
        lowest=math.inf,
        stale=0,
        is_exact=False,
        repeats=0,
        steps=0,
        rounds=0,
        failures=0,
    )


def after_first_order_round(
    state: FirstOrderState, reported: RiskSums, min_weight: float, momentum: float
) -> FirstOrderState:
    """Keep the candidate or go back, and choose the next one from there."""
    complete = torch.equal(reported.counts, state.counts)
    if not complete and state.is_exact and state.repeats < MAX_REPEATS:
        return replace(state, repeats=state.repeats + 1)
    tried = _with_sums(state, reported)
    now = highest_mix(tried.fixed.mix(tried.risks), tried.fixed.floor(min_weight))
    if state.rounds == 0 or (complete != state.is_exact and now < FAR_OFF * state.level):
        # Nothing to compare with: this is the first round, or the level is on other rows. After
        # an incomplete round, the next absence is no reason to send a candidate again.
        repeats = MAX_REPEATS if complete and state.rounds else 0
        kept = replace(tried, level=now, lowest=now, is_exact=complete, repeats=repeats)
    elif complete and now < state.level:
        growth = GROWTH if state.failures else FIRST_GROWTH
        kept = replace(tried, level=now, lowest=now, rate=growth * state.rate, repeats=0)
    elif not complete and now < FAR_OFF * state.level:
        kept = _with_smoothed_level(tried, now)
    else:
        return _step_back(state, min_weight, momentum)
    slope = kept.weights.to(kept.slopes) @ kept.slopes
    return _look_ahead(
        replace(
            kept,
            slope_sums=momentum * state.slope_sums + (1.0 - momentum) * kept.slopes,
            squares=torch.lerp(slope.square(), state.squares, SQUARES_DECAY),
            steps=state.steps + 1,
            rounds=state.rounds + 1,
        ),
        min_weight,
        momentum,
    )


def _step_back(state: FirstOrderState, min_weight: float, momentum: float) -> FirstOrderState:
    """Return the state after a failure: start from the best model again, with a smaller rate."""
    return _look_ahead(
        replace(
            state,
            slope_sums=(1.0 - momentum) * state.slopes,
            rate=SHRINKAGE * state.rate,
            steps=1,
            repeats=0,
            failures=state.failures + 1,
        ),
        min_weight,
        momentum,
    )


def _with_sums(state: FirstOrderState, reported: RiskSums) -> FirstOrderState:
    """Return what is known at the candidate; a missing player keeps its last values."""
    seen, point = reported.counts > 0, state.parameters.cpu()
    rows = reported.counts[seen].double()
    risks, slopes = state.risks.clone(), state.slopes.clone()
    penalty = 0.5 * state.ridge * float(point.double().square().sum())
    risks[seen] = reported.losses[seen] / rows + penalty
    slopes[seen] = (reported.gradients[seen] / rows[:, None]).to(slopes) + state.ridge * point
    return replace(state, best=state.parameters, risks=risks, slopes=slopes)


def _with_smoothed_level(tried: FirstOrderState, now: float) -> FirstOrderState:
    level = SMOOTHING * tried.level + (1.0 - SMOOTHING) * now
    if level < tried.lowest:
        return replace(tried, level=level, lowest=level, stale=0, rate=PARTIAL_GROWTH * tried.rate)
    if tried.stale + 1 < PATIENCE:
        return replace(tried, level=level, stale=tried.stale + 1)
    return replace(tried, level=level, lowest=level, stale=0, rate=SHRINKAGE * tried.rate)


def _look_ahead(state: FirstOrderState, min_weight: float, momentum: float) -> FirstOrderState:
    """Choose the next candidate from the best model."""
    slopes = state.slope_sums / (1.0 - momentum**state.steps)
    metric = (state.squares / (1.0 - SQUARES_DECAY**state.rounds)).sqrt()
    steepest = float(metric.max())
    metric = metric + MIN_METRIC * steepest if steepest > 0.0 else torch.ones_like(metric)
    scaled = (state.fixed.mix(slopes) / metric.sqrt()).double()
    products = scaled @ scaled.T
    risks, floor = state.fixed.mix(state.risks), state.fixed.floor(min_weight)
    before = state.fixed.chosen(state.weights)
    best = state.best.cpu()
    largest = float(best.abs().max())
    longest = max(MAX_MOVE, MAX_RELATIVE_MOVE * largest)
    shortest = MIN_DIGITS * torch.finfo(best.dtype).eps * largest
    rate = state.rate
    while True:
        chosen = maximise_on_simplex(risks, rate * products, before, floor)
        weights = state.fixed.weights(chosen)
        direction = (weights.to(slopes) @ slopes) / metric
        unit = float(direction.abs().max())
        if rate * unit <= longest:
            break
        rate = 0.5 * longest / unit
    if 0.0 < rate * unit < shortest:
        # It would be lost in rounding, and no candidate could succeed any more.
        rate = shortest / unit
    point = torch.sub(best, direction, alpha=rate)
    return replace(state, parameters=point.to(state.best), weights=weights, rate=rate)


# The linear model is done when this share of its risk is left to gain, or after so many rounds.
LINEAR_GAP, MAX_LINEAR_ROUNDS = 0.01, 12
# In an order: the sums of the linear model are wanted.
WANTS_LINEAR = torch.ones(1, dtype=torch.float64)


@dataclass(frozen=True, eq=False)
class NetworkState:
    """The linear model's state, then the network's, and which of the two rounds are about."""

    linear: SecondOrderState
    network: FirstOrderState
    shape: LinearStart
    is_linear: bool

    @property
    def is_preparing(self) -> bool:
        """Whether the linear model is still being fitted; once it is, it is the first candidate."""
        return self.is_linear

    @property
    def parameters(self) -> Tensor:
        """The next network to try."""
        if self.is_linear:
            return self._as_network(self.linear.parameters)
        return self.network.parameters

    @property
    def weights(self) -> Tensor:
        """The adversary's weights."""
        return self.linear.weights if self.is_linear else self.network.weights

    @property
    def selected(self) -> Tensor:
        """The network with the lowest risk."""
        if self.is_linear:
            return self._as_network(self.linear.selected[0]).unsqueeze(0)
        return self.network.selected

    @property
    def certificate(self) -> Certificate | None:
        """Nothing is proved about a network."""
        return None

    @property
    def remaining(self) -> float | None:
        """What another network could gain is unknown."""
        return None

    def _as_network(self, linear: Tensor) -> Tensor:
        return self.shape.network_with(self.network.best, linear)


def after_network_round(
    state: NetworkState, reported: RiskSums, min_weight: float, momentum: float
) -> NetworkState:
    """Go on with the linear model until it is done, then with the network that computes it."""
    if not state.is_linear:
        network = after_first_order_round(state.network, reported, min_weight, momentum)
        return replace(state, network=network)
    linear = after_second_order_round(state.linear, reported, min_weight)
    left = linear.remaining
    if linear.rounds < MAX_LINEAR_ROUNDS and (left is None or left > LINEAR_GAP):
        return replace(state, linear=linear)
    start = replace(state, linear=linear).selected[0]
    network = replace(state.network, parameters=start, best=start, weights=linear.weights)
    return replace(state, linear=linear, network=network, is_linear=False)
