"""The servers that look ahead: which one it is, before and after a round, and what its state says.

Their players are the groups, or as ``PlayersState`` sites or all records.
"""

from dataclasses import dataclass, replace
from typing import TypeGuard

import torch
from torch import Tensor

from fedminmax.core.certificate import Certificate, row_size
from fedminmax.core.errors import InputError
from fedminmax.core.linear_structure import LinearStart, LinearStructure
from fedminmax.core.messages import Census
from fedminmax.core.one_step import linear_rows_per_chunk
from fedminmax.methods.card import KEEP_SHARE_FOR_NETWORKS
from fedminmax.methods.shared.excess_server import ExcessState, OwnRisks, after_excess_round
from fedminmax.methods.shared.first_order_server import (
    FirstOrderState,
    NetworkState,
    after_first_order_round,
    after_network_round,
    start_first_order,
)
from fedminmax.methods.shared.frontier_server import (
    FrontierState,
    after_frontier_round,
    keep_shares_of,
)
from fedminmax.methods.shared.noisy_server import NoisyState, after_noisy_round, start_noisy
from fedminmax.methods.shared.replies import RiskSums
from fedminmax.methods.shared.second_order_server import after_second_order_round
from fedminmax.methods.shared.second_order_state import SecondOrderState, start_second_order
from fedminmax.methods.shared.second_order_step import quadratics

LookAheadState = (
    SecondOrderState | FirstOrderState | NoisyState | NetworkState | FrontierState | ExcessState
)


@dataclass(frozen=True)
class ProvedBoundary:
    """Where a run's model is, penalty included, and what its sums prove of all other models.

    ``lines`` are (k, L_k). If the server knows no groups, ``worst`` is None, without lines.
    """

    mean: float
    worst: float | None
    penalty: float
    lines: tuple[tuple[float, float], ...] = ()

    def in_units(self, unit: float) -> "ProvedBoundary":
        """Return the same for losses multiplied by ``unit``."""
        return ProvedBoundary(
            self.mean * unit,
            None if self.worst is None else self.worst * unit,
            self.penalty * unit,
            tuple((keep, lower * unit) for keep, lower in self.lines),
        )


@dataclass(frozen=True, eq=False)
class PlayersState:
    """The server's state if its players are not the groups.

    ``sites`` are the players' numbers among ``entries`` sites; if all records are one player, there
    are none, no weights, and nothing is proved about the worst group.
    """

    server: LookAheadState
    sites: Tensor
    entries: int

    @property
    def is_preparing(self) -> bool:
        """Whether the server still prepares its start."""
        return isinstance(self.server, NetworkState) and self.server.is_preparing

    @property
    def parameters(self) -> Tensor:
        """The next model to try."""
        return self.server.parameters

    @property
    def weights(self) -> Tensor:
        """Lambda by site, 0 for a site without rows; empty if all records are one player."""
        weights = torch.zeros(self.entries, dtype=torch.float64)
        return weights.index_copy(0, self.sites, self.server.weights[: len(self.sites)])

    @property
    def selected(self) -> Tensor:
        """The model with the lowest risk."""
        return self.server.selected

    @property
    def certificate(self) -> Certificate | None:
        """What is proved of the worst site; None if nothing is."""
        proved = self.server.certificate
        return None if proved is None or not self.entries else replace(proved, players="site")

    @property
    def remaining(self) -> float | None:
        """The possible relative improvement of the risk that is minimised; None if unknown."""
        return self.server.remaining


def server_of(state: object) -> object:
    """Return the state of the server within a method's state."""
    return state.server if isinstance(state, PlayersState | FrontierState | ExcessState) else state


def own_risks_of(state: object) -> OwnRisks | None:
    """Return what the groups' own best models reach, once that is known."""
    if isinstance(state, ExcessState) and state.is_excess and not state.is_preparing:
        return OwnRisks(tuple(state.plain_risks.tolist()), tuple(state.own_risks.tolist()))
    return None


def frontier_of(state: object) -> FrontierState | None:
    """Return the frontier that a method's state is about; None if it is about one model."""
    game = state.game if isinstance(state, ExcessState) else state
    return game if isinstance(game, FrontierState) else None


def is_coded(server: object) -> TypeGuard[SecondOrderState]:
    """Return whether the server uses one curvature, of coded records."""
    return isinstance(server, SecondOrderState) and server.structure.coded


def boundary_of(state: object) -> ProvedBoundary | None:
    """Return what a run's last rounds prove of mean and worst group (see ``frontier_server``)."""
    groups = not isinstance(state, PlayersState)
    if frontier_of(state) is not None or (isinstance(state, PlayersState) and state.entries):
        return None
    return _proved_boundary(server_of(state), knows_groups=groups)


def _proved_boundary(server: object, *, knows_groups: bool) -> ProvedBoundary | None:
    """Return what the last rounds of any run prove, for every k; None if they prove nothing."""
    if not isinstance(server, SecondOrderState) or not server.is_exact:
        return None
    ridge, point = server.structure.ridge, server.structure.to_free(server.selected[0])
    step = point - server.structure.to_free(server.best)
    risks = quadratics(server).moved(step).values if server.structure.is_quadratic else server.risks
    near, penalty = server.allowed, 0.5 * ridge * float(point @ point)
    keep_share = near.keep_share if near.is_sought else server.fixed.keep_share
    games = [replace(server.fixed, keep_share=keep) for keep in keep_shares_of(keep_share)]
    mean, worst = float(server.fixed.shares @ risks), float(games[-1].mix(risks).max())
    if near.is_sought:
        mean, worst = near.mean, near.worst
    offsets = server.offsets
    mean, worst = mean - offsets.of_mean(server.fixed), worst - offsets.of_mix(games[-1])
    if not knows_groups:
        return ProvedBoundary(mean, None, penalty)
    if not server.proves:
        return None
    lines = []
    for game in games:
        bound = server.bound_of(game, float(game.mix(server.risks).max()))
        # Of its own game earlier rounds may have proved more.
        bound = max(bound, server.lower) if game.keep_share == server.fixed.keep_share else bound
        lines.append((game.keep_share, bound - offsets.of_mix(game)))
    return ProvedBoundary(mean, worst, penalty, tuple(lines))


def start_server(
    parameters: Tensor,
    census: Census,
    players: Census,
    weights: Tensor,
    *,
    linear: LinearStructure | None,
    linear_start: LinearStart | None,
    keep_share: float,
    tolerance: float,
    rate: float,
) -> LookAheadState:
    """Nothing is known yet: the first round collects the sums of the initial model.

    Args:
        parameters: the initial model.
        census: the rows by site and group.
        players: the same with the server's players for groups.
        weights: the players' initial weights.
        linear: the layout of a linear model whose second derivatives are used; None otherwise.
        linear_start: the linear model that a network starts from; None if it does not.
        keep_share: the part of its share that every player keeps as weight.
        tolerance: by how much of its minimum the worst risk may be above it; it needs ``linear``,
            and without it every player keeps as much as in a network.
        rate: the rate of a network's first step.
    """
    if tolerance and census.linear is None:
        raise InputError(
            f"tolerance = {tolerance:g} is for additive and linear models, whose lowest worst risk "
            "can be found; give keep_share instead, such as 0.5, and tolerance = 0"
        )
    counts, included = players.counts.sum(dim=0), players.included
    if tolerance and linear is None:
        # Without second derivatives there is no second phase: the same trade as a network's.
        keep_share = KEEP_SHARE_FOR_NETWORKS
    if census.noise is not None:
        return start_noisy(parameters, players, census.noise, weights, keep_share)

    def second_order(
        theta: Tensor, structure: LinearStructure, measured: Census
    ) -> SecondOrderState:
        return start_second_order(
            theta,
            structure,
            weights=weights,
            counts=counts,
            included=included,
            keep_share=keep_share,
            tolerance=tolerance if structure is linear else 0.0,
            size=row_size(measured, structure, linear_rows_per_chunk(structure)),
        )

    if linear is not None:
        return second_order(parameters, linear, players)
    network = start_first_order(
        parameters,
        ridge=0.0 if census.linear is None else census.linear.ridge,
        weights=weights,
        counts=counts,
        included=included,
        keep_share=keep_share,
        rate=rate,
    )
    if linear_start is None:
        return network
    # Nothing is proved of the start, whether or not the lengths of rows are known.
    measured, structure = replace(players, row_lengths=None), linear_start.structure
    zeros = torch.zeros(structure.outputs * structure.columns, dtype=parameters.dtype)
    return NetworkState(
        second_order(zeros, structure, measured), network, linear_start, is_linear=True
    )


def after_round(
    state: LookAheadState,
    reported: RiskSums,
    min_weight: float,
    momentum: float,
    optimality_gap: float,
) -> LookAheadState:
    """Return the state after a round's sums; ``min_weight`` is that of a player."""
    if isinstance(state, SecondOrderState):
        return after_second_order_round(state, reported, min_weight)
    if isinstance(state, FrontierState):
        return after_frontier_round(state, reported, optimality_gap)
    if isinstance(state, ExcessState):
        return after_excess_round(state, reported, optimality_gap)
    if isinstance(state, NoisyState):
        return after_noisy_round(state, reported, min_weight)
    if isinstance(state, NetworkState):
        return after_network_round(state, reported, min_weight, momentum)
    return after_first_order_round(state, reported, min_weight, momentum)
