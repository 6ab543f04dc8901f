"""FedAvgFast: the plain model of all rows in few rounds, as a baseline for minimax models.

The objective is that of McMahan, Moore, Ramage, Hampson, Arcas: Communication-efficient learning of
deep networks from decentralized data, AISTATS 2017: the mean risk over all rows, with the task's
ridge. The server is FedMinMaxFast's with all rows as a single player: damped Newton steps for
linear models, an adaptive first-order step for others. So a baseline differs from FedMinMaxFast
only in its objective, and is as close to its own optimum.
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import ClassVar

import torch
from torch import Tensor

from fedminmax.core.certificate import Certificate
from fedminmax.core.iterates import Iterate
from fedminmax.core.messages import Census, Order, Reveals, RoundKey, Sums
from fedminmax.core.privacy.mechanism import Unit
from fedminmax.core.workspace import Workspace
from fedminmax.methods.card import GAP, LOOK_AHEAD, Over, Pace, register
from fedminmax.methods.method import SiteData
from fedminmax.methods.shared.expected_reply import ExpectedReply, Sender
from fedminmax.methods.shared.fast_server import (
    DEFAULT_GAP,
    FastState,
    after_round,
    ask_for_sums,
    check_fast_settings,
    expect_all_rows,
    is_within,
    start_server,
    sums_of_all_rows,
    with_curvature,
)
from fedminmax.methods.shared.replies import RiskSums


@dataclass(frozen=True, eq=False)
class FedAvgFastState:
    """The server's state; its only player needs no weights."""

    server: FastState

    @property
    def parameters(self) -> Tensor:
        """The next model to try."""
        return self.server.parameters

    @property
    def weights(self) -> Tensor:
        """Groups are not weighted."""
        return torch.zeros(0, dtype=torch.float64)

    @property
    def selected(self) -> Tensor:
        """The model with the lowest mean risk."""
        return self.server.selected

    @property
    def certificate(self) -> Certificate | None:
        """Nothing is proved about the worst group."""
        return None

    @property
    def remaining(self) -> float | None:
        """The possible relative improvement of the mean risk; None if unknown."""
        return self.server.remaining


@register(
    key="fedavg-fast",
    paper="McMahan et al. 2017's objective, with a server of second order (ours)",
    optimises="mean risk",
    over=Over.ROWS,
    pace=Pace.LOOK_AHEAD,
    sources=LOOK_AHEAD | GAP,
)
@dataclass(frozen=True)
class FedAvgFast:
    """The mean risk's minimum; there is no learning rate to choose. See ``FedMinMaxFast``."""

    curvature: bool = True
    learning_rate: float = 0.001
    _: KW_ONLY
    momentum: float = 0.9
    gap: float = field(default=DEFAULT_GAP, repr=False)
    name: str = "FedAvgFast"
    output: Iterate = Iterate.LAST
    reveals: Reveals = field(default=Reveals.SUMS, init=False)
    hides: ClassVar[tuple[Unit, ...]] = (Unit.ROW, Unit.SITE)

    def __post_init__(self) -> None:
        check_fast_settings(self, gap=self.gap)

    def init(self, parameters: Tensor, census: Census) -> FedAvgFastState:
        """Nothing is known yet: the first round collects the sums of the initial model."""
        counts = census.site_counts[:, None]
        everybody = replace(census, counts=counts, minimum_group=0, row_lengths=None)
        return FedAvgFastState(
            start_server(self, parameters, everybody, torch.ones(1, dtype=torch.float64))
        )

    def is_done(self, state: FedAvgFastState) -> bool:
        """Return whether the possible improvement is within the gap."""
        return is_within(self.gap, state.server)

    def order(self, state: FedAvgFastState, key: RoundKey) -> Order:
        """Broadcast the next candidate; sites need no weights."""
        return ask_for_sums(key, state.parameters)

    def local(self, order: Order, site: SiteData, workspace: Workspace) -> Sums:
        """Return losses by group and the gradient sum, with curvature if it is used."""
        return self.row_sums(order, site, [workspace])

    def row_sums(self, order: Order, site: SiteData, workspaces: Sequence[Workspace]) -> Sums:
        """Return the same for any set of rows."""
        linear = with_curvature(self, workspaces[0].linear, 1)
        return sums_of_all_rows(linear, order, site, workspaces)

    def expected(self, order: Order, sender: Sender, reply: Sums) -> ExpectedReply:
        """Expect sums over all rows."""
        return expect_all_rows(self, 1, order, sender, reply)

    def update(self, state: FedAvgFastState, total: Sums) -> FedAvgFastState:
        """Pass the sums to the server."""
        reported = RiskSums(
            total.group_count.sum().cpu().reshape(1),
            total.group_loss.sum().reshape(1),
            total.step.unsqueeze(0),
            total.statistics.unsqueeze(0),
            replace(total.rounding, loss=total.rounding.loss * len(total.group_loss)),
        )
        return replace(state, server=after_round(self, state.server, reported))
