"""Sums by group for a proof about a linear model that is too wide for second derivatives.

One round at the model itself: its group risks and their gradients, in float64 as a proof needs
them, give the one-round bound of ``core.certificate``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from fedminmax.core.certificate import Certificate, cuts_at, errors_at, lower_bound, row_size
from fedminmax.core.fixed_shares import FixedShares
from fedminmax.core.group_sums import linear_group_sums, linear_rows_per_chunk
from fedminmax.core.iterates import Iterate
from fedminmax.core.linear_structure import LinearStructure
from fedminmax.core.messages import Census, Moment, Order, Reveals, Sums, zero_sums
from fedminmax.core.workspace import Workspace
from fedminmax.methods.expected_reply import ExpectedReply, Sender
from fedminmax.methods.fast_server import ask_for_sums
from fedminmax.methods.fedminmax_fast import FedMinMaxFast
from fedminmax.methods.method import Holder


@dataclass(frozen=True, eq=False)
class ProofState:
    """The model that the proof is about; it stays as it is."""

    parameters: Tensor
    weights: Tensor


@dataclass(frozen=True)
class GradientsForProof:
    """Asks for loss and gradient sums by group in float64, of linear models alone."""

    name: str = "certify"
    output: Iterate = Iterate.LAST
    learning_rate: float = 0.0
    reveals: Reveals = field(default=Reveals.SUMS, init=False)

    def init(self, parameters: Tensor, census: Census) -> ProofState:  # noqa: ARG002
        """Begin at the model itself."""
        return ProofState(parameters, torch.zeros(0, dtype=torch.float64))

    def order(self, state: ProofState, moment: Moment) -> Order:
        """Broadcast the model."""
        return ask_for_sums(moment, state.parameters)

    def local(self, order: Order, holder: Holder, workspace: Workspace) -> Sums:
        """Return loss and gradient sums by group."""
        return self.row_sums(order, holder, [workspace])

    def row_sums(self, order: Order, holder: Holder, workspaces: Sequence[Workspace]) -> Sums:
        """Return the same for any rows, whoever holds them."""
        rows, groups, linear = holder.examples, holder.groups, workspaces[0].linear
        if linear is None:
            raise TypeError("a network has no such sums")
        sums = linear_group_sums(linear, order.parameters, rows, groups, curvature=False)
        return replace(
            zero_sums(0, groups, 0),
            step=sums.gradients.flatten(),
            scale=float(len(rows)),
            group_loss=sums.losses,
            group_count=torch.bincount(rows.group, minlength=groups).cpu(),
            gradient_evaluations=len(rows),
        )

    def expected(self, order: Order, sender: Sender, reply: Sums) -> ExpectedReply:
        """Expect what a server that looks ahead without curvature does."""
        return FedMinMaxFast(curvature=False).expected(order, sender, reply)

    def update(self, state: ProofState, total: Sums) -> ProofState:  # noqa: ARG002
        """Leave the model as it is."""
        return state


def one_round_bound(
    structure: LinearStructure, census: Census, parameters: Tensor, total: Sums
) -> Certificate:
    """Return what the sums over all rows prove of a model with a ridge and a convex loss."""
    point, ridge = structure.to_free(parameters.cpu()), structure.ridge
    counts = census.counts.sum(dim=0)
    fixed = FixedShares(counts.double() / counts.sum(), census.playable)
    penalty = 0.5 * ridge * float(point @ point)
    risks = fixed.mix(total.group_loss / counts + penalty)
    gradients = structure.to_free(total.step.reshape(len(counts), -1)) / counts[:, None]
    slopes = fixed.mix(gradients + ridge * point)
    worst = float(risks.max())
    size = row_size(census, structure, linear_rows_per_chunk(structure))
    errors = errors_at(structure, size, float(point.norm()), worst)
    upper = worst + errors.value
    lower = lower_bound(cuts_at(point, risks, slopes, ridge, errors, upper), ridge)
    # Losses are not below 0.
    return Certificate(upper, min(max(lower, 0.0), upper), penalty, ridge)
