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

FedMinMaxLocal is an extension with fewer rounds, at the cost of client drift: a site trains for
some epochs on its weighted loss, with the weights fixed, and still returns the group losses of the
model that it received. One epoch with one full batch is Algorithm 1; more steps may have a
different fixed point, because each site drifts towards its own optimum.
"""

from dataclasses import KW_ONLY, dataclass, field, replace

from torch import Tensor

from fedminmax.core.iterates import Iterate
from fedminmax.core.messages import Census, Order, Reveals, RoundKey, Sums, descend
from fedminmax.core.noise import Unit
from fedminmax.core.solvers.simplex import FixedShares, ascend_on_simplex
from fedminmax.core.workspace import Workspace
from fedminmax.methods.card import (
    ADVERSARY,
    FLOOR,
    LOCAL,
    RATE,
    SAFE_RATE,
    MethodCard,
    Over,
    Pace,
    Weights,
)
from fedminmax.methods.method import RowWeights, SiteData
from fedminmax.methods.shared.checks import check_keep_share, check_not_negative, check_rate
from fedminmax.methods.shared.expected_reply import ExpectedReply, Sender, expect_local_epochs
from fedminmax.methods.shared.replies import (
    LocalTraining,
    shares_within_floor,
    sums_before_training,
    weigh_by_group,
)


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


@MethodCard(
    key="fedminmax-local",
    paper="Papadaki et al. 2021, Algorithm 1, with local epochs (our extension)",
    optimises="worst group's risk, up to client drift",
    over=Over.GROUPS,
    pace=Pace.LOCAL_EPOCHS,
    minimax=True,
    weights=Weights.GROUPS,
    works_with_absent=True,
    sources=RATE | ADVERSARY | FLOOR | LOCAL,
    private_units=(Unit.SITE,),
)
@dataclass(frozen=True)
class FedMinMaxLocal(LocalTraining):
    """Algorithm 1 around local epochs on the weighted loss."""

    learning_rate: float = 0.1
    adversary_rate: float = 0.1
    _: KW_ONLY
    min_weight: float = 0.0
    keep_share: float = 0.0
    name: str = "FedMinMax (local epochs)"
    output: Iterate = Iterate.TAIL_AVERAGE

    def __post_init__(self) -> None:
        check_not_negative(
            self.name, adversary_rate=self.adversary_rate, min_weight=self.min_weight
        )
        check_keep_share(self.name, self.keep_share)
        self.check_training(self.name)

    @property
    def minmax(self) -> FedMinMax:
        """Algorithm 1 with the same settings, for the server's half."""
        return FedMinMax(
            self.learning_rate,
            self.adversary_rate,
            min_weight=self.min_weight,
            keep_share=self.keep_share,
        )

    def init(self, parameters: Tensor, census: Census) -> FedMinMaxState:
        """As in Algorithm 1."""
        return self.minmax.init(parameters, census)

    def order(self, state: FedMinMaxState, key: RoundKey) -> Order:
        """As in Algorithm 1."""
        return self.minmax.order(state, key)

    def local(self, order: Order, site: SiteData, workspace: Workspace) -> Sums:
        """Train on the weighted loss and return n_k (theta - theta_k) on the scale n_k."""
        before = sums_before_training(order, site, workspace)
        row_weights = order.weights.to(order.parameters)[site.examples.group]
        trained = self.train(order, site, workspace, row_weights)
        return self.with_step(before, order, site, trained)

    def expected(self, order: Order, sender: Sender, reply: Sums) -> ExpectedReply:
        """n_k times the displacement by epochs on the weighted loss."""
        largest = float(order.weights[sender.counts > 0].max())
        return expect_local_epochs(order, sender, reply, self.plan, row_weight=largest)

    def update(self, state: FedMinMaxState, total: Sums) -> FedMinMaxState:
        """As in Algorithm 1."""
        return self.minmax.update(state, total)
