"""The next candidate of the server for linear models: the lowest point of quadratic risks.

In the first phase it is the minimum of the highest risk. In the second one (see ``near_minimax``)
it is the lowest point of a game in which every player keeps a part of its share: the part with
which the highest risk there is the limit. The larger it is, the higher that risk.
"""

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
    lowest_mix,
    minimise_max,
    minimise_max_exactly,
)
from fedminmax.core.solvers.simplex import FixedShares, project_on_simplex
from fedminmax.methods.shared.near_minimax import mean_from_game, merit_of
from fedminmax.methods.shared.second_order_state import SecondOrderState

MAX_DAMPING, DAMPING_FACTOR = 1e12, 10.0
# Added to each curvature, relative to its column, which may have any unit.
MIN_CURVATURE = 1e-12
# Of 1 - k: at the least, the mean alone counts; at the most, the highest risk.
LEAST_FREE, MOST_FREE = 1e-9, 1.0 - 1e-6
MAX_SEARCH = 60


@dataclass(frozen=True, eq=False)
class Ahead:
    """A step from the best model, and what the quadratics predict of it.

    ``value`` is the merit there, the trust region's damping included, and ``least`` a value that no
    step brings the objective below. ``chosen`` are the adversary's weights in this ``game``.
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
    structure = state.structure
    own = centred(structure, quadratics(state), state.centre)
    diagonals = own.curvatures.diagonal(dim1=1, dim2=2)
    scale = torch.maximum(state.scale, (state.weights[:, None] * diagonals).sum(dim=0))
    least = MIN_CURVATURE * _positive(diagonals.amax(dim=0))
    floor, natural = state.fixed.floor(min_weight), None
    if structure.coded and state.allowed.is_sought:
        natural = quadratics(replace(state, curvature=state.natural_curvature)).curvatures
    lower = state.allowed.lower if state.allowed.is_sought else state.lower
    least_value = max(lower, 0.0) if state.is_exact else 0.0
    while True:
        damped = least if structure.is_quadratic else damping * scale + least
        search = _Search(state, own, natural, damped, floor)
        found = search.within_limit() if state.allowed.is_sought else search.lowest(state.fixed)
        if structure.is_quadratic or found.value >= least_value or damping >= MAX_DAMPING:
            break
        # No model is that good: the prediction is beyond the range of the quadratics.
        damping *= DAMPING_FACTOR
    return Ahead(
        from_centred(structure, found.point.step, state.centre),
        found.game,
        found.point.weights,
        value=found.value,
        least=_least_value(state, found, least, floor),
        damping=damping,
        scale=scale,
    )


@dataclass(frozen=True, eq=False)
class _Found:
    """The lowest point of a game, and there the highest risk and the merit, damping included."""

    game: FixedShares
    functions: Quadratics
    point: LowestPoint
    worst: float
    value: float


@dataclass(frozen=True, eq=False)
class _Search:
    """The players' quadratics, the damping of each parameter, and the adversary's floor.

    ``natural`` is the curvature of the natural shares, where the second phase needs it.
    """

    state: SecondOrderState
    own: Quadratics
    natural: Tensor | None
    damping: Tensor
    floor: float

    def lowest(self, game: FixedShares, start: Tensor | None = None) -> _Found:
        """Minimise a game's maximum over the steps that the model may take."""
        state, structure = self.state, self.state.structure
        start = game.chosen(state.weights) if start is None else start
        own = self._bent(game, start)
        functions = mixed(state, game, own)
        if structure.is_quadratic:
            point = minimise_max_exactly(functions, self.damping, start, self.floor)
        elif structure.has_cone:
            best = structure.to_free(state.best)
            point = minimise_max_in_cone(functions, self.damping, best, structure.cone, self.floor)
        else:
            point = minimise_max(functions, self.damping, start, self.floor)
        if not state.allowed.is_sought:
            return _Found(game, functions, point, point.value, point.value)
        risks = own.moved(point.step).values
        bent = 0.0 if structure.is_quadratic else 0.5 * float(self.damping @ point.step.square())
        worst = highest_mix(state.fixed.mix(risks), self.floor) + bent
        mean = float(state.fixed.shares @ risks) + bent
        return _Found(game, functions, point, worst, merit_of(state, mean, worst, game.keep_share))

    def _bent(self, game: FixedShares, chosen: Tensor) -> Quadratics:
        """Return the players' quadratics with a shared curvature for these weights.

        Two are known, of the last weights and of the natural shares; the nearest mixture is taken.
        """
        state = self.state
        if self.natural is None:
            return self.own
        away = state.fixed.shares - state.curved
        share = float((game.weights(chosen) - state.curved) @ away) / max(
            float(away @ away), 1e-300
        )
        curvatures = torch.lerp(self.own.curvatures, self.natural, min(max(share, 0.0), 1.0))
        return replace(self.own, curvatures=curvatures)

    def within_limit(self) -> _Found:
        """Find the part that every player keeps with which the highest risk is the limit.

        It falls as the rest 1 - k grows: a search by secants, safeguarded (Illinois).
        """
        allowed, fixed = self.state.allowed, self.state.fixed
        ends: dict[bool, tuple[float, float]] = {}
        game = replace(fixed, keep_share=allowed.keep_share)
        start = project_on_simplex(game.chosen(self.state.weights), floor=self.floor)
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


def _least_value(state: SecondOrderState, found: _Found, least: Tensor, floor: float) -> float:
    """Return a value that no step brings the objective below."""
    structure, functions, weights = state.structure, found.functions, found.point.weights
    if structure.has_cone:
        best = structure.to_free(state.best)
        value = lowest_in_cone(functions, least, best, structure.cone, floor)
    elif structure.is_quadratic:
        value = lowest_mix(functions.moved(found.point.step), least, weights)
    else:
        value = lowest_mix(functions, least, weights)
    # Candidates aim a little below the limit; that margin is not theirs to gain.
    return mean_from_game(found.game, value, found.worst) if state.allowed.is_sought else value


def _positive(widest: Tensor) -> Tensor:
    """Return the largest curvature of each parameter; that of all where nothing bends."""
    most = float(widest.max())
    return torch.where(widest > 0, widest, most if most > 0 else 1.0)
