"""FedMinMaxFast: the minimax over groups in a handful of rounds, by looking ahead.

The objective is that of Papadaki et al. 2021 (see ``fedminmax``): min over theta of
max_a r_a(theta), where r_a has the task's ridge m/2 |theta|^2. Holders return loss, gradient and
curvature sums by group; what the server makes of them is in ``second_order_server``.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from fedminmax.core.certificate import row_size
from fedminmax.core.errors import InputError
from fedminmax.core.group_sums import linear_group_sums, rows_per_chunk
from fedminmax.core.iterates import Iterate
from fedminmax.core.messages import Census, Moment, Order, Reveals, Sums, zero_sums
from fedminmax.core.workspace import Workspace
from fedminmax.methods.checks import check_floor, check_not_negative
from fedminmax.methods.expected_reply import ExpectedReply, Sender, limits_of_curvature
from fedminmax.methods.method import Holder
from fedminmax.methods.risk_sums import RiskSums
from fedminmax.methods.second_order_server import (
    MAX_CURVATURE,
    SecondOrderState,
    after_second_order_round,
    second_order_fits,
    start_second_order,
)

FedMinMaxFastState = SecondOrderState
DEFAULT_GAP = 1e-4


@dataclass(frozen=True)
class FedMinMaxFast:
    """Second-order minimax for linear models; there is no learning rate to choose.

    ``gap`` is when to stop: the share of the worst risk that is left to gain, proved where that can
    be done (cross-entropy or squared error with a ridge). 0 goes on up to the last round. It is not
    part of what a run is about: one with a smaller gap goes on where one with a larger gap stopped.
    """

    epsilon: float = 0.0
    gap: float = field(default=DEFAULT_GAP, repr=False)
    name: str = "FedMinMaxFast"
    output: Iterate = Iterate.LAST
    reveals: Reveals = field(default=Reveals.SUMS, init=False)
    learning_rate: float = field(default=1.0, init=False)

    def __post_init__(self) -> None:
        check_not_negative(self.name, epsilon=self.epsilon, gap=self.gap)

    def init(self, parameters: Tensor, census: Census) -> FedMinMaxFastState:
        """Nothing is known yet: the first round asks for the sums of the model as it is."""
        check_floor(self.name, self.epsilon, census.groups, "groups")
        structure = census.linear
        if structure is None:
            raise InputError(
                f"{self.name} needs one linear layer and the Brier, cross-entropy or squared-error "
                "loss; use FedMinMax for other models"
            )
        if not second_order_fits(structure, census.groups):
            raise InputError(
                f"{self.name}: {census.groups} groups x {structure.free_numbers:,}^2 second "
                f"derivatives are more than {MAX_CURVATURE:,}; use fewer features or FedMinMax"
            )
        size = row_size(census, structure, rows_per_chunk(structure))
        return start_second_order(parameters, structure, census.counts.sum(dim=0), size)

    def is_done(self, state: FedMinMaxFastState) -> bool:
        """Tell whether what is left is within the gap."""
        left = state.remaining
        return self.gap > 0 and left is not None and left <= self.gap

    def order(self, state: FedMinMaxFastState, moment: Moment) -> Order:
        """Broadcast the next try; holders need no weights."""
        return Order(moment, state.parameters, torch.zeros(0, dtype=torch.float64))

    def local(self, order: Order, holder: Holder, workspace: Workspace) -> Sums:
        """Return loss, gradient and curvature sums by group at the broadcast model."""
        return self.row_sums(order, holder, [workspace])

    def row_sums(self, order: Order, holder: Holder, workspaces: Sequence[Workspace]) -> Sums:
        """Return the same for any rows, whoever holds them."""
        structure = workspaces[0].linear
        if structure is None:
            raise InputError(f"{self.name}: the holder's model is not linear")
        rows = holder.examples
        sums = linear_group_sums(structure, order.parameters, rows, holder.groups)
        return replace(
            zero_sums(0, holder.groups, 0),
            step=sums.gradients.flatten(),
            scale=float(len(rows)),
            group_loss=sums.losses,
            group_count=torch.bincount(rows.group, minlength=holder.groups).cpu(),
            statistics=sums.curvature.flatten(),
            gradient_evaluations=len(rows),
        )

    def expected(self, order: Order, sender: Sender, reply: Sums) -> ExpectedReply:
        """Expect sums over all rows; the squares of the groups' gradients add up to the reach's.

        No row is of two groups, so sum_a |g_a|^2 <= sum_a (sum_i s_i^2) (sum_i |x_i|^2) over the
        rows i of a, which is at most the product of the sums over all rows.
        """
        groups = len(sender.counts)
        total = reply.group_loss.sum()
        squares = sender.limits.squared_slopes(torch.tensor(sender.rows), total)
        most, told_curvature = limits_of_curvature(len(order.parameters), sender, reply)
        return ExpectedReply(
            numbers=groups * len(order.parameters),
            scale=float(sender.rows),
            rows=sender.rows,
            evaluations=sender.rows,
            reach=math.sqrt(float(squares)),
            least=-most,
            most=most,
            told_curvature=told_curvature,
        )

    def update(self, state: FedMinMaxFastState, total: Sums) -> FedMinMaxFastState:
        """Hand the groups' sums to the server."""
        groups = len(total.group_count)
        told = RiskSums(
            total.group_count.cpu(),
            total.group_loss,
            total.step.double().reshape(groups, -1),
            total.statistics.reshape(groups, -1),
        )
        return after_second_order_round(state, told, self.epsilon)
