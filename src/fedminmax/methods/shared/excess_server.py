"""Minimax in excess risk: the highest r_a - o_a, with o_a what group a's own best model reaches.

Agarwal, Zhang: Minimax regret optimization for robust machine learning under distribution shift,
COLT 2022, call it regret. The group with the highest risk is often the one whose outcome is closest
to a coin toss. Minimax in risk then gives it all the weight, although no model could do much for
it, and others pay. What no model of this kind could remove does not count here.

The first rounds fit the plain model, the next ones each group's own models (``own_models``). What
they reach becomes an offset of each group's risk (``Offsets``), and from then on the server plays
its usual game.

A limit h on harm (``max_harm``) needs the plain model, too: no group's risk may be above its
p_a + h. Once the game's value is known, so is the limit c that the tolerance allows, and both
limits together are one of each group, c_a = min(c, p_a + h). With offsets max_b c_b - c_a they are
one limit again, of the highest risk: so what is written for a tolerance finds the lowest mean
within them (``second_order_step``), and its bound. If that game's value is proved to be above the
limit, no model keeps to both. Then both are raised by the least that lets one do so: the nearest
pair.

| symbol | name              |
|--------|-------------------|
| r_a    | server.risks      |
| o_a    | state.own_risks   |
| p_a    | state.plain_risks |
| c      | Harm.limit        |
| h      | Harm.most         |
"""

import math
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
    within_limit,
)
from fedminmax.methods.shared.second_order_state import Offsets, SecondOrderState
from fedminmax.methods.shared.second_order_step import (
    NEAR,
    mean_from_game,
    quadratics,
    with_allowed,
)

# The plain model is found when this share of its risk is left to gain, or after so many rounds.
# Groups' risks at it are about the root of that away from their own.
PLAIN_GAP, EXACT_PLAIN_GAP, MAX_PLAIN_ROUNDS = 1e-4, 1e-8, 30
MAX_INCOMPLETE = 20
# What rounds are about: the plain model, the groups' own, the game, whether both limits can be kept
# to, and the lowest mean within them.
PLAIN_MODEL, OWN_MODELS, GAME, BOTH_LIMITS, WITHIN_BOTH = range(5)


@dataclass(frozen=True)
class OwnRisks:
    """By group: the plain model's training risk, and what its own best model reaches."""

    plain: tuple[float, ...]
    own: tuple[float, ...]

    def in_units(self, unit: float) -> "OwnRisks":
        """Return the same for losses multiplied by ``unit``."""
        return OwnRisks(*(tuple(risk * unit for risk in own) for own in (self.plain, self.own)))


@dataclass(frozen=True)
class Harm:
    """A limit on harm; ``most`` is infinite if there is none.

    Once the game's value is known: ``lower``, which no model's highest risk is below, the ``limit``
    that the tolerance allows, the limit of the game with both limits, ``joint``, and by how much
    both had to be raised, ``raised``.
    """

    most: float
    lower: float = -math.inf
    limit: float = math.inf
    joint: float = math.inf
    raised: float = 0.0

    @property
    def is_given(self) -> bool:
        """Whether there is a limit."""
        return math.isfinite(self.most)


@dataclass(frozen=True, eq=False)
class ExcessState:
    """The game, and what comes before it: the plain model, and models of the groups' own.

    ``plain_risks`` [A] are the plain model's and ``own_risks`` [A] what the groups' own models
    reach, without penalties; 0 until they are known. Of the ``plain_model`` also its ``penalty``
    and ``plain_lower``, which its objective is proved not to be below.
    ``keep_share`` and ``tolerance`` are those of the game. ``incomplete`` counts the rounds for own
    models in which sites were missing.
    """

    game: SecondOrderState | FrontierState
    own: OwnModels
    plain_risks: Tensor
    own_risks: Tensor
    harm: Harm
    keep_share: float
    tolerance: float
    is_excess: bool
    plain_model: Tensor
    penalty: float = 0.0
    plain_lower: float = -math.inf
    stage: int = PLAIN_MODEL
    incomplete: int = 0

    @property
    def server(self) -> SecondOrderState:
        """The server at work."""
        return self.game.server if isinstance(self.game, FrontierState) else self.game

    @property
    def is_preparing(self) -> bool:
        """Whether what the game needs is still being found."""
        return self.stage < GAME

    @property
    def is_fitting(self) -> bool:
        """Whether rounds are about the groups' own models."""
        return self.stage == OWN_MODELS

    @property
    def is_within_both(self) -> bool:
        """Whether limits are kept to, if there is one on harm."""
        return self.stage == WITHIN_BOTH if self.harm.is_given else not self.is_preparing

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
        """What is proved of the game, if it is the last one."""
        proved, harm = self.game.certificate, self.harm
        if not self.is_within_both:
            return None
        if proved is None or not harm.is_given or isinstance(self.game, FrontierState):
            return proved
        own = self.game.offsets
        added = own.highest if own.is_known else 0.0
        limit = harm.limit + harm.raised - added
        return replace(
            proved,
            upper=limit,
            lower=harm.lower - added,
            limit=limit,
            max_harm=harm.most + harm.raised,
            harm_raised=harm.raised,
        )

    @property
    def remaining(self) -> float | None:
        """The possible relative improvement; None before the last game."""
        return self.game.remaining if self.is_within_both else None


def start_excess(
    game: object, keep_share: float, min_weight: float, *, max_harm: float | None, is_excess: bool
) -> ExcessState:
    """Begin with the plain model."""
    server = game.server if isinstance(game, FrontierState) else game
    asked = 'objective = "excess"' if is_excess else f"max_harm = {max_harm:g}"
    if not isinstance(server, SecondOrderState):
        other = 'give objective = "risk"' if is_excess else "drop max_harm"
        raise InputError(
            f"{asked} needs second derivatives: those of additive and linear models of moderate "
            f"size, without a privacy guarantee; {other}"
        )
    if min_weight:
        raise InputError(
            f"min_weight = {min_weight:g} with {asked}: weights have no floor but keep_share "
            "there; drop min_weight"
        )
    if max_harm is not None:
        _check_harm(game, server, max_harm)
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
    harm = Harm(math.inf if max_harm is None else float(max_harm))
    plain = server.parameters
    return ExcessState(game, own, unknown, unknown, harm, keep_share, tolerance, is_excess, plain)


def _check_harm(game: object, server: SecondOrderState, max_harm: float) -> None:
    asked = f"max_harm = {max_harm:g}"
    if isinstance(game, FrontierState):
        raise InputError(f"{asked} is about one model, not about a frontier; drop one of them")
    if not server.allowed.tolerance:
        raise InputError(
            f"{asked} needs a tolerance: exact minimax leaves no model to choose; give tolerance, "
            "such as 0.005"
        )
    if not bool(server.fixed.included.all()):
        raise InputError(
            f"{asked}, but some groups are too small to be trained for, so their harm cannot be "
            'limited; set small = "merge" or small = "include"'
        )


def after_excess_round(
    state: ExcessState, reported: RiskSums, optimality_gap: float
) -> ExcessState:
    """Improve the plain model, or play the game once what groups can reach is known."""
    if not state.is_preparing:
        if isinstance(state.game, FrontierState):
            game = after_frontier_round(state.game, reported, optimality_gap)
            return replace(state, game=game)
        state = replace(state, game=after_second_order_round(state.game, reported, 0.0))
        return _with_limits(state) if state.harm.is_given else state
    server = after_second_order_round(state.server, reported, 0.0)
    state = _with_server(state, server)
    gap = EXACT_PLAIN_GAP if state.harm.is_given else PLAIN_GAP
    left = server.remaining
    if server.rounds < MAX_PLAIN_ROUNDS and (left is None or left > gap):
        return state
    plain = _plain_of(server, server.selected[0])
    penalty = 0.5 * server.structure.ridge * float(plain.point @ plain.point)
    state = replace(
        state, plain_model=server.selected[0], penalty=penalty, plain_lower=server.lower
    )
    if state.is_excess:
        own = start_own_models(plain, len(server.counts))
        return replace(state, own=own, stage=OWN_MODELS)
    away = plain.point - server.structure.to_free(server.best)
    risks = quadratics(server).moved(away).values - penalty
    return _with_game(replace(state, plain_risks=risks))


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
    """Begin the game: what it needs is known."""
    server = state.server
    if state.is_excess:
        state, server = _with_own_risks(state, server)
    state = replace(state, stage=GAME)
    if isinstance(state.game, FrontierState):
        return _with_server(state, retargeted(server, PLAIN))
    server = retargeted(server, state.keep_share)
    # A limit on harm belongs to the second phase, which begins with both limits.
    tolerance = 0.0 if state.harm.is_given else state.tolerance
    allowed = replace(server.allowed, tolerance=tolerance)
    return _with_server(state, replace(server, allowed=allowed))


def _with_own_risks(
    state: ExcessState, server: SecondOrderState
) -> tuple[ExcessState, SecondOrderState]:
    own_risks, included = state.plain_risks - gains_of(state.own), server.fixed.included
    highest = float(own_risks[included].max())
    offsets = Offsets(torch.where(included, highest - own_risks, 0.0), highest, is_known=True)
    return replace(state, own_risks=own_risks), with_offsets(server, offsets)


def _with_limits(state: ExcessState) -> ExcessState:
    """Add both limits once the value is known; then seek the lowest mean within them."""
    server, harm = state.server, state.harm
    left, near = server.remaining, NEAR * state.tolerance
    if state.stage == GAME and left is not None and left <= near:
        least = max((1.0 - left) * server.answer, server.lower)
        limit = (1.0 + state.tolerance) * least
        # Both in the units of risks with penalty, without offsets.
        before = server.offsets
        limits = torch.minimum(limit - before.values, state.plain_risks + state.penalty + harm.most)
        joint = float(limits.max())
        offsets = replace(before, values=joint - limits)
        harm = replace(harm, lower=server.lower, limit=limit, joint=joint)
        server = retargeted(with_offsets(server, offsets), 0.0)
        state = _with_server(replace(state, harm=harm, stage=BOTH_LIMITS), server)
        left = server.remaining
    if state.stage != BOTH_LIMITS or not server.is_exact:
        return state
    error = server.error_at(server.structure.to_free(server.selected[0])).value
    worst = server.answer + (error if server.proves else 0.0)
    if worst > harm.joint:
        if left is None or left > near:
            return state
        # As near as is needed, and room to choose in.
        raised = worst * (1.0 + near) - harm.joint
        harm = replace(harm, joint=harm.joint + raised, raised=raised)
    server = within_limit(server, state.tolerance, harm.joint, 0.0)
    # No model has a lower mean than the plain one, which may itself be within both.
    risks = state.plain_risks + state.penalty + server.offsets.values
    server = with_allowed(server, state.plain_model, risks, 0.0)
    plain, most = replace(server.fixed, keep_share=PLAIN), harm.joint - server.offsets.values
    lower = mean_from_game(plain, state.plain_lower, float(most.max()))
    lower += server.offsets.of_mean(server.fixed) if server.proves else -math.inf
    allowed = replace(server.allowed, lower=max(server.allowed.lower, lower))
    return _with_server(
        replace(state, harm=harm, stage=WITHIN_BOTH), replace(server, allowed=allowed)
    )


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
