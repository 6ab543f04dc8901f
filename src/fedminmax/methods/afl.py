"""Agnostic federated learning (AFL): minimax over sites, regardless of groups.

Mohri, Sivek, Suresh: Agnostic federated learning, ICML 2019, in the non-stochastic form that
Papadaki et al. 2021 compare with: full-batch gradients, both players at once, averaged iterates.

| symbol      | name                       |
|-------------|----------------------------|
| lambda^t    | state.weights, order.weights |
| eta_lambda  | adversary_rate             |

With c sites per group, one ascent step moves a group's weight c times as far as FedMinMax's;
``scale_adversary_rate`` divides the rate by sites / groups, for the same fixed point at
FedMinMax's speed.
"""

from dataclasses import KW_ONLY, dataclass, field
from enum import Enum

import torch
from torch import Tensor

from fedminmax.core.iterates import Iterate
from fedminmax.core.messages import Census, Order, Reveals, RoundKey, Sums, descend
from fedminmax.core.solvers.simplex import ascend_on_simplex
from fedminmax.methods.card import ADVERSARY, SAFE_RATE, START, MethodCard, Over, Pace, Weights
from fedminmax.methods.method import RowWeights
from fedminmax.methods.shared.checks import check_not_negative, check_rate


class AFLStart(Enum):
    """lambda^0: in proportion to the sites' rows, or the same for all."""

    ROWS = "rows"
    UNIFORM = "uniform"


@dataclass(frozen=True, eq=False)
class AFLState:
    """theta^t, lambda^t, the running sum of lambda, and the rate after scaling."""

    parameters: Tensor
    weights: Tensor
    weight_sum: Tensor
    rounds: int
    rate: float

    @property
    def average_weights(self) -> Tensor:
        """The averaged lambda that the paper returns along with the averaged model."""
        return self.weight_sum / max(1, self.rounds)


@MethodCard(
    key="afl",
    paper="Mohri, Sivek, Suresh, ICML 2019",
    optimises="worst site's risk",
    over=Over.SITES,
    pace=Pace.ONE_STEP,
    minimax=True,
    weights=Weights.SITES,
    sources=SAFE_RATE | ADVERSARY | START | {"scale_adversary_rate": "ours: off, as in the paper"},
)
@dataclass(frozen=True)
class AFL:
    """Minimax over sites. ``adversary_rate=0`` with start ROWS is plain risk minimisation."""

    learning_rate: float | None = None
    adversary_rate: float = 0.1
    _: KW_ONLY
    start: AFLStart = AFLStart.ROWS
    scale_adversary_rate: bool = False
    name: str = "AFL"
    output: Iterate = Iterate.TAIL_AVERAGE
    reveals: Reveals = field(default=Reveals.OWN_LOSS, init=False)

    def __post_init__(self) -> None:
        check_rate(self.name, self.learning_rate)
        check_not_negative(self.name, adversary_rate=self.adversary_rate)

    def init(self, parameters: Tensor, census: Census) -> AFLState:
        """lambda^0 over the sites with rows; an empty site never gets weight."""
        weights = census.site_shares
        occupied = census.site_counts > 0
        if self.start is AFLStart.UNIFORM:
            weights = occupied.to(torch.float64) / occupied.sum()
        rate = self.adversary_rate
        if self.scale_adversary_rate:
            rate *= census.groups / int(occupied.sum())
        return AFLState(parameters, weights, torch.zeros_like(weights), 0, rate)

    def order(self, state: AFLState, key: RoundKey) -> Order:
        """Broadcast theta^{t-1} and lambda^{t-1}; a site uses only its own entry."""
        return Order(key, state.parameters, state.weights)

    def weigh(self, order: Order, sites: Tensor, counts: Tensor) -> RowWeights:
        """lambda_k (theta - theta_k) = eta (lambda_k / n_k) sum_i grad loss_i."""
        own = order.weights[sites]
        per_row = own / counts.sum(dim=1)
        return RowWeights(per_row.unsqueeze(1).expand_as(counts), own)

    def update(self, state: AFLState, total: Sums) -> AFLState:
        """Descend in theta, ascend in lambda; a site that did not answer keeps its weight."""
        weights = ascend_on_simplex(
            state.weights, total.site_risks, total.site_count > 0, rate=state.rate
        )
        return AFLState(
            descend(state.parameters, total),
            weights,
            state.weight_sum + weights,
            state.rounds + 1,
            state.rate,
        )
