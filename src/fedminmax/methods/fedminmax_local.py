"""FedMinMax with several local steps: fewer rounds, at the cost of client drift.

An extension of Algorithm 1 of Papadaki et al. 2021: a site trains for some epochs on its
weighted loss, with the weights fixed, and still returns the group losses of the model that it
received. One epoch with one full batch is Algorithm 1; more steps may have a different fixed point,
because each site drifts towards its own optimum.
"""

from dataclasses import KW_ONLY, dataclass, field

from torch import Tensor

from fedminmax.core.iterates import Iterate
from fedminmax.core.local_epochs import LocalEpochs, train_locally
from fedminmax.core.messages import Census, Order, Reveals, RoundKey, Sums
from fedminmax.core.noise import Unit
from fedminmax.core.workspace import Workspace
from fedminmax.methods.card import ADVERSARY, FLOOR, LOCAL, RATE, MethodCard, Over, Pace, Weights
from fedminmax.methods.fedminmax import FedMinMax, FedMinMaxState
from fedminmax.methods.method import SiteData
from fedminmax.methods.shared.checks import (
    check_keep_share,
    check_not_negative,
    check_plan,
    check_positive,
)
from fedminmax.methods.shared.expected_reply import ExpectedReply, Sender, expect_local_epochs
from fedminmax.methods.shared.replies import local_stream, sums_before_training, with_average_step


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
class FedMinMaxLocal:
    """Algorithm 1 around local epochs on the weighted loss."""

    learning_rate: float = 0.1
    adversary_rate: float = 0.1
    _: KW_ONLY
    min_weight: float = 0.0
    keep_share: float = 0.0
    epochs: int = 15
    batch_size: int | None = 100
    name: str = "FedMinMax (local epochs)"
    output: Iterate = Iterate.TAIL_AVERAGE
    reveals: Reveals = field(default=Reveals.SUMS, init=False)

    def __post_init__(self) -> None:
        check_positive(self.name, learning_rate=self.learning_rate)
        check_not_negative(
            self.name, adversary_rate=self.adversary_rate, min_weight=self.min_weight
        )
        check_keep_share(self.name, self.keep_share)
        check_plan(self.name, self.epochs, self.batch_size)

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
        trained = train_locally(
            workspace,
            site.examples,
            LocalEpochs(self.epochs, self.batch_size, self.learning_rate),
            local_stream(order, site),
            row_weights=order.weights.to(order.parameters)[site.examples.group],
        )
        rows = len(site.examples)
        return with_average_step(before, order, trained, rows, rows * self.epochs)

    def expected(self, order: Order, sender: Sender, reply: Sums) -> ExpectedReply:
        """n_k times the displacement by epochs on the weighted loss."""
        return expect_local_epochs(
            order,
            sender,
            reply,
            LocalEpochs(self.epochs, self.batch_size, self.learning_rate),
            weight=float(sender.rows),
            row_weight=float(order.weights[sender.counts > 0].max()),
        )

    def update(self, state: FedMinMaxState, total: Sums) -> FedMinMaxState:
        """As in Algorithm 1."""
        return self.minmax.update(state, total)
