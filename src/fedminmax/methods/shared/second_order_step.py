"""The next candidate of the server for linear models: the lowest point of quadratic risks.

In the first phase it is the minimum of the highest risk. In the second one (see ``near_minimax``)
it is the lowest point of a game in which every player keeps a part of its share: the part with
which the highest risk there is the limit. The larger it is, the higher that risk.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedminmax.core.solvers.cone import lowest_in_cone, minimise_max_in_cone
from fedminmax.core.solvers.max_of_quadratics import (
    LowestPoint,
    Quadratics,
    centred,
    from_centred,
    highest_mix,
    in_few_directions,
    lowest_mix,
    minimise_max,
    minimise_max_exactly,
)
from fedminmax.core.solvers.simplex import FixedShares, project_on_simplex
from fedminmax.methods.shared.near_minimax import mean_from_game, merit, merit_of
from fedminmax.methods.shared.second_order_state import NOTHING_LEFT, SecondOrderState

MAX_DAMPING, DAMPING_FACTOR = 1e12, 10.0
# Added to each curvature, relative to its column, which may have any unit.
MIN_CURVATURE = 1e-12
# Of 1 - k: at the least, the mean alone counts; at the most, the highest risk.
LEAST_FREE, MOST_FREE = 1e-9, 1.0 - 1e-6
MAX_SEARCH = 60
# Of mixtures of two curvatures: steps with closer ones are alike, and nothing is gained by turns.
SAME_SHARE, MAX_TURNS = 0.05, 3


@dataclass(frozen=True, eq=False)
class Ahead:
    """A step from the best model, and what the quadratics predict of it.

    ``value`` is the merit there, the trust region's damping included, and ``least`` a value that no
    step brings the objective below (minus infinity if it is not asked for). ``chosen`` are the
    adversary's weights in this ``game``.
    """

    step: Tensor
    game: FixedShares
    chosen: Tensor
    value: float
    least: float
    damping: float
    scale: Tensor


def quadratics(state: SecondOrderState) -> Quadratics:
    """Return the players' risks as functions of the step from the best model."""
    curvatures = state.structure.free_curvature(state.curvature)
    curvatures.diagonal(dim1=1, dim2=2).add_(state.structure.ridge)
    return Quadratics(state.risks, state.slopes, curvatures)


def mixed(state: SecondOrderState, game: FixedShares, own: Quadratics) -> Quadratics:
    """Return the functions that the adversary chooses from, given the players' own."""
    # The weights of a mixture add up to 1, so a curvature that all share stays the same.
    curvatures = own.curvatures if state.structure.coded else game.mix(own.curvatures)
    return Quadratics(game.mix(own.values), game.mix(own.slopes), curvatures)


def step_ahead(state: SecondOrderState, damping: float, min_weight: float) -> Ahead:
    """Choose a step in a trust region of this damping, or a smaller one."""
    structure, floor = state.structure, state.fixed.floor(min_weight)
    first = _first_game(state, floor)
    own = centred(structure, _bent(state, first.share), state.centre)
    diagonals = own.curvatures.diagonal(dim1=1, dim2=2)
    scale = torch.maximum(state.scale, (state.weights[:, None] * diagonals).sum(dim=0))
    least = MIN_CURVATURE * _positive(diagonals.amax(dim=0))
    lower = state.allowed.lower if state.allowed.is_sought else state.lower
    least_value = max(lower, 0.0) if state.is_exact else 0.0
    while True:
        damped = least if structure.is_quadratic else damping * scale + least
        found, functions = _found(state, own, first, damped, floor)
        if structure.is_quadratic or found.value >= least_value or damping >= MAX_DAMPING:
            break
        # No model is that good: the prediction is beyond the range of the quadratics.
        damping *= DAMPING_FACTOR
    known = state.allowed.mean if state.allowed.is_sought else merit(state, state.risks, min_weight)
    # It costs a factorisation. What is left to gain is asked for if nothing else proves it, or if
    # it is next to nothing; it is no less than the gain of this step.
    asked = not state.proves or known - found.value <= NOTHING_LEFT * abs(known)
    return Ahead(
        from_centred(structure, found.point.step, state.centre),
        found.game,
        found.point.weights,
        value=found.value,
        least=_least_value(state, found, functions, least, floor) if asked else -math.inf,
        damping=damping,
        scale=scale,
    )


@dataclass(frozen=True, eq=False)
class _Start:
    """The game to begin with, the adversary's weights in it, and the mixture of curvatures."""

    game: FixedShares
    weights: Tensor
    share: float


def _first_game(state: SecondOrderState, floor: float) -> _Start:
    game = state.fixed
    if not state.allowed.is_sought:
        return _Start(game, game.chosen(state.weights), 0.0)
    game = replace(game, keep_share=state.allowed.keep_share)
    start = project_on_simplex(game.chosen(state.weights), floor=floor)
    return _Start(game, start, _natural_share(state, game.weights(start)))


def _bent(state: SecondOrderState, share: float) -> Quadratics:
    """Return the players' quadratics with this mixture of the two curvatures that are known."""
    if not share:
        return quadratics(state)
    packed = torch.lerp(state.curvature, state.natural_curvature, share)
    return quadratics(replace(state, curvature=packed))


def _found(
    state: SecondOrderState, own: Quadratics, first: _Start, damping: Tensor, floor: float
) -> tuple["_Found", Quadratics]:
    """Return the lowest point of the game that is to be played, and the players' functions in it.

    In the second phase it is the game whose highest risk is the limit there.
    """
    found = _solved(state, own, damping, floor, first.game, first.weights)
    share, turns = first.share, 1
    while turns < MAX_TURNS and state.allowed.is_sought:
        wanted = _natural_share(state, found.game.weights(found.point.weights))
        if abs(wanted - share) <= SAME_SHARE:
            break
        share, turns, own = wanted, turns + 1, _bent(state, wanted)
        found = _solved(state, own, damping, floor, found.game, found.point.weights)
    return found, own


def _natural_share(state: SecondOrderState, weights: Tensor) -> float:
    """Return which mixture of the two curvatures that are known is nearest to that of weights.

    They are the curvature of the last weights (0) and that of the natural shares (1), where all
    players have one curvature.
    """
    if not state.structure.coded:
        return 0.0
    away = state.fixed.shares - state.curved
    share = float((weights - state.curved) @ away) / max(float(away @ away), 1e-300)
    return min(max(share, 0.0), 1.0)


def _solved(
    state: SecondOrderState,
    own: Quadratics,
    damping: Tensor,
    floor: float,
    game: FixedShares,
    start: Tensor,
) -> "_Found":
    """Return the lowest point of this game; in the second phase, of the one that is looked for."""
    if not state.structure.coded or state.structure.has_cone:
        return _Search(state, own, damping, floor).found(game, start)
    few, directions = in_few_directions(own, damping)
    found = _Search(state, few, torch.zeros(len(few.slopes[0])).double(), floor).found(game, start)
    return replace(found, point=replace(found.point, step=directions @ found.point.step))


@dataclass(frozen=True, eq=False)
class _Found:
    """The lowest point of a game, and there the highest risk and the merit, damping included."""

    game: FixedShares
    point: LowestPoint
    worst: float
    value: float


@dataclass(frozen=True, eq=False)
class _Search:
    """The players' quadratics, the damping of each parameter, and the adversary's floor."""

    state: SecondOrderState
    own: Quadratics
    damping: Tensor
    floor: float

    def found(self, game: FixedShares, start: Tensor) -> _Found:
        """Begin with a game and the adversary's weights in it."""
        sought = self.state.allowed.is_sought
        return self.within_limit(game, start) if sought else self.lowest(game, start)

    def lowest(self, game: FixedShares, start: Tensor) -> _Found:
        """Minimise a game's maximum over the steps that the model may take."""
        state, structure = self.state, self.state.structure
        functions = mixed(state, game, self.own)
        if structure.is_quadratic:
            point = minimise_max_exactly(functions, self.damping, start, self.floor)
        elif structure.has_cone:
            best = structure.to_free(state.best)
            point = minimise_max_in_cone(functions, self.damping, best, structure.cone, self.floor)
        else:
            point = minimise_max(functions, self.damping, start, self.floor)
        if not state.allowed.is_sought:
            return _Found(game, point, point.value, point.value)
        risks = self.own.moved(point.step).values
        bent = 0.0 if structure.is_quadratic else 0.5 * float(self.damping @ point.step.square())
        worst = highest_mix(state.fixed.mix(risks), self.floor) + bent
        mean = float(state.fixed.shares @ risks) + bent
        return _Found(game, point, worst, merit_of(state, mean, worst, game.keep_share))

    def within_limit(self, game: FixedShares, start: Tensor) -> _Found:
        """Find the part that every player keeps with which the highest risk is the limit.

        It falls as the rest 1 - k grows: a search by secants, safeguarded (Illinois).
        """
        allowed, fixed = self.state.allowed, self.state.fixed
        ends: dict[bool, tuple[float, float]] = {}
        found, last = self.lowest(game, start), None
        for _ in range(MAX_SEARCH):
            free, miss = 1.0 - found.game.keep_share, found.worst - allowed.target
            is_above = miss > 0.0
            at_end = free >= MOST_FREE if is_above else free <= LEAST_FREE
            if -allowed.margin <= miss <= 0.0 or at_end:
                break
            ends[is_above] = (free, miss)
            other = ends.get(not is_above)
            if other is None:
                free = MOST_FREE if is_above else LEAST_FREE
            else:
                if last is is_above:
                    other = ends[not is_above] = (other[0], 0.5 * other[1])
                free = (free * other[1] - other[0] * miss) / (other[1] - miss)
            last = is_above
            found = self.lowest(replace(fixed, keep_share=1.0 - free), found.point.weights)
        return found


def _least_value(
    state: SecondOrderState, found: _Found, own: Quadratics, least: Tensor, floor: float
) -> float:
    """Return a value that no step brings the objective below."""
    structure, weights = state.structure, found.point.weights
    functions = mixed(state, found.game, own)
    if structure.has_cone:
        best = structure.to_free(state.best)
        value = lowest_in_cone(functions, least, best, structure.cone, floor)
    elif structure.is_quadratic:
        value = lowest_mix(functions.moved(found.point.step), least, weights)
    else:
        value = lowest_mix(functions, least, weights)
    # Candidates aim a little below the limit; that margin is not theirs to gain, nor may the mean
    # of a model that uses some of it look lower than that of any step.
    worst = max(found.worst, state.allowed.worst) if state.allowed.is_sought else 0.0
    return mean_from_game(found.game, value, worst) if state.allowed.is_sought else value


def _positive(widest: Tensor) -> Tensor:
    """Return the largest curvature of each parameter; that of all where nothing bends."""
    most = float(widest.max())
    return torch.where(widest > 0, widest, most if most > 0 else 1.0)
