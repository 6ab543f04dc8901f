"""FedMinMaxFast: minimax over groups in few rounds, by looking ahead.

The objective is that of Papadaki et al. 2021 (see ``fedminmax``): min over theta of
max_a r_a(theta), where r_a includes the task's ridge m/2 |theta|^2. Sites return loss and
gradient sums by group, and curvature sums for linear models of moderate size;
``second_order_server`` and ``first_order_server`` describe how the server uses them.
"""

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import ClassVar

import torch
from torch import Tensor

from fedminmax.core.group_sums import gradients_by_part, linear_group_sums
from fedminmax.core.iterates import Iterate
from fedminmax.core.messages import Census, Order, Reveals, RoundKey, Sums, zero_sums
from fedminmax.core.privacy.mechanism import Unit
from fedminmax.core.workspace import Workspace
from fedminmax.methods.card import FLOOR, GAP, LOOK_AHEAD, Over, Pace, Weights, register
from fedminmax.methods.method import SiteData
from fedminmax.methods.shared.expected_reply import (
    ExpectedReply,
    Sender,
    curvature_limits,
    layout_of,
)
from fedminmax.methods.shared.fast_server import (
    DEFAULT_GAP,
    FastState,
    after_round,
    ask_for_sums,
    check_fast_settings,
    is_within,
    start_server,
    with_curvature,
)
from fedminmax.methods.shared.replies import RiskSums, shares_within_floor, sum_by_group


@register(
    key="fedminmax-fast",
    paper="Papadaki et al. 2021's objective, with a prox-linear server (ours)",
    optimises="worst group's risk",
    over=Over.GROUPS,
    pace=Pace.LOOK_AHEAD,
    minimax=True,
    weights=Weights.GROUPS,
    absent_keep_weight=False,
    sources=FLOOR | LOOK_AHEAD | GAP,
)
@dataclass(frozen=True)
class FedMinMaxFast:
    """Minimax over groups; there is no learning rate to choose.

    Args:
        epsilon: the minimum weight of a group.
        curvature: use second derivatives if the model allows it.
        learning_rate: otherwise, the first step's rate; the server adapts it from then on.
        momentum: the decay of running means of gradients (first order only).
        gap: when to stop: the possible relative improvement of the worst risk, proved if possible
            (cross-entropy or squared error with a ridge). 0 runs all rounds. It does not identify a
            run: a run with a smaller gap continues where one with a larger gap stopped.
        name: the method's name in tables.
        output: not used; the result is the model with the lowest worst risk.
    """

    epsilon: float = 0.0
    curvature: bool = True
    _: KW_ONLY
    learning_rate: float = 0.001
    momentum: float = 0.9
    gap: float = field(default=DEFAULT_GAP, repr=False)
    name: str = "FedMinMaxFast"
    output: Iterate = Iterate.LAST
    reveals: Reveals = field(default=Reveals.SUMS, init=False)
    hides: ClassVar[tuple[Unit, ...]] = (Unit.ROW, Unit.SITE)

    def __post_init__(self) -> None:
        check_fast_settings(self, gap=self.gap, epsilon=self.epsilon)

    def init(self, parameters: Tensor, census: Census) -> FastState:
        """Nothing is known yet: the first round collects the sums of the initial model."""
        weights = shares_within_floor(self.name, census, self.epsilon)
        return start_server(self, parameters, census, weights)

    def is_done(self, state: FastState) -> bool:
        """Return whether the possible improvement is within the gap."""
        return is_within(self.gap, state)

    def order(self, state: FastState, key: RoundKey) -> Order:
        """Broadcast the next candidate; sites need no weights."""
        return ask_for_sums(key, state.parameters)

    def local(self, order: Order, site: SiteData, workspace: Workspace) -> Sums:
        """Return loss and gradient sums by group, with curvature if it is used."""
        return self.row_sums(order, site, [workspace])

    def row_sums(self, order: Order, site: SiteData, workspaces: Sequence[Workspace]) -> Sums:
        """Return the same for any set of rows."""
        rows, groups = site.examples, site.groups
        reply = replace(
            zero_sums(0, groups, 0),
            scale=float(len(rows)),
            group_count=torch.bincount(rows.group, minlength=groups).cpu(),
            gradient_evaluations=len(rows),
        )
        linear = with_curvature(self, workspaces[0].linear, groups)
        if linear is not None:
            sums = linear_group_sums(linear, order.parameters, rows, groups)
            step, curvature = sums.gradients.flatten(), sums.curvature.flatten()
            return replace(reply, step=step, group_loss=sums.losses, statistics=curvature)
        for workspace in workspaces:
            workspace.load(order.parameters)
        losses, gradients = gradients_by_part(
            workspaces, rows, rows.group, groups, site.rows_per_chunk
        )
        group_loss = sum_by_group(losses, site)
        return replace(reply, step=gradients.flatten().cpu(), group_loss=group_loss)

    def expected(self, order: Order, sender: Sender, reply: Sums) -> ExpectedReply:
        """Expect sums over all rows; the squared norms of the groups' gradients share one reach.

        Each row belongs to one group, so sum_a |g_a|^2 <= sum_a (sum_i s_i^2) (sum_i |x_i|^2) over
        the rows i of a, which is at most the product of the sums over all rows.
        """
        groups = len(sender.counts)
        total = reply.group_loss.sum()
        squares = sender.limits.squared_slopes(torch.tensor(sender.rows), total)
        expected = ExpectedReply(
            numbers=groups * len(order.parameters),
            scale=float(sender.rows),
            rows=sender.rows,
            evaluations=sender.rows,
            reach=math.sqrt(float(squares)),
        )
        linear = with_curvature(self, layout_of(len(order.parameters), sender), groups)
        if linear is None:
            return expected
        upper, reported = curvature_limits(linear, sender, reply)
        return replace(expected, lower=-upper, upper=upper, reported_curvature=reported)

    def update(self, state: FastState, total: Sums) -> FastState:
        """Pass the groups' sums to the server."""
        groups = len(total.group_count)
        reported = RiskSums(
            total.group_count.cpu(),
            total.group_loss,
            total.step.reshape(groups, -1),
            total.statistics.reshape(groups, -1),
            total.rounding,
        )
        return after_round(self, state, reported, self.epsilon)
