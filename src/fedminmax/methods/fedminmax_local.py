"""FedMinMax with several local steps: fewer rounds, at the cost of client drift.

An extension of Algorithm 1 of Papadaki et al. 2021: a site trains for some epochs on its
weighted loss, with the weights fixed, and still returns the group losses of the model that it
received. One epoch with one full batch is Algorithm 1; more steps may have a different fixed point,
because each site drifts towards its own optimum.
"""

from dataclasses import KW_ONLY, dataclass

from torch import Tensor

from fedminmax.core.iterates import Iterate
from fedminmax.core.messages import Census, Order, RoundKey, Sums
from fedminmax.core.noise import Unit
from fedminmax.core.workspace import Workspace
from fedminmax.methods.card import ADVERSARY, FLOOR, LOCAL, RATE, MethodCard, Over, Pace, Weights
from fedminmax.methods.fedminmax import FedMinMax, FedMinMaxState
from fedminmax.methods.method import SiteData
from fedminmax.methods.shared.checks import (
    check_keep_share,
    check_not_negative,
)
from fedminmax.methods.shared.expected_reply import ExpectedReply, Sender, expect_local_epochs
from fedminmax.methods.shared.local_training import LocalTraining
from fedminmax.methods.shared.replies import sums_before_training


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
