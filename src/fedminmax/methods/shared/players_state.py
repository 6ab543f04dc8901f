"""A server's state if its players are sites or all records, and what a state says of its run."""

from dataclasses import dataclass, replace
from typing import TypeGuard

import torch
from torch import Tensor

from fedminmax.core.certificate import Certificate
from fedminmax.methods.shared.excess_server import ExcessState, OwnRisks
from fedminmax.methods.shared.first_order_server import FirstOrderState
from fedminmax.methods.shared.frontier_server import FrontierState, keep_shares_of
from fedminmax.methods.shared.network_state import NetworkState
from fedminmax.methods.shared.noisy_server import NoisyState
from fedminmax.methods.shared.second_order_state import SecondOrderState
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
    own = server.offsets
    mean, worst = mean - own.of_mean(server.fixed), worst - own.of_mix(games[-1])
    if not knows_groups:
        return ProvedBoundary(mean, None, penalty)
    if not server.proves:
        return None
    lines = []
    for game in games:
        bound = server.bound_of(game, float(game.mix(server.risks).max()))
        # Of its own game earlier rounds may have proved more.
        bound = max(bound, server.lower) if game.keep_share == server.fixed.keep_share else bound
        lines.append((game.keep_share, bound - own.of_mix(game)))
    return ProvedBoundary(mean, worst, penalty, tuple(lines))
