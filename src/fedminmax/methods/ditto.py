"""Ditto: a common model by FedAvg, and for each site a personal model that is pulled to it.

Li, Hu, Beirami, Smith: Ditto: fair and robust federated learning through personalization,
ICML 2021. Site k minimises F_k(v) + (lambda / 2) |v - theta|^2 and keeps v_k private, so the
server sees what FedAvg's server sees, and the common model is FedAvg's for any lambda.

| symbol          | name                                     |
|-----------------|------------------------------------------|
| theta^t         | state.parameters                         |
| v_k, v_k^0      | site.kept, theta^0                     |
| lambda          | pull                                     |
| eta, eta_v      | learning_rate, personal_rate             |
| tau             | epochs times batches per epoch           |

Both models take the same batches: v <- v - eta_v (grad F_k(v) + lambda (v - theta)), with theta
as broadcast. The authors' code takes tau = 2 steps of 16 rows per round; we count in epochs, with
FedAvg's defaults. It also draws sites by their rows and takes the plain average, where ours is
FedAvg's weighted average, and may choose lambda by validation, where ours is fixed. The v_k of a
site that does not take part does not change.

Personal models predict for their own site's rows, so the risk of group a over personal
predictions is sum_k (n_{a,k} / n_a) r_{a,k}(v_k), where r_{a,k}(v_k) is the mean loss of v_k on
site k's rows of group a: again a quotient of sums over sites.
"""

from dataclasses import KW_ONLY, dataclass, replace

import torch
from torch import Tensor

from fedminmax.core.local_epochs import LocalEpochs, train_with_extra_gradient
from fedminmax.core.messages import Census, Order, RoundKey, Sums, descend
from fedminmax.core.workspace import Workspace
from fedminmax.methods.card import LOCAL, RATE, MethodCard, Over, Pace
from fedminmax.methods.fedavg import FedAvgState
from fedminmax.methods.method import SiteData
from fedminmax.methods.shared.checks import check_not_negative, check_positive
from fedminmax.methods.shared.expected_reply import ExpectedReply, Sender, expect_local_epochs
from fedminmax.methods.shared.replies import NO_WEIGHTS, LocalTraining, local_stream


@MethodCard(
    key="ditto",
    paper="Li, Hu, Beirami, Smith, ICML 2021",
    optimises="each site's risk near a common model; the common model is FedAvg's",
    over=Over.SITES,
    pace=Pace.LOCAL_EPOCHS,
    works_with_absent=True,
    sources=RATE
    | LOCAL
    | {"pull": "the authors' FashionMNIST run", "personal_rate": "ours: the learning rate"},
)
@dataclass(frozen=True)
class Ditto(LocalTraining):
    """FedAvg with personal models; ``pull=0`` trains them on the site's rows alone.

    ``personal_rate`` None means the learning rate. If its product with ``pull`` is too large,
    training diverges.
    """

    pull: float = 1.0
    _: KW_ONLY
    personal_rate: float | None = None
    name: str = "Ditto"

    def __post_init__(self) -> None:
        check_not_negative(self.name, pull=self.pull)
        if self.personal_rate is not None:
            check_positive(self.name, personal_rate=self.personal_rate)
        self.check_training(self.name)

    def init(self, parameters: Tensor, census: Census) -> FedAvgState:  # noqa: ARG002
        """Start from the initial model, as FedAvg does."""
        return FedAvgState(parameters)

    def order(self, state: FedAvgState, key: RoundKey) -> Order:
        """Broadcast the common model alone."""
        return Order(key, state.parameters, NO_WEIGHTS)

    def start_keeping(self, parameters: Tensor, groups: int) -> Tensor:  # noqa: ARG002
        """v_k^0 = theta^0."""
        return parameters

    def local_and_keep(
        self, order: Order, site: SiteData, workspace: Workspace
    ) -> tuple[Sums, Tensor]:
        """Reply as in FedAvg; keep the personal model after as many steps on the same batches."""
        reply = self.local(order, site, workspace)
        workspace.load(site.kept)
        rate = self.learning_rate if self.personal_rate is None else self.personal_rate
        centre = workspace.in_storage_order(order.parameters)
        buffer = torch.empty_like(centre)
        personal = train_with_extra_gradient(
            workspace,
            site.examples,
            LocalEpochs(self.epochs, self.batch_size, rate),
            local_stream(order, site),
            extra=lambda present: torch.sub(present, centre, out=buffer).mul_(self.pull),
        )
        both = 2 * reply.gradient_evaluations
        return replace(reply, gradient_evaluations=both), personal.clone()

    def expected(self, order: Order, sender: Sender, reply: Sums) -> ExpectedReply:
        """As in FedAvg, with twice the work."""
        common = expect_local_epochs(order, sender, reply, self.plan)
        return replace(common, evaluations=2 * common.evaluations)

    def update(self, state: FedAvgState, total: Sums) -> FedAvgState:
        """As in FedAvg."""
        return FedAvgState(descend(state.parameters, total))
