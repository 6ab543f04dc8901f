"""Sums by code over all records, from which the pairs of an additive model are chosen.

A site's reply is that of the plain mean fit without curvature, and the second derivatives of the
loss in each output, summed by code (``core.additive.sums.coded_bends``).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from fedminmax.core.additive.sums import coded_bends
from fedminmax.core.iterates import Iterate
from fedminmax.core.messages import Census, Order, Reveals, RoundKey, Sums
from fedminmax.core.workspace import Workspace
from fedminmax.methods.look_ahead import FedAvgFast
from fedminmax.methods.method import SiteData
from fedminmax.methods.shared.expected_reply import ExpectedReply, Sender
from fedminmax.methods.shared.replies import NO_WEIGHTS
from fedminmax.training.certify import ProofState

MEAN_FIT = FedAvgFast()


@dataclass(frozen=True)
class CellSums:
    """Collects slopes and second derivatives by code, for additive models only."""

    name: str = "cells"
    output: Iterate = Iterate.LAST
    learning_rate: float = 0.0
    reveals: Reveals = field(default=Reveals.SUMS, init=False)

    def init(self, parameters: Tensor, census: Census) -> ProofState:  # noqa: ARG002
        """Start at the model itself."""
        return ProofState(parameters, torch.zeros(0, dtype=torch.float64))

    def order(self, state: ProofState, key: RoundKey) -> Order:
        """Broadcast the model."""
        return Order(key, state.parameters, NO_WEIGHTS)

    def local(self, order: Order, site: SiteData, workspace: Workspace) -> Sums:
        """Return the sums over a site's rows."""
        return self.row_sums(order, site, [workspace])

    def row_sums(self, order: Order, site: SiteData, workspaces: Sequence[Workspace]) -> Sums:
        """Return the same for any set of rows."""
        linear, design = workspaces[0].linear, workspaces[0].design
        if linear is None or design is None:
            raise TypeError("only additive models have codes")
        bends = coded_bends(linear, design, order.parameters, site.examples)
        return replace(MEAN_FIT.sums_of_rows(order, site, workspaces), statistics=bends.flatten())

    def expected(self, order: Order, sender: Sender, reply: Sums) -> ExpectedReply:
        """Expect the mean fit's reply, and second derivatives that so many records can have."""
        classes = sender.limits.classes
        numbers = len(order.parameters) - max(classes, 1)
        largest = (0.25 if classes else 2.0) * sender.rows
        return replace(
            MEAN_FIT.expected(order, sender, reply),
            lower=torch.zeros(numbers, dtype=torch.float64),
            upper=torch.full((numbers,), largest, dtype=torch.float64),
        )

    def update(self, state: ProofState, total: Sums) -> ProofState:  # noqa: ARG002
        """Do not change the model."""
        return state
