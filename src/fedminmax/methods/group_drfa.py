"""Group DRFA (G-DRFA): DRFA's local steps and snapshot, minimax over groups.

Zhang, Kuang, Liu, Chen, Wu, Wu, Lu, Shao, Xiao: Unified group fairness on federated learning,
arXiv 2111.04986, 2021, first version; the rounds are those of Deng, Kamani, Mahdavi:
Distributionally robust federated averaging, NeurIPS 2020. All participants train on their loss
weighted by w = mu / rho, and their models and snapshots are averaged by rows. The second request
collects exact loss sums by group at the mean snapshot, so no site's own loss is revealed.

| symbol           | name                        |
|------------------|-----------------------------|
| mu               | state.weights               |
| w = mu / rho     | order.weights, up to t'     |
| tau              | steps                       |
| eta, gamma       | learning_rate, adversary_rate |
| theta^{(t')}     | state.snapshot              |
"""

from dataclasses import KW_ONLY, dataclass, field, replace

from torch import Tensor

from fedminmax.core.iterates import Iterate
from fedminmax.core.messages import Census, Order, Reveals, RoundKey, Sums
from fedminmax.core.randomness import Purpose, numpy_stream
from fedminmax.core.solvers.simplex import FixedShares, ascend_on_simplex
from fedminmax.core.workspace import Workspace
from fedminmax.methods.card import FLOOR, RATE, SNAPSHOTS, MethodCard, Over, Pace, Weights
from fedminmax.methods.fedminmax import FedMinMax
from fedminmax.methods.method import SiteData
from fedminmax.methods.shared import sampling
from fedminmax.methods.shared.checks import check_keep_share, check_not_negative
from fedminmax.methods.shared.expected_reply import ExpectedReply, Sender
from fedminmax.methods.shared.replies import NO_WEIGHTS, sums_before_training


@dataclass(frozen=True, eq=False)
class GroupDRFAState:
    """The model, mu, the shares rho for importance weights, the included groups, the snapshot.

    The snapshot has one row while the second request is pending, else none.
    """

    parameters: Tensor
    weights: Tensor
    group_shares: Tensor
    included: Tensor
    snapshot: Tensor


@MethodCard(
    key="group-drfa",
    paper="Deng, Kamani, Mahdavi, NeurIPS 2020, with groups in place of sites",
    optimises="worst group's risk, up to client drift",
    over=Over.GROUPS,
    pace=Pace.LOCAL_EPOCHS,
    minimax=True,
    weights=Weights.GROUPS,
    works_with_absent=True,
    sources=RATE | FLOOR | SNAPSHOTS,
    requests=2,
)
@dataclass(frozen=True)
class GroupDRFA:
    """Local steps on the weighted loss; mu sees a random intermediate model of the round."""

    learning_rate: float = 0.1
    adversary_rate: float = 0.01
    _: KW_ONLY
    min_weight: float = 0.0
    keep_share: float = 0.0
    steps: int = 10
    batch_size: int | None = 50
    name: str = "group DRFA"
    output: Iterate = Iterate.TAIL_AVERAGE
    reveals: Reveals = field(default=Reveals.SUMS, init=False)

    def __post_init__(self) -> None:
        self._plan.check(self.name)
        check_not_negative(
            self.name, adversary_rate=self.adversary_rate, min_weight=self.min_weight
        )
        check_keep_share(self.name, self.keep_share)

    @property
    def _plan(self) -> sampling.LocalSteps:
        return sampling.LocalSteps(self.steps, self.batch_size, self.learning_rate)

    def init(self, parameters: Tensor, census: Census) -> GroupDRFAState:
        """mu^0 as in FedMinMax."""
        minmax = FedMinMax(
            min_weight=self.min_weight, keep_share=self.keep_share, name=self.name
        ).init(parameters, census)
        return GroupDRFAState(**vars(minmax), snapshot=sampling.no_snapshot(parameters))

    def order(self, state: GroupDRFAState, key: RoundKey) -> Order:
        """Broadcast the model, w = mu / rho and t'."""
        rng = numpy_stream(key.seed, Purpose.SERVER_DRAWS, key.round)
        weights = sampling.with_snapshot_step(
            state.weights / state.group_shares, sampling.draw_snapshot_step(self.steps, rng)
        )
        return Order(key, state.parameters, weights)

    def local(self, order: Order, site: SiteData, workspace: Workspace) -> Sums:
        """Train with a snapshot; in the second phase, return the groups' loss sums."""
        if order.phase == 1:
            return sums_before_training(order, site, workspace)
        by_group = order.weights[:-1].to(order.parameters)
        return sampling.train_with_snapshot(
            order,
            site,
            workspace,
            self._plan,
            weight=float(len(site.examples)),
            row_weights=by_group[site.examples.group],
        )

    def expected(self, order: Order, sender: Sender, reply: Sums) -> ExpectedReply:
        """Both displacements, or only the groups' loss sums."""
        if order.phase == 1:
            return ExpectedReply(numbers=0, scale=0.0, rows=sender.rows, evaluations=0)
        return sampling.expect_snapshot(
            order,
            sender,
            reply,
            self._plan,
            weight=float(sender.rows),
            row_weight=float(order.weights[:-1][sender.counts > 0].max()),
        )

    def update(self, state: GroupDRFAState, total: Sums) -> GroupDRFAState:
        """Move to the mean of the trained models and store the mean snapshot."""
        trained, snapshot = sampling.descend_twice(state.parameters, total)
        return replace(state, parameters=trained, snapshot=snapshot)

    def ask_again(self, state: GroupDRFAState, key: RoundKey) -> Order | None:
        """Send the mean snapshot."""
        if len(state.snapshot) == 0:
            return None
        return Order(key, state.snapshot[0], NO_WEIGHTS, phase=1)

    def update_again(self, state: GroupDRFAState, total: Sums) -> GroupDRFAState:
        """Ascend: projection of mu + tau gamma r(theta^{(t')})."""
        weights = ascend_on_simplex(
            state.weights,
            total.group_risks,
            (total.group_count > 0) & state.included,
            rate=self.steps * self.adversary_rate,
            floor=self.min_weight,
            kept=FixedShares(state.group_shares, state.included, self.keep_share).kept,
        )
        return replace(state, weights=weights, snapshot=sampling.no_snapshot(state.parameters))
