"""FedMGDA+: a common direction along which no site gets worse, however long its update is.

Hu, Shaloudegi, Zhang, Yu: Federated learning meets multi-objective optimization, IEEE Transactions
on Network Science and Engineering, 2022. Each site trains for some epochs; the server normalises
all updates to length 1, mixes them into the shortest vector that weights near lambda_0 allow, and
steps along it. With epsilon = 1 that vector has an inner product of at least its squared length
with every site's unit update: to first order no site gets worse. With epsilon = 0 it is the
mean.

| symbol                                      | name          |
|---------------------------------------------|---------------|
| n_k (theta - theta_k)                       | Sums.step     |
| n_k                                         | Sums.scale    |
| d_k = (theta - theta_k) / |theta - theta_k| | units         |
| lambda_0: n_k / n, or the same for all      | weighting     |
| epsilon: |lambda - lambda_0|_inf <= epsilon | max_weight_shift       |
| eta_g in round 1                            | server_rate   |
| eta_g in the next round / eta_g             | server_decay  |

A site whose model did not change has no direction and is skipped; lambda_0 is then shared among
the others, so it always lies on the simplex. Unit updates do not shrink near an optimum: with a
constant eta_g the model keeps moving by about that length. The paper decreases eta_g; the factor
0.99 per round is our choice, and limits the total distance to 100 eta_g.
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field

import torch
from torch import Tensor

from fedminmax.core.messages import Census, Order, Reveals, RoundKey, Sums
from fedminmax.core.solvers.simplex import min_norm_weights
from fedminmax.methods.card import AUTHORS, LOCAL, RATE, MethodCard, Over, Pace
from fedminmax.methods.qfedavg import SiteWeighting
from fedminmax.methods.shared.checks import (
    check_not_negative,
    check_positive,
    check_share,
)
from fedminmax.methods.shared.replies import NO_WEIGHTS, LocalTraining


@dataclass(frozen=True, eq=False)
class FedMGDAState:
    """theta^t, and the factor of the next round's direction."""

    parameters: Tensor
    server_rate: float

    @property
    def weights(self) -> Tensor:
        """No adversary, no weights: lambda is recomputed in each round."""
        return NO_WEIGHTS


@MethodCard(
    key="fedmgda",
    paper="Hu, Shaloudegi, Zhang, Yu, IEEE TNSE 2022 (FedMGDA+)",
    optimises="a common descent direction for all sites",
    over=Over.SITES,
    pace=Pace.LOCAL_EPOCHS,
    works_with_absent=True,
    sources=RATE
    | LOCAL
    | {
        "max_weight_shift": AUTHORS,
        "server_rate": AUTHORS,
        "server_decay": "ours: the paper decays it and gives no rate",
        "weighting": AUTHORS,
    },
)
@dataclass(frozen=True)
class FedMGDA(LocalTraining):
    """Local epochs as in FedAvg, then a step along the shortest mixture of the unit updates.

    >>> FedMGDA(server_decay=1.5)
    Traceback (most recent call last):
    fedminmax.core.errors.InputError: FedMGDA+: server_decay = 1.5; give a number above 0, at most 1
    """

    max_weight_shift: float = 0.1
    server_rate: float = 1.0
    _: KW_ONLY
    server_decay: float = 0.99
    weighting: SiteWeighting = SiteWeighting.ROWS
    name: str = "FedMGDA+"
    reveals: Reveals = field(default=Reveals.OWN_VECTOR, init=False)

    def __post_init__(self) -> None:
        check_not_negative(self.name, max_weight_shift=self.max_weight_shift)
        check_positive(self.name, server_rate=self.server_rate)
        self.check_training(self.name)
        check_share(self.name, server_decay=self.server_decay)

    def init(self, parameters: Tensor, census: Census) -> FedMGDAState:  # noqa: ARG002
        """Start from the initial model with the full server rate."""
        return FedMGDAState(parameters, self.server_rate)

    def order(self, state: FedMGDAState, key: RoundKey) -> Order:
        """Broadcast the model alone."""
        return Order(key, state.parameters, NO_WEIGHTS)

    def update_from_each(self, state: FedMGDAState, replies: Sequence[Sums]) -> FedMGDAState:
        """Step along the shortest mixture; shorten the next step."""
        direction = self.common_direction(replies)
        return FedMGDAState(
            state.parameters - (state.server_rate * direction).to(state.parameters),
            state.server_rate * self.server_decay,
        )

    def common_direction(self, replies: Sequence[Sums]) -> Tensor:
        """Return sum_k lambda_k d_k, in float64; zero if no site's model moved."""
        updates = torch.stack([reply.step.to("cpu", torch.float64) for reply in replies])
        lengths = torch.linalg.vector_norm(updates, dim=1)
        moved = lengths > 0
        if not bool(moved.any()):
            return torch.zeros_like(updates[0])
        units = updates[moved] / lengths[moved].unsqueeze(1)
        rows = torch.tensor([reply.scale for reply in replies], dtype=torch.float64)[moved]
        shares = rows if self.weighting is SiteWeighting.ROWS else torch.ones_like(rows)
        weights = min_norm_weights(units @ units.T, shares / shares.sum(), self.max_weight_shift)
        return torch.mv(units.T, weights)
