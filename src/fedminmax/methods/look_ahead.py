"""FedMinMaxFast, AFLFast and FedAvgFast: three objectives in few rounds, by looking ahead.

They share one server, which differs in who its players are:

- FedMinMaxFast: the groups. The objective is that of Papadaki et al. 2021 (see ``fedminmax``): min
  over theta of max_a r_a(theta), where r_a includes the task's ridge m/2 |theta|^2.
- AFLFast: the sites, as in Mohri et al. 2019 (see ``afl``). The server sees each site's own sums.
- FedAvgFast: all records as one player, as in McMahan et al. 2017 (see ``fedavg``). So a baseline
  differs from FedMinMaxFast only in its objective, and is as close to its own optimum.

Sites return sums of losses, gradients and, for additive and linear models of moderate size,
curvature. ``second_order_server`` says how the server uses them for these, ``first_order_server``
for all others, and ``noisy_server`` under a privacy guarantee.
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from enum import Enum
from functools import reduce
from operator import add
from typing import ClassVar

import torch
from torch import Tensor

from fedminmax.core.messages import Census, Order, Reveals, Sums
from fedminmax.core.noise import Unit
from fedminmax.core.workspace import Workspace
from fedminmax.methods.card import (
    FLOOR,
    GAP,
    KEEP,
    LOOK_AHEAD,
    NEAR,
    MethodCard,
    Over,
    Pace,
    Weights,
)
from fedminmax.methods.method import SiteData
from fedminmax.methods.shared.excess_server import ExcessState, after_own_round, start_excess
from fedminmax.methods.shared.expected_reply import ExpectedReply, OwnLoss, Sender
from fedminmax.methods.shared.frontier_server import start_frontier
from fedminmax.methods.shared.look_ahead import LookAhead
from fedminmax.methods.shared.replies import RiskSums, shares_within_floor
from fedminmax.methods.shared.servers import (
    LookAheadState,
    PlayersState,
    is_coded,
    server_of,
)

FRONTIER = {
    "frontier": "ours: more models, in up to 15 more rounds",
    "objective": "Papadaki et al. 2021; excess: Agarwal and Zhang 2022",
    "max_harm": "ours: no limit",
}


class Objective(Enum):
    """Whose highest value is minimised: groups' risks, or what these are above what is possible."""

    RISK = "risk"
    EXCESS = "excess"


@MethodCard(
    key="fedminmax-fast",
    paper="Papadaki et al. 2021's objective, with a prox-linear server (ours)",
    optimises="worst group's risk",
    over=Over.GROUPS,
    pace=Pace.LOOK_AHEAD,
    minimax=True,
    weights=Weights.GROUPS,
    absent_keep_weight=False,
    sources=FLOOR | LOOK_AHEAD | NEAR | GAP | FRONTIER,
    private_units=(Unit.ROW, Unit.SITE),
)
@dataclass(frozen=True)
class FedMinMaxFast(LookAhead):
    """Minimax over groups: see ``LookAhead``.

    Args:
        min_weight: the minimum weight of a group, above what it keeps.
        keep_share: every group keeps this part of its share of the records as weight; so the
            objective, and what is proved, is keep_share times the mean risk plus the rest times the
            worst one (see ``simplex.FixedShares``).
        frontier: find the models between the plain and the minimax model, too; that of this
            ``keep_share`` is returned (see ``frontier_server``).
        tolerance: the worst risk may be above the lowest possible by this share of it; of these
            models, the one with the lowest mean is sought. It needs second derivatives.
        objective: minimise the highest risk, or the highest excess over what the group's own best
            model reaches (Agarwal, Zhang: Minimax regret optimization for robust machine learning
            under distribution shift, COLT 2022; see ``excess_server``). ``tolerance`` is then a
            share of the highest excess plus the highest of these own risks.
        max_harm: no group's training risk may be above the plain model's by more than this, besides
            the tolerance (penalties included). None is no limit.
    """

    min_weight: float = 0.0
    _: KW_ONLY
    keep_share: float = 0.0
    frontier: bool = False
    tolerance: float = 0.0
    objective: Objective = Objective.RISK
    max_harm: float | None = None
    name: str = "FedMinMaxFast"
    reveals: Reveals = field(default=Reveals.SUMS, init=False)
    over: ClassVar[Over] = Over.GROUPS

    def init(self, parameters: Tensor, census: Census) -> LookAheadState:
        """Return the state before the first round."""
        weights = shares_within_floor(self.name, census, self.min_weight, self.keep_share)
        game = self.start(parameters, census, census, weights)
        if self.frontier:
            game = start_frontier(game, census.linear, self.keep_share, self.min_weight)
        is_excess = self.objective is Objective.EXCESS
        if not is_excess and self.max_harm is None:
            return game
        return start_excess(
            game, self.keep_share, self.min_weight, max_harm=self.max_harm, is_excess=is_excess
        )

    row_sums = LookAhead.sums_of_rows

    def update(self, state: LookAheadState, total: Sums) -> LookAheadState:
        """Pass the groups' sums to the server."""
        if isinstance(state, ExcessState) and state.is_fitting:
            return after_own_round(state, total)
        groups = len(total.group_count)
        reported = RiskSums(
            total.group_count.cpu(),
            total.group_loss,
            total.step.reshape(groups, -1),
            total.statistics.reshape(1 if is_coded(server_of(state)) else groups, -1),
            total.rounding,
        )
        return self.after_round(state, reported, self.min_weight)


@MethodCard(
    key="afl-fast",
    paper="Mohri et al. 2019's objective, with a prox-linear server (ours)",
    optimises="worst site's risk",
    over=Over.SITES,
    pace=Pace.LOOK_AHEAD,
    minimax=True,
    weights=Weights.SITES,
    absent_keep_weight=False,
    sources=LOOK_AHEAD | KEEP | NEAR | GAP,
)
@dataclass(frozen=True)
class AFLFast(LookAhead):
    """Minimax over sites: see ``LookAhead``; other options as in ``FedMinMaxFast``."""

    _: KW_ONLY
    keep_share: float = 0.0
    tolerance: float = 0.0
    name: str = "AFLFast"
    reveals: Reveals = field(default=Reveals.OWN_VECTOR, init=False)
    over: ClassVar[Over] = Over.SITES

    def init(self, parameters: Tensor, census: Census) -> PlayersState:
        """Return the state before the first round; sites without rows are no players."""
        sites = torch.tensor(census.occupied)
        lengths = census.row_lengths
        if lengths is not None:
            # No site's rows are longer than all rows together, which bounds its rounding errors.
            lengths = torch.full((len(sites),), float(lengths.norm()), dtype=torch.float64)
        counts = torch.diag(census.site_counts[sites])
        players = Census(counts, census.classes, linear=census.linear, row_lengths=lengths)
        server = self.start(parameters, census, players, census.site_shares[sites])
        return PlayersState(server, sites, census.sites)

    def local(self, order: Order, site: SiteData, workspace: Workspace) -> Sums:
        """Return the sums over all records, and their loss again as the site's own."""
        reply = self.sums_of_rows(order, site, [workspace])
        loss = torch.zeros(site.sites, dtype=torch.float64)
        count = torch.zeros(site.sites, dtype=torch.int64)
        loss[site.number] = reply.group_loss.sum()
        count[site.number] = len(site.examples)
        return replace(reply, site_loss=loss, site_count=count)

    def expected(self, order: Order, sender: Sender, reply: Sums) -> ExpectedReply:
        """Expect sums over all rows, and their loss again as the sender's own."""
        total = float(reply.group_loss.sum())
        expected = LookAhead.expected(self, order, sender, reply)
        return replace(expected, own_loss=OwnLoss(sender.rows, total, total))

    def update_from_each(self, state: PlayersState, replies: Sequence[Sums]) -> PlayersState:
        """Pass the sites' sums to the server; the last sums of an absent site are kept."""
        total = reduce(add, (replace(reply, step=replies[0].step[:0]) for reply in replies))
        counts = total.site_count[state.sites]
        gradients = torch.zeros(len(counts), len(replies[0].step), dtype=replies[0].step.dtype)
        curvature = torch.zeros(len(counts), len(replies[0].statistics), dtype=torch.float64)
        for reply in replies:
            player = int(torch.searchsorted(state.sites, reply.site_count.argmax()))
            gradients[player], curvature[player] = reply.step, reply.statistics
        if is_coded(state.server):
            curvature = (state.server.curvature_weights @ curvature).unsqueeze(0)
        reported = RiskSums(counts, total.site_loss[state.sites], gradients, curvature)
        return replace(state, server=self.after_round(state.server, reported))


@MethodCard(
    key="fedavg-fast",
    paper="McMahan et al. 2017's objective, with a server of second order (ours)",
    optimises="mean risk",
    over=Over.ROWS,
    pace=Pace.LOOK_AHEAD,
    sources=LOOK_AHEAD | GAP,
    private_units=(Unit.ROW, Unit.SITE),
)
@dataclass(frozen=True)
class FedAvgFast(LookAhead):
    """The mean risk's minimum: see ``LookAhead``."""

    _: KW_ONLY
    name: str = "FedAvgFast"
    reveals: Reveals = field(default=Reveals.SUMS, init=False)
    over: ClassVar[Over] = Over.ROWS

    def init(self, parameters: Tensor, census: Census) -> PlayersState:
        """Return the state before the first round."""
        counts = census.site_counts[:, None]
        players = replace(census, counts=counts, minimum_group=0, row_lengths=None)
        server = self.start(parameters, census, players, torch.ones(1, dtype=torch.float64))
        return PlayersState(server, torch.zeros(0, dtype=torch.int64), 0)

    row_sums = LookAhead.sums_of_rows

    def update(self, state: PlayersState, total: Sums) -> PlayersState:
        """Pass the sums to the server."""
        reported = RiskSums(
            total.group_count.sum().cpu().reshape(1),
            total.group_loss.sum().reshape(1),
            total.step.unsqueeze(0),
            total.statistics.unsqueeze(0),
            replace(total.rounding, loss=total.rounding.loss * len(total.group_loss)),
        )
        return replace(state, server=self.after_round(state.server, reported))
