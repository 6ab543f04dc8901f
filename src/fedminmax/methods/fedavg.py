"""FedAvg: local epochs, then the average of the sites' models, weighted by their rows.

McMahan, Moore, Ramage, Hampson, Arcas: Communication-efficient learning of deep networks from
decentralized data, AISTATS 2017. The defaults are those of Papadaki et al. 2021, Appendix B.
The client fraction C is the participation of the round loop; models are averaged over the
sites that took part.

| symbol          | name                     |
|-----------------|--------------------------|
| E, B, eta       | epochs, batch_size, learning_rate |
| n_k (w - w_k)   | Sums.step                |
"""

from dataclasses import KW_ONLY, dataclass, field

from torch import Tensor

from fedminmax.core.iterates import Iterate
from fedminmax.core.local_epochs import LocalEpochs, train_locally
from fedminmax.core.messages import Census, Order, Reveals, RoundKey, Sums, descend
from fedminmax.core.noise import Unit
from fedminmax.core.workspace import Workspace
from fedminmax.methods.card import LOCAL, RATE, MethodCard, Over, Pace
from fedminmax.methods.method import SiteData
from fedminmax.methods.shared.checks import check_plan, check_positive
from fedminmax.methods.shared.expected_reply import ExpectedReply, Sender, expect_local_epochs
from fedminmax.methods.shared.replies import (
    NO_WEIGHTS,
    local_stream,
    sums_before_training,
    with_average_step,
)


@dataclass(frozen=True, eq=False)
class FedAvgState:
    """theta^t: FedAvg has no adversary."""

    parameters: Tensor

    @property
    def weights(self) -> Tensor:
        """No adversary, no weights."""
        return NO_WEIGHTS


@MethodCard(
    key="fedavg",
    paper="McMahan, Moore, Ramage, Hampson, Arcas, AISTATS 2017",
    optimises="mean risk",
    over=Over.ROWS,
    pace=Pace.LOCAL_EPOCHS,
    works_with_absent=True,
    sources=RATE | LOCAL,
    private_units=(Unit.SITE,),
)
@dataclass(frozen=True)
class FedAvg:
    """Local epochs and averaging; ``epochs=1, batch_size=None`` is gradient descent."""

    learning_rate: float = 0.1
    epochs: int = 15
    _: KW_ONLY
    batch_size: int | None = 100
    name: str = "FedAvg"
    output: Iterate = Iterate.LAST
    reveals: Reveals = field(default=Reveals.SUMS, init=False)

    def __post_init__(self) -> None:
        check_positive(self.name, learning_rate=self.learning_rate)
        check_plan(self.name, self.epochs, self.batch_size)

    def init(self, parameters: Tensor, census: Census) -> FedAvgState:  # noqa: ARG002
        """Start from the initial model."""
        return FedAvgState(parameters)

    def order(self, state: FedAvgState, key: RoundKey) -> Order:
        """Broadcast the model alone."""
        return Order(key, state.parameters, NO_WEIGHTS)

    def local(self, order: Order, site: SiteData, workspace: Workspace) -> Sums:
        """Train and return n_k (theta - theta_k) on the scale n_k."""
        before = sums_before_training(order, site, workspace)
        plan = LocalEpochs(self.epochs, self.batch_size, self.learning_rate)
        trained = train_locally(workspace, site.examples, plan, local_stream(order, site))
        rows = len(site.examples)
        return with_average_step(before, order, trained, rows, rows * self.epochs)

    def expected(self, order: Order, sender: Sender, reply: Sums) -> ExpectedReply:
        """n_k times the displacement by the plan's epochs."""
        plan = LocalEpochs(self.epochs, self.batch_size, self.learning_rate)
        return expect_local_epochs(order, sender, reply, plan, weight=float(sender.rows))

    def update(self, state: FedAvgState, total: Sums) -> FedAvgState:
        """Move to the weighted average of the trained models."""
        return FedAvgState(descend(state.parameters, total))
