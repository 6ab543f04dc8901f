"""FedMinMax: minimax over groups, equivalent to training on pooled rows.

Papadaki, Martinez, Bertran, Sapiro, Rodrigues: Federating for learning group fair models, 2021,
Algorithm 1. With one site it is Algorithm 2, Centralized MinMax (Lemma 2), which therefore needs
no separate implementation.

| symbol           | name                        |
|------------------|-----------------------------|
| theta^t          | state.parameters            |
| mu^t             | state.weights               |
| rho              | state.group_shares          |
| w = mu / rho     | order.weights               |
| eta_theta        | learning_rate               |
| eta_mu           | adversary_rate              |
| epsilon          | min_weight                  |

With ``keep_share`` k the adversary moves within mu >= k rho + epsilon, so the objective is k times
the mean risk plus 1 - k times the worst one (see ``simplex.FixedShares``).

Both players move simultaneously: mu is updated with the risks of theta^{t-1}, from the same pass as
the gradient.
"""

from dataclasses import KW_ONLY, dataclass, field, replace

from torch import Tensor

from fedminmax.core.iterates import Iterate
from fedminmax.core.messages import Census, Order, Reveals, RoundKey, Sums, descend
from fedminmax.core.noise import Unit
from fedminmax.core.solvers.simplex import FixedShares, ascend_on_simplex
from fedminmax.methods.card import ADVERSARY, FLOOR, SAFE_RATE, MethodCard, Over, Pace, Weights
from fedminmax.methods.method import RowWeights
from fedminmax.methods.shared.checks import check_keep_share, check_not_negative, check_rate
from fedminmax.methods.shared.replies import shares_within_floor, weigh_by_group


@dataclass(frozen=True, eq=False)
class FedMinMaxState:
    """theta^t, mu^t and the group shares rho that turn mu into importance weights.

    ``included`` are the groups that the adversary may choose (see ``shared.replies``).
    """

    parameters: Tensor
    weights: Tensor
    group_shares: Tensor
    included: Tensor


@MethodCard(
    key="fedminmax",
    paper="Papadaki, Martinez, Bertran, Sapiro, Rodrigues 2021, Algorithm 1",
    optimises="worst group's risk",
    over=Over.GROUPS,
    pace=Pace.ONE_STEP,
    minimax=True,
    weights=Weights.GROUPS,
    sources=SAFE_RATE | ADVERSARY | FLOOR,
    private_units=(Unit.ROW, Unit.SITE),
)
@dataclass(frozen=True)
class FedMinMax:
    """Algorithm 1. ``adversary_rate=0`` is plain empirical risk minimisation.

    A group keeps at least ``keep_share`` of its share of the records as weight, and ``min_weight``
    besides.

    >>> FedMinMax(learning_rate=-1)
    Traceback (most recent call last):
    fedminmax.core.errors.InputError: FedMinMax: learning_rate = -1; give a positive number
    """

    learning_rate: float | None = None
    adversary_rate: float = 0.1
    _: KW_ONLY
    min_weight: float = 0.0
    keep_share: float = 0.0
    name: str = "FedMinMax"
    output: Iterate = Iterate.TAIL_AVERAGE
    reveals: Reveals = field(default=Reveals.SUMS, init=False)

    def __post_init__(self) -> None:
        check_rate(self.name, self.learning_rate)
        check_not_negative(
            self.name, adversary_rate=self.adversary_rate, min_weight=self.min_weight
        )
        check_keep_share(self.name, self.keep_share)

    def init(self, parameters: Tensor, census: Census) -> FedMinMaxState:
        """mu^0 = rho, moved inside the floor if a group is too rare for it."""
        weights = shares_within_floor(self.name, census, self.min_weight, self.keep_share)
        return FedMinMaxState(parameters, weights, census.group_shares, census.included)

    def order(self, state: FedMinMaxState, key: RoundKey) -> Order:
        """Broadcast theta^{t-1} and w^{t-1} = mu^{t-1} / rho."""
        return Order(key, state.parameters, state.weights / state.group_shares)

    def weigh(self, order: Order, sites: Tensor, counts: Tensor) -> RowWeights:
        """Weigh by group alone."""
        return weigh_by_group(order, sites, counts)

    def update(self, state: FedMinMaxState, total: Sums) -> FedMinMaxState:
        """Descend in theta, ascend in mu, both from the same round's sums."""
        weights = ascend_on_simplex(
            state.weights,
            total.group_risks,
            (total.group_count > 0) & state.included,
            rate=self.adversary_rate,
            floor=self.min_weight,
            kept=FixedShares(state.group_shares, state.included, self.keep_share).kept,
        )
        return replace(state, parameters=descend(state.parameters, total), weights=weights)
