"""The frontier between the plain model and the minimax model: certified points, in few more rounds.

For 0 <= k <= 1 let F_k = k m + (1 - k) w, where m is the mean risk over all records and w the worst
group's (groups that are too small to be chosen keep their share in it, see ``simplex``). F_k is
what minimax with ``keep_share`` k minimises. For convex risks its minimisers for all k are the
models that no other model beats in both m and w (Geoffrion: Proper efficiency and the theory of
vector maximization, 1968), and a proved lower bound L_k on F_k is a half-plane

    k m + (1 - k) w >= L_k

outside of which no model of this kind lies. The server walks from k = 1 to k = 0, each point from
the model of the one before, whose sums serve the next objective as well. With a tolerance, the last
point to be found is the lowest mean within it (``second_order_step``): that of the k that fits.

| symbol | name                     |
|--------|--------------------------|
| k      | keep_shares              |
| m, w   | FrontierPoint.mean, worst |
| L_k    | certificate.lower        |
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedminmax.core.certificate import Certificate, check_provable, errors_at
from fedminmax.core.errors import InputError
from fedminmax.core.linear_structure import LinearStructure
from fedminmax.methods.shared.noisy_server import NoisyState
from fedminmax.methods.shared.replies import RiskSums
from fedminmax.methods.shared.second_order_server import (
    after_second_order_round,
    retargeted,
    within_limit,
)
from fedminmax.methods.shared.second_order_state import SecondOrderState

# Instead of 1, which would leave the adversary nothing to choose.
PLAIN = 1.0 - 1e-6
KEEP_SHARES = (PLAIN, 0.98, 0.93, 0.8, 0.5, 0.3, 0.15, 0.05, 0.01, 0.0)
# With a tolerance, the point within it takes the place of this one, which is close to minimax.
REPLACED, UNKNOWN = 0.01, -1.0
# Of all points but the plain model and the recommended one, which have as many as they need: so it
# is that many rounds more than one run with its baseline.
MAX_ROUNDS = 15
# A point within this share of its bound needs no second round.
CLOSE = 3e-4
# Two points differ by more than this in k.
SAME = 1e-6
MAX_INCOMPLETE = 20
# As a share of the risk: what is left to gain of it does not show in a proof.
NOTHING_LEFT = 1e-12


@dataclass(frozen=True)
class FrontierPoint:
    """One model of the frontier: its training risks, penalty included, and what is proved.

    ``certificate`` is that of F_k; ``round`` is the one after which the model was found.
    """

    keep_share: float
    round: int
    mean: float
    worst: float
    risks: tuple[float, ...]
    weights: tuple[float, ...]
    certificate: Certificate


@dataclass(frozen=True)
class FoundPoints:
    """All points of a frontier, and the place of the recommended one among them."""

    points: tuple[FrontierPoint, ...]
    recommended: int


@dataclass(frozen=True, eq=False)
class FrontierState:
    """The server at work on one point, and the points so far.

    ``target`` is the number of the point that is being sought, ``asked`` the rounds that it took,
    ``spent`` those of all points but the plain and the recommended one. Of the points so far:
    ``models`` [p, n], ``risks`` and ``all_weights`` [p, groups], and ``proofs`` [p, 4]: upper,
    lower, penalty, round. With a ``tolerance``, the recommended one is found last, and has its
    place among the others then.
    """

    server: SecondOrderState
    keep_shares: Tensor
    models: Tensor
    risks: Tensor
    all_weights: Tensor
    proofs: Tensor
    recommended: int
    tolerance: float = 0.0
    target: int = 0
    asked: int = 0
    spent: int = 0
    rounds: int = 0
    incomplete: int = 0

    @property
    def is_complete(self) -> bool:
        """Whether all points are found."""
        return self.target == len(self.keep_shares)

    @property
    def parameters(self) -> Tensor:
        """The next model to try."""
        return self.server.parameters

    @property
    def weights(self) -> Tensor:
        """The weights of the recommended point; before that, of the one that is being sought."""
        return self.all_weights[self.recommended] if self._is_known else self.server.weights

    @property
    def selected(self) -> Tensor:
        """The recommended model; before it is found, the best one for the point being sought."""
        if not self._is_known:
            return self.server.selected
        return self.models[self.recommended].unsqueeze(0)

    @property
    def certificate(self) -> Certificate | None:
        """What is proved of the selected model."""
        if not self._is_known:
            return self.server.certificate
        return self.points[self.recommended].certificate

    @property
    def remaining(self) -> float | None:
        """The certificate's gap."""
        proved = self.certificate
        return proved.gap if self._is_known and proved else self.server.remaining

    @property
    def _is_known(self) -> bool:
        return self.is_complete or (not self.tolerance and self.target > self.recommended)

    @property
    def is_within_tolerance(self) -> bool:
        """Whether the point that is sought is the last one, the lowest mean within a tolerance."""
        return self.tolerance > 0 and self.target == len(self.keep_shares) - 1

    @property
    def is_recommended(self) -> bool:
        """Whether the point that is sought is the recommended one."""
        return self.is_within_tolerance or (not self.tolerance and self.target == self.recommended)

    @property
    def left_over(self) -> int:
        """How many rounds the points after the one that is sought need at the least."""
        is_ahead = self.tolerance > 0 or self.target < self.recommended
        return len(self.keep_shares) - self.target - 1 - is_ahead

    @property
    def points(self) -> tuple[FrontierPoint, ...]:
        """The points so far, from the plain model to the minimax model."""
        fixed, ridge = self.server.fixed, self.server.structure.ridge
        worst, own = replace(fixed, keep_share=0.0), self.server.offsets
        highest_own = own.highest if own.is_known else None
        known = zip(self.keep_shares, self.risks, self.all_weights, self.proofs, strict=False)
        found = []
        for keep, risks, weights, proof in known:
            upper, lower, penalty, number = proof.tolist()
            added = own.of_mix(replace(fixed, keep_share=float(keep)))
            found.append(
                FrontierPoint(
                    float(keep),
                    int(number),
                    float(fixed.shares @ (risks - own.values)),
                    float(worst.mix(risks).max()) - own.of_mix(worst),
                    tuple((risks - own.values).tolist()),
                    tuple(weights.tolist()),
                    Certificate(
                        upper - added, lower - added, penalty, ridge, highest_own=highest_own
                    ),
                )
            )
        return tuple(found)

    @property
    def found(self) -> FoundPoints:
        """All points; rounds that were not enough for them are refused."""
        if not self.is_complete:
            raise InputError(
                f"frontier: {self.target} of {len(self.keep_shares)} models were found; give more "
                "rounds, and it goes on from there"
            )
        return FoundPoints(self.points, self.recommended)


def keep_shares_of(keep_share: float) -> list[float]:
    """Return k of every point, from plain to minimax; this one is among them."""
    return sorted({*KEEP_SHARES, min(keep_share, PLAIN)}, reverse=True)


def models_of(method: object) -> int:
    """Return how many models of a run are measured: those of a frontier, or one."""
    if not getattr(method, "frontier", False):
        return 1
    return len(keep_shares_of(float(getattr(method, "keep_share", 0.0))))


def start_frontier(
    server: object, linear: LinearStructure | None, keep_share: float, min_weight: float
) -> FrontierState:
    """Begin with the plain model; the point with this ``keep_share`` is the recommended one.

    ``linear`` is None for a network.
    """
    if min_weight:
        raise InputError(
            f"frontier: min_weight = {min_weight:g}; between the plain and the minimax model "
            "weights have no floor but keep_share: drop min_weight"
        )
    if isinstance(server, NoisyState):
        raise InputError(
            "frontier: sums with noise prove nothing about other models; drop frontier, or the "
            "privacy guarantee"
        )
    check_provable(linear, "frontier")
    if not isinstance(server, SecondOrderState):
        raise InputError(
            "frontier: needs second derivatives; set curvature = true, or take fewer columns"
        )
    tolerance = server.allowed.tolerance
    points = keep_shares_of(keep_share)
    if tolerance:
        points = [*(keep for keep in points if keep != REPLACED), UNKNOWN]
    fixed = replace(server.fixed, keep_share=points[0])
    groups = len(fixed.shares)
    rows = torch.zeros(0, groups, dtype=torch.float64)
    return FrontierState(
        replace(
            server,
            fixed=fixed,
            weights=fixed.shares,
            allowed=replace(server.allowed, tolerance=0.0),
        ),
        torch.tensor(points, dtype=torch.float64),
        server.parameters.new_zeros(0, len(server.parameters)),
        rows,
        rows,
        rows.new_zeros(0, 4),
        points.index(min(keep_share, PLAIN)),
        tolerance,
    )


def after_frontier_round(
    state: FrontierState, reported: RiskSums, optimality_gap: float
) -> FrontierState:
    """Improve the point that is being sought; if it is close enough, go on to the next ones.

    A round in which sites are missing proves nothing, and is repeated.
    """
    if not torch.equal(reported.counts, state.server.counts):
        if state.incomplete >= MAX_INCOMPLETE:
            raise InputError(
                f"in {MAX_INCOMPLETE} rounds in a row sites were missing; a frontier needs all "
                "sites: bring them back, and run it again to continue"
            )
        return replace(state, incomplete=state.incomplete + 1, rounds=state.rounds + 1)
    state = replace(
        state,
        server=after_second_order_round(state.server, reported, 0.0),
        asked=state.asked + 1,
        spent=state.spent + (state.target > 0 and not state.is_recommended),
        rounds=state.rounds + 1,
        incomplete=0,
    )
    while not state.is_complete and _is_found(state, optimality_gap):
        state = _after_point(state)
    return state


def _is_found(state: FrontierState, optimality_gap: float) -> bool:
    """Return whether the point is close enough, or other points need the rounds that are left."""
    server, gap = state.server, optimality_gap
    if state.is_within_tolerance:
        left = server.remaining
        return (left is not None and left <= gap) or state.asked >= MAX_ROUNDS
    proved = _proof(server)
    if state.asked and state.target and not state.is_recommended:
        gap = max(optimality_gap, CLOSE)
    # For squared error, what is left is that of a model which the next round measures.
    measured = state.asked > int(server.structure.is_quadratic)
    if proved.gap <= gap or (measured and server.left <= NOTHING_LEFT * proved.upper):
        return True
    if state.is_recommended:
        return state.asked >= MAX_ROUNDS
    return state.target > 0 and state.asked > 0 and state.spent + state.left_over >= MAX_ROUNDS


def _proof(server: SecondOrderState) -> Certificate:
    """Return what is proved of the best model that was measured."""
    point, ridge = server.structure.to_free(server.best), server.structure.ridge
    length, worst = float(point.norm()), float(server.risks.max())
    errors = errors_at(server.structure, server.size, length, worst)
    upper = float(server.fixed.mix(server.risks).max()) + errors.value
    return Certificate(upper, max(server.lower, 0.0), 0.5 * ridge * length**2, ridge)


def _after_point(state: FrontierState) -> FrontierState:
    """Keep the best model as the point that was sought, and turn to the next one."""
    if state.is_within_tolerance:
        return _with_recommended(state)
    server, number = state.server, state.target + 1
    proved = _proof(server)
    proof = [proved.upper, proved.lower, proved.penalty, state.rounds]
    state = replace(
        state,
        models=torch.cat([state.models, server.best.unsqueeze(0)]),
        risks=torch.cat([state.risks, server.risks.unsqueeze(0)]),
        all_weights=torch.cat([state.all_weights, server.weights.unsqueeze(0)]),
        proofs=torch.cat([state.proofs, state.proofs.new_tensor([proof])]),
        target=number,
        asked=0,
    )
    if state.is_complete:
        return state
    if state.is_within_tolerance:
        return replace(state, server=within_limit(server, state.tolerance, None, 0.0))
    return replace(state, server=retargeted(server, float(state.keep_shares[number])))


def _with_recommended(state: FrontierState) -> FrontierState:
    """Put the lowest mean within the tolerance in its place among the points."""
    server, near = state.server, state.server.allowed
    # No two points have one k; that of the plain model is the highest.
    taken = state.keep_shares[:-1].tolist()
    keep = min(max(near.keep_share, SAME), PLAIN - SAME)
    while any(abs(keep - own) < SAME for own in taken):
        keep -= SAME
    game, ridge = replace(server.fixed, keep_share=keep), server.structure.ridge
    point = server.structure.to_free(near.model)
    upper = float(game.mix(near.risks).max()) + server.error_at(point).value
    proof = [upper, server.bound_of(game, upper), 0.5 * ridge * float(point @ point), state.rounds]
    place = sum(own > keep for own in taken)

    def with_row(rows: Tensor, new: Tensor) -> Tensor:
        return torch.cat([rows[:place], new.unsqueeze(0).to(rows), rows[place:]])

    risks = with_row(state.risks, near.risks)
    allowed = torch.stack([server.fixed.mix(own).max() for own in risks]) <= near.limit
    # That of another point is lower only by what the last one leaves to be gained.
    means = torch.where(allowed, risks @ server.fixed.shares, math.inf)
    return replace(
        state,
        keep_shares=with_row(state.keep_shares[:-1], torch.tensor(keep)),
        models=with_row(state.models, near.model),
        risks=risks,
        all_weights=with_row(state.all_weights, server.weights),
        proofs=with_row(state.proofs, torch.tensor(proof, dtype=torch.float64)),
        recommended=int(means.argmin()),
        tolerance=0.0,
        target=state.target + 1,
        asked=0,
    )
