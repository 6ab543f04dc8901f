"""What the methods that look ahead share: what is sent, summed at sites, and expected of a reply.

``second_order_server`` says how the server uses these sums for additive and linear models of
moderate size, ``first_order_server`` for all others, and ``noisy_server`` under a privacy
guarantee.
"""

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedminmax.core.additive.sums import coded_group_sums
from fedminmax.core.errors import InputError
from fedminmax.core.iterates import Iterate
from fedminmax.core.linear_structure import LinearStructure
from fedminmax.core.messages import NO_STATISTICS, Census, Order, RoundKey, Sums, zero_sums
from fedminmax.core.one_step import gradients_by_part, linear_group_sums
from fedminmax.core.workspace import Workspace
from fedminmax.methods.card import Over
from fedminmax.methods.method import JudgingState, SiteData
from fedminmax.methods.shared.checks import (
    check_not_negative,
    check_positive,
    check_share,
    check_trade,
)
from fedminmax.methods.shared.excess_server import ExcessState
from fedminmax.methods.shared.expected_reply import (
    ExpectedReply,
    Sender,
    curvature_limits,
    layout_of,
)
from fedminmax.methods.shared.first_order_server import WANTS_LINEAR, NetworkState
from fedminmax.methods.shared.own_models import (
    asks_for_own_models,
    expected_own_sums,
    own_sums,
)
from fedminmax.methods.shared.replies import NO_WEIGHTS, RiskSums, sum_by_group
from fedminmax.methods.shared.second_order_state import SecondOrderState, second_order_fits
from fedminmax.methods.shared.servers import (
    LookAheadState,
    after_round,
    frontier_of,
    is_coded,
    server_of,
    start_server,
)

# When to stop: the possible relative improvement of the worst risk.
DEFAULT_GAP = 1e-4


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
        max_harm = getattr(self, "max_harm", None)
        if max_harm is not None:
            check_not_negative(self.name, max_harm=max_harm)
        check_trade(self.name, *(getattr(self, name, 0.0) for name in ("keep_share", "tolerance")))

    @property
    def by_group(self) -> bool:
        """Whether sites send a gradient sum for each group, or one over all of their records."""
        return self.over is Over.GROUPS

    def is_done(self, state: JudgingState) -> bool:
        """Return whether the possible improvement is within the gap; never for a gap of 0."""
        frontier = frontier_of(state)
        if frontier is not None:
            return frontier.is_complete
        left, server = state.remaining, server_of(state)
        if isinstance(server, SecondOrderState) and server.is_halfway:
            return False
        return left is not None and left <= self.optimality_gap and self.optimality_gap > 0

    def order(self, state: Any, key: RoundKey) -> Order:
        """Broadcast the next candidate; only the curvature of coded records needs weights."""
        server, weights = server_of(state), NO_WEIGHTS
        if isinstance(state, ExcessState) and state.is_fitting:
            return Order(key, state.parameters, state.own_models)
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
        if asks_for_own_models(order, site.groups):
            return own_sums(order, site, workspaces)
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
        if asks_for_own_models(order, groups):
            return expected_own_sums(order, sender)
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
