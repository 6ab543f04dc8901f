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

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import reduce
from operator import add
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedminmax.core.additive.sums import coded_group_sums
from fedminmax.core.errors import InputError
from fedminmax.core.iterates import Iterate
from fedminmax.core.linear_structure import LinearStructure
from fedminmax.core.messages import NO_STATISTICS, Census, Order, Reveals, RoundKey, Sums, zero_sums
from fedminmax.core.noise import Unit
from fedminmax.core.one_step import gradients_by_part, linear_group_sums
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
from fedminmax.methods.method import JudgingState, SiteData
from fedminmax.methods.shared.checks import (
    check_not_negative,
    check_positive,
    check_share,
    check_trade,
)
from fedminmax.methods.shared.expected_reply import (
    ExpectedReply,
    OwnLoss,
    Sender,
    curvature_limits,
    layout_of,
)
from fedminmax.methods.shared.frontier_server import FrontierState, start_frontier
from fedminmax.methods.shared.network_state import WANTS_LINEAR, NetworkState
from fedminmax.methods.shared.players_state import LookAheadState, PlayersState, is_coded, server_of
from fedminmax.methods.shared.replies import NO_WEIGHTS, RiskSums, shares_within_floor, sum_by_group
from fedminmax.methods.shared.second_order_state import SecondOrderState, second_order_fits
from fedminmax.methods.shared.start_server import after_round, start_server

# When to stop: the possible relative improvement of the worst risk.
DEFAULT_GAP = 1e-4
FRONTIER = {"frontier": "ours: more models, in up to 15 more rounds"}


@dataclass(frozen=True)
class LookAhead:
    """What the three methods share; there is no learning rate to choose.

    Args:
        curvature: use second derivatives if the model allows it.
        learning_rate: otherwise, the first step's rate; the server adapts it from then on.
        momentum: the decay of running means of gradients (first order only).
        linear_start: the first rounds of a network fit a linear model, and it starts from there.
        optimality_gap: when to stop: the possible relative improvement of the worst risk, proved if
            possible (cross-entropy or squared error with a ridge). 0 runs all rounds. It does not
            identify a run: one with a smaller gap continues where one with a larger gap stopped.
        name: the method's name in tables.
        output: not used; the result is the model with the lowest worst risk.
    """

    _: KW_ONLY
    curvature: bool = True
    learning_rate: float = 0.001
    momentum: float = 0.9
    linear_start: bool = False
    optimality_gap: float = field(default=DEFAULT_GAP, repr=False)
    name: str = "LookAhead"
    output: Iterate = Iterate.LAST
    over: ClassVar[Over]

    def __post_init__(self) -> None:
        check_not_negative(self.name, optimality_gap=self.optimality_gap)
        check_positive(self.name, learning_rate=self.learning_rate)
        check_share(self.name, **{"1 - momentum": 1.0 - self.momentum})
        check_trade(self.name, *(getattr(self, name, 0.0) for name in ("keep_share", "tolerance")))

    @property
    def by_group(self) -> bool:
        """Whether sites send a gradient sum for each group, or one over all of their records."""
        return self.over is Over.GROUPS

    def is_done(self, state: JudgingState) -> bool:
        """Return whether the possible improvement is within the gap; never for a gap of 0."""
        if isinstance(state, FrontierState):
            return state.is_complete
        left, server = state.remaining, server_of(state)
        if isinstance(server, SecondOrderState) and server.is_halfway:
            return False
        return left is not None and left <= self.optimality_gap and self.optimality_gap > 0

    def order(self, state: Any, key: RoundKey) -> Order:
        """Broadcast the next candidate; only the curvature of coded records needs weights."""
        server, weights = server_of(state), NO_WEIGHTS
        if isinstance(server, NetworkState) and server.is_linear:
            weights = WANTS_LINEAR
        if is_coded(server) and server.wants_curvature:
            # The server itself weights the curvature of other players than groups.
            weights = server.curvature_weights if self.by_group else torch.ones(1).double()
        return Order(key, state.parameters, weights)

    def local(self, order: Order, site: SiteData, workspace: Workspace) -> Sums:
        """Return loss and gradient sums, with curvature if it is used."""
        return self.sums_of_rows(order, site, [workspace])

    def sums_of_rows(self, order: Order, site: SiteData, workspaces: Sequence[Workspace]) -> Sums:
        """Return the same for any set of rows."""
        rows, groups, curvature = site.examples, site.groups, NO_STATISTICS
        linear = self.with_curvature(workspaces[0].linear, groups=groups, sites=site.sites)
        start, parameters = workspaces[0].linear_start, order.parameters
        if self.linear_start and start is not None and len(order.weights):
            linear, parameters = start.structure, start.linear_of(order.parameters)
        if linear is not None:
            design = workspaces[0].design
            if design is None:
                sums = linear_group_sums(linear, parameters, rows, groups)
            else:
                weights = order.weights.expand(groups) if len(order.weights) else None
                sums = coded_group_sums(
                    linear, design, order.parameters, rows, groups, group_weights=weights
                )
            group_loss, gradients, curvature = sums.losses, sums.gradients, sums.curvature
            if not self.by_group:
                gradients, curvature = gradients.sum(dim=0), curvature.sum(dim=0)
        else:
            for workspace in workspaces:
                workspace.load(order.parameters)
            part = rows.group if self.by_group else torch.zeros_like(rows.group)
            losses, gradients = gradients_by_part(
                workspaces, rows, part, groups if self.by_group else 1, site.rows_per_chunk
            )
            group_loss = sum_by_group(losses, site)
        return replace(
            zero_sums(0, groups, 0),
            step=gradients.flatten().cpu(),
            scale=float(len(rows)),
            group_loss=group_loss,
            group_count=torch.bincount(rows.group, minlength=groups).cpu(),
            statistics=curvature.flatten(),
            gradient_evaluations=len(rows),
        )

    def expected(self, order: Order, sender: Sender, reply: Sums) -> ExpectedReply:
        """Expect sums over all rows; the squared norms of the groups' gradients share one reach.

        Each row belongs to one group, so sum_a |g_a|^2 <= sum_a (sum_i s_i^2) (sum_i |x_i|^2) over
        the rows i of a, which is at most the product of the sums over all rows.
        """
        parameters, groups = len(order.parameters), len(sender.counts)
        start = sender.limits.linear_start if self.linear_start and len(order.weights) else None
        if start is not None:
            parameters = start.outputs * start.columns
        squares = sender.limits.squared_slopes(torch.tensor(sender.rows), reply.group_loss.sum())
        expected = ExpectedReply(
            numbers=parameters * (groups if self.by_group else 1),
            scale=float(sender.rows),
            rows=sender.rows,
            evaluations=sender.rows,
            reach=math.sqrt(float(squares)),
            adds_up=True,
        )
        layout = start or layout_of(parameters, sender)
        linear = self.with_curvature(layout, groups=groups, sites=sender.sites)
        if linear is None or (linear.coded and not len(order.weights)):
            return expected
        if not self.by_group or linear.coded:
            sender = replace(sender, counts=sender.counts.sum(dim=0, keepdim=True))
        upper, reported = curvature_limits(linear, sender, reply)
        return replace(expected, lower=-upper, upper=upper, reported_curvature=reported)

    def with_curvature(
        self, structure: LinearStructure | None, *, groups: int, sites: int
    ) -> LinearStructure | None:
        """Return a linear model's layout if its second derivatives are used.

        Both sides ask, so sites without rows count as players: others cannot know of them.
        """
        players = {Over.GROUPS: groups, Over.SITES: sites}.get(self.over, 1)
        return structure if self.curvature and second_order_fits(structure, players) else None

    def start(
        self, parameters: Tensor, census: Census, players: Census, weights: Tensor
    ) -> LookAheadState:
        """Nothing is known yet: the first round collects the sums of the initial model.

        ``players`` is the census with the server's players for groups.
        """
        linear = self.with_curvature(census.linear, groups=census.groups, sites=census.sites)
        if census.noise is not None and linear is not None:
            raise InputError(
                f"{self.name}: curvature sums cannot keep a privacy guarantee; give curvature=False"
            )
        shape = census.linear_start if self.linear_start and census.noise is None else None
        of_start = None if shape is None else shape.structure
        if self.with_curvature(of_start, groups=census.groups, sites=census.sites) is None:
            shape = None
        return start_server(
            parameters,
            census,
            players,
            weights,
            linear=linear,
            linear_start=shape,
            keep_share=getattr(self, "keep_share", 0.0),
            tolerance=getattr(self, "tolerance", 0.0),
            rate=self.learning_rate,
        )

    def after_round(
        self, state: LookAheadState, reported: RiskSums, min_weight: float = 0.0
    ) -> LookAheadState:
        """Return the state after a round's sums; ``min_weight`` is that of a player."""
        return after_round(state, reported, min_weight, self.momentum, self.optimality_gap)


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
    """

    min_weight: float = 0.0
    _: KW_ONLY
    keep_share: float = 0.0
    frontier: bool = False
    tolerance: float = 0.0
    name: str = "FedMinMaxFast"
    reveals: Reveals = field(default=Reveals.SUMS, init=False)
    over: ClassVar[Over] = Over.GROUPS

    def init(self, parameters: Tensor, census: Census) -> LookAheadState:
        """Return the state before the first round."""
        weights = shares_within_floor(self.name, census, self.min_weight, self.keep_share)
        server = self.start(parameters, census, census, weights)
        if not self.frontier:
            return server
        return start_frontier(server, census.linear, self.keep_share, self.min_weight)

    row_sums = LookAhead.sums_of_rows

    def update(self, state: LookAheadState, total: Sums) -> LookAheadState:
        """Pass the groups' sums to the server."""
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
