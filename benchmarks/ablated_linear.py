"""The linear models' server without one of its ingredients, to show what each is worth.

Each variant is the product's own server with less information: only the sums that it gets, or the
trust region that it starts a round with, are changed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

import torch
from torch import Tensor

from fedminmax.core.iterates import Iterate
from fedminmax.core.linear_structure import LinearStructure
from fedminmax.core.messages import Census, Order, Reveals, RoundKey, Sums
from fedminmax.core.workspace import Workspace
from fedminmax.methods.look_ahead import FedMinMaxFast
from fedminmax.methods.method import SiteData
from fedminmax.methods.shared.expected_reply import ExpectedReply, Sender
from fedminmax.methods.shared.second_order_server import MIN_DAMPING
from fedminmax.methods.shared.second_order_state import FIRST_DAMPING, SecondOrderState
from fedminmax.methods.shared.servers import LookAheadState


class Missing(Enum):
    """What is removed from the server."""

    NOTHING = ""
    CORRELATIONS = ", curvature of single columns alone"
    OWN_CURVATURE = ", one curvature for all groups"
    FRESH_CURVATURE = ", curvature of round 1 throughout"
    REGION = ", without a trust region"
    ADAPTING = ", trust region of round 1 throughout"


@dataclass(frozen=True)
class AblatedLinear:
    """FedMinMaxFast for a linear model, without one ingredient."""

    missing: Missing
    learning_rate: float = 0.001
    name: str = "ablated"
    output: Iterate = Iterate.LAST
    reveals: Reveals = field(default=Reveals.SUMS, init=False)

    @property
    def _whole(self) -> FedMinMaxFast:
        return FedMinMaxFast(optimality_gap=0.0)

    def init(self, parameters: Tensor, census: Census) -> LookAheadState:
        """As the whole method."""
        return self._whole.init(parameters, census)

    def order(self, state: LookAheadState, key: RoundKey) -> Order:
        """As the whole method."""
        return self._whole.order(state, key)

    def local(self, order: Order, site: SiteData, workspace: Workspace) -> Sums:
        """As the whole method."""
        return self._whole.local(order, site, workspace)

    def row_sums(self, order: Order, site: SiteData, workspaces: Sequence[Workspace]) -> Sums:
        """As the whole method."""
        return self._whole.row_sums(order, site, workspaces)

    def expected(self, order: Order, sender: Sender, reply: Sums) -> ExpectedReply:
        """As the whole method."""
        return self._whole.expected(order, sender, reply)

    def update(self, state: LookAheadState, total: Sums) -> LookAheadState:
        """Pass the server the reduced sums and trust region."""
        assert isinstance(state, SecondOrderState)
        reported = replace(total, statistics=self._curvature(state, total).flatten())
        if self.missing is Missing.REGION:
            state = replace(state, damping=MIN_DAMPING)
        if self.missing is Missing.ADAPTING:
            state = replace(state, damping=FIRST_DAMPING)
        return self._whole.update(state, reported)

    def _curvature(self, state: SecondOrderState, total: Sums) -> Tensor:
        rows = total.group_count[:, None]
        packed = total.statistics.reshape(len(rows), -1)
        if self.missing is Missing.CORRELATIONS:
            return packed * _on_diagonal(state.structure)
        if self.missing is Missing.OWN_CURVATURE:
            return rows * (packed.sum(dim=0) / rows.sum())
        if self.missing is Missing.FRESH_CURVATURE and state.rounds > 0:
            return rows * state.curvature
        return packed


def _on_diagonal(structure: LinearStructure) -> Tensor:
    """Return 1 for each packed number of a block that is on the block's diagonal, else 0."""
    rows, columns = torch.tril_indices(structure.columns, structure.columns)
    own: Tensor = rows == columns
    return own.to(torch.float64).repeat(structure.blocks)
