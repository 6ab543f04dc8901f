"""Minimax in excess risk: the highest r_a - o_a, with o_a what group a's own best model reaches.

Agarwal, Zhang: Minimax regret optimization for robust machine learning under distribution shift,
COLT 2022, call it regret. The group with the highest risk is often the one whose outcome is closest
to a coin toss. Minimax in risk then gives it all the weight, although no model could do much for
it, and others pay. What no model of this kind could remove does not count here.

The first rounds fit the plain model, the next ones each group's own models (``own_models``). What
they reach becomes an offset of each group's risk (``Offsets``), and from then on the server plays
its usual game.

| symbol | name            |
|--------|-----------------|
| r_a    | server.risks    |
| o_a    | state.own_risks |
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedminmax.core.certificate import Certificate
from fedminmax.core.errors import InputError
from fedminmax.core.messages import Sums
from fedminmax.methods.shared.frontier_server import PLAIN, FrontierState, after_frontier_round
from fedminmax.methods.shared.own_models import (
    MODELS,
    OwnModels,
    OwnSums,
    Plain,
    after_own_sums,
    gains_of,
    start_own_models,
)
from fedminmax.methods.shared.replies import RiskSums
from fedminmax.methods.shared.second_order_server import (
    after_second_order_round,
    retargeted,
    with_offsets,
)
from fedminmax.methods.shared.second_order_state import Offsets, SecondOrderState

# The plain model is found when this share of its risk is left to gain, or after so many rounds.
PLAIN_GAP, MAX_PLAIN_ROUNDS = 1e-4, 30
MAX_INCOMPLETE = 20


@dataclass(frozen=True)
class OwnRisks:
    """By group: the plain model's training risk, and what its own best model reaches."""

    plain: tuple[float, ...]
    own: tuple[float, ...]

    def in_units(self, unit: float) -> "OwnRisks":
        """Return the same for losses multiplied by ``unit``."""
        return OwnRisks(*(tuple(risk * unit for risk in own) for own in (self.plain, self.own)))


@dataclass(frozen=True, eq=False)
class ExcessState:
    """The game, and the models of the groups' own that come before it.

    ``plain_risks`` [A] are the plain model's and ``own_risks`` [A] what the groups' own models
    reach, without penalties; 0 until they are known. ``keep_share`` and ``tolerance`` are those
    of the game. ``incomplete`` counts the rounds for own models in which sites were missing.
    """

    game: SecondOrderState | FrontierState
    own: OwnModels
    plain_risks: Tensor
    own_risks: Tensor
    keep_share: float
    tolerance: float
    is_fitting: bool = False
    incomplete: int = 0

    @property
    def server(self) -> SecondOrderState:
        """The server at work."""
        return self.game.server if isinstance(self.game, FrontierState) else self.game

    @property
    def is_preparing(self) -> bool:
        """Whether what groups can reach is still being found."""
        return not self.server.offsets.is_known

    @property
    def own_models(self) -> Tensor:
        """The models to measure next, in the model's order, one after another."""
        structure = self.server.structure
        return torch.stack([structure.from_free(model) for model in self.own.tried]).flatten()

    @property
    def parameters(self) -> Tensor:
        """The next model to try; while own models are measured, the plain one."""
        if self.is_fitting:
            return self.game.selected[0]
        return self.game.parameters

    @property
    def weights(self) -> Tensor:
        """The adversary's weights."""
        return self.game.weights

    @property
    def selected(self) -> Tensor:
        """The model with the lowest objective."""
        return self.game.selected

    @property
    def certificate(self) -> Certificate | None:
        """What is proved about the highest excess; nothing before groups' own risks are known."""
        return None if self.is_preparing else self.game.certificate

    @property
    def remaining(self) -> float | None:
        """The possible relative improvement; None before groups' own risks are known."""
        return None if self.is_preparing else self.game.remaining


def start_excess(game: object, keep_share: float, min_weight: float) -> ExcessState:
    """Begin with the plain model."""
    server = game.server if isinstance(game, FrontierState) else game
    if not isinstance(server, SecondOrderState):
        raise InputError(
            'objective = "excess" needs second derivatives, for each group\'s own best model: '
            "those of additive and linear models of moderate size, without a privacy guarantee; "
            'give objective = "risk"'
        )
    if min_weight:
        raise InputError(
            f'min_weight = {min_weight:g} with objective = "excess": weights have no floor but '
            "keep_share there; drop min_weight"
        )
    groups = len(server.counts)
    unknown = torch.zeros(groups, dtype=torch.float64)
    tolerance = game.tolerance if isinstance(game, FrontierState) else server.allowed.tolerance
    if isinstance(game, SecondOrderState):
        fixed = replace(server.fixed, keep_share=PLAIN)
        allowed = replace(server.allowed, tolerance=0.0)
        game = replace(server, fixed=fixed, weights=fixed.shares, allowed=allowed)
    if not isinstance(game, SecondOrderState | FrontierState):
        raise TypeError("this server plays no game")
    own = start_own_models(_plain_of(server, server.parameters), groups)
    return ExcessState(game, own, unknown, unknown, keep_share, tolerance)


def after_excess_round(
    state: ExcessState, reported: RiskSums, optimality_gap: float
) -> ExcessState:
    """Improve the plain model, or play the game once what groups can reach is known."""
    if not state.is_preparing:
        if isinstance(state.game, FrontierState):
            game = after_frontier_round(state.game, reported, optimality_gap)
            return replace(state, game=game)
        return replace(state, game=after_second_order_round(state.game, reported, 0.0))
    server = after_second_order_round(state.server, reported, 0.0)
    state = _with_server(state, server)
    left = server.remaining
    if server.rounds < MAX_PLAIN_ROUNDS and (left is None or left > PLAIN_GAP):
        return state
    own = start_own_models(_plain_of(server, server.selected[0]), len(server.counts))
    return replace(state, own=own, is_fitting=True)


def after_own_round(state: ExcessState, total: Sums) -> ExcessState:
    """Improve the groups' own models; a round in which sites are missing is repeated."""
    server, groups = state.server, len(state.server.counts)
    if not torch.equal(total.group_count.cpu(), server.counts):
        if state.incomplete >= MAX_INCOMPLETE:
            raise InputError(
                f"in {MAX_INCOMPLETE} rounds in a row sites were missing; what groups can reach "
                "needs all sites: bring them back, and run it again to continue"
            )
        return replace(state, incomplete=state.incomplete + 1)
    structure, cells = server.structure, groups * MODELS
    losses, held_out, counts = torch.split(
        total.statistics, [cells, cells, len(total.statistics) - 2 * cells]
    )
    slopes = structure.to_free(total.step.reshape(cells, -1))
    # Masked counts are rounded.
    sums = OwnSums(losses, slopes, held_out, counts.reshape(groups, -1).round())
    plain = _plain_of(server, state.parameters)
    own = after_own_sums(state.own, sums, plain)
    state = replace(state, own=own, incomplete=0, plain_risks=total.group_risks)
    return _with_game(state) if own.is_done else state


def _with_game(state: ExcessState) -> ExcessState:
    """Begin the game: what groups can reach is known."""
    server = state.server
    own_risks, included = state.plain_risks - gains_of(state.own), server.fixed.included
    highest = float(own_risks[included].max())
    offsets = Offsets(torch.where(included, highest - own_risks, 0.0), highest, is_known=True)
    server = with_offsets(server, offsets)
    state = replace(state, own_risks=own_risks, is_fitting=False)
    if isinstance(state.game, FrontierState):
        return _with_server(state, retargeted(server, PLAIN))
    server = retargeted(server, state.keep_share)
    allowed = replace(server.allowed, tolerance=state.tolerance)
    return _with_server(state, replace(server, allowed=allowed))


def _with_server(state: ExcessState, server: SecondOrderState) -> ExcessState:
    if isinstance(state.game, FrontierState):
        return replace(state, game=replace(state.game, server=server))
    return replace(state, game=server)


def _plain_of(server: SecondOrderState, model: Tensor) -> Plain:
    structure = server.structure
    curvatures = structure.free_curvature(server.curvature)
    numbers = structure.free_numbers
    if not len(curvatures):
        return Plain(structure.to_free(model), torch.zeros(numbers, numbers), 0.0, structure.cone)
    shares = torch.ones(1).double() if structure.coded else server.fixed.shares
    curvature = torch.tensordot(shares, curvatures, dims=1)
    cone = structure.cone if structure.has_cone else curvature[:0]
    return Plain(structure.to_free(model), curvature, structure.ridge, cone)
