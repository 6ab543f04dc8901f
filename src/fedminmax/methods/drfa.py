"""DRFA: minimax over sites, or over groups, with local steps between the rounds.

Deng, Kamani, Mahdavi: Distributionally robust federated averaging, NeurIPS 2020. A round has two
requests. First, m sites drawn by lambda take tau steps; the models and the snapshots after a
common random step t' are averaged. Then m sites drawn uniformly return a batch's loss at the mean
snapshot, and lambda ascends by tau steps at once. Both draws are with replacement.

| symbol          | name                       |
|-----------------|----------------------------|
| lambda^s        | state.weights              |
| m               | sites_drawn              |
| tau             | steps                      |
| eta, gamma      | learning_rate, adversary_rate |
| w^{(t')}        | state.snapshot             |

Without ``sites_drawn`` there are no draws: all participants train, weighted by lambda_k, and all
return their loss, which equals the draws in expectation.

Group DRFA (G-DRFA) is minimax over groups: Zhang, Kuang, Liu, Chen, Wu, Wu, Lu, Shao, Xiao: Unified
group fairness on federated learning, arXiv 2111.04986, 2021, first version. All participants train
on their loss weighted by w = mu / rho (``order.weights``, up to t'), and their models and snapshots
are averaged by rows. The second request collects exact loss sums by group at the mean snapshot, so
no site's own loss is revealed.
"""

from dataclasses import KW_ONLY, dataclass, field, replace

import torch
from torch import Tensor

from fedminmax.core.iterates import Iterate
from fedminmax.core.local_epochs import shuffled_batches
from fedminmax.core.messages import Census, Order, Reveals, RoundKey, Sums, zero_sums
from fedminmax.core.randomness import Purpose, numpy_stream
from fedminmax.core.solvers.simplex import FixedShares, ascend_on_simplex
from fedminmax.core.workspace import Workspace
from fedminmax.methods.afl import AFL, AFLStart
from fedminmax.methods.card import (
    FLOOR,
    KEEP,
    RATE,
    SNAPSHOTS,
    START,
    MethodCard,
    Over,
    Pace,
    Weights,
)
from fedminmax.methods.fedminmax import FedMinMax
from fedminmax.methods.method import SiteData
from fedminmax.methods.shared import sampling
from fedminmax.methods.shared.checks import check_keep_share, check_not_negative, check_whole
from fedminmax.methods.shared.expected_reply import ExpectedReply, OwnLoss, Sender, batch_sizes
from fedminmax.methods.shared.replies import NO_WEIGHTS, local_stream, sums_before_training


@dataclass(frozen=True, eq=False)
class Draws:
    """A round's draws: how much each site's training counts, t', how much its loss counts."""

    training: Tensor
    snapshot_step: int
    loss_counts: Tensor


@dataclass(frozen=True, eq=False)
class DRFAState:
    """The model, lambda^s and its running sum, which sites have rows, and the snapshot.

    ``kept`` is what each site's weight is at least. The snapshot has one row while the second
    request is pending, else none.
    """

    parameters: Tensor
    weights: Tensor
    _: KW_ONLY
    weight_sum: Tensor
    rounds: int
    occupied: Tensor
    kept: Tensor
    snapshot: Tensor

    @property
    def average_weights(self) -> Tensor:
        """The averaged lambda that the paper returns along with the averaged model."""
        return self.weight_sum / max(1, self.rounds)


@MethodCard(
    key="drfa",
    paper="Deng, Kamani, Mahdavi, NeurIPS 2020",
    optimises="worst site's risk, up to client drift",
    over=Over.SITES,
    pace=Pace.LOCAL_EPOCHS,
    minimax=True,
    weights=Weights.SITES,
    works_with_absent=True,
    sources=RATE
    | START
    | SNAPSHOTS
    | KEEP
    | {"sites_drawn": "ours: all, weighted by lambda; a number draws as in the paper"},
    requests=2,
)
@dataclass(frozen=True)
class DRFA:
    """Local steps, and an adversary that sees a random intermediate model of the round."""

    learning_rate: float = 0.1
    adversary_rate: float = 0.01
    _: KW_ONLY
    steps: int = 10
    batch_size: int | None = 50
    sites_drawn: int | None = None
    start: AFLStart = AFLStart.ROWS
    keep_share: float = 0.0
    name: str = "DRFA"
    output: Iterate = Iterate.TAIL_AVERAGE
    reveals: Reveals = field(default=Reveals.OWN_LOSS, init=False)

    def __post_init__(self) -> None:
        self._plan.check(self.name)
        check_not_negative(self.name, adversary_rate=self.adversary_rate)
        check_keep_share(self.name, self.keep_share)
        if self.sites_drawn is not None:
            check_whole(self.name, minimum=1, sites_drawn=self.sites_drawn)

    @property
    def _plan(self) -> sampling.LocalSteps:
        return sampling.LocalSteps(self.steps, self.batch_size, self.learning_rate)

    def init(self, parameters: Tensor, census: Census) -> DRFAState:
        """lambda^0 as in AFL."""
        afl = AFL(start=self.start, keep_share=self.keep_share).init(parameters, census)
        weights = afl.weights
        return DRFAState(
            parameters,
            weights,
            weight_sum=torch.zeros_like(weights),
            rounds=0,
            occupied=census.site_counts > 0,
            kept=afl.kept,
            snapshot=sampling.no_snapshot(parameters),
        )

    def order(self, state: DRFAState, key: RoundKey) -> Order:
        """Broadcast the model, how much each site counts, and t'."""
        draws = self._draw(state, key)
        return Order(
            key, state.parameters, sampling.with_snapshot_step(draws.training, draws.snapshot_step)
        )

    def _draw(self, state: DRFAState, key: RoundKey) -> Draws:
        """All draws of a round; lambda does not change before the second request."""
        stream = numpy_stream(key.seed, Purpose.SERVER_DRAWS, key.round)
        everyone = state.occupied.to(torch.float64)
        if self.sites_drawn is None:
            return Draws(state.weights, sampling.draw_snapshot_step(self.steps, stream), everyone)
        return Draws(
            sampling.draw_sites(state.weights, self.sites_drawn, stream),
            sampling.draw_snapshot_step(self.steps, stream),
            sampling.draw_sites(everyone, self.sites_drawn, stream),
        )

    def local(self, order: Order, site: SiteData, workspace: Workspace) -> Sums:
        """Train with a snapshot; in the second phase, return a batch's loss."""
        weight = float(order.weights[site.number])
        if order.phase == 0:
            return sampling.train_with_snapshot(order, site, workspace, self._plan, weight=weight)
        if weight == 0:
            return sampling.with_own_loss(zero_sums(0, site.groups, site.sites), site, 0.0)
        stream = local_stream(order, site)
        batch = next(shuffled_batches(len(site.examples), self.batch_size, stream))
        reply = sums_before_training(order, sampling.only_rows(site, batch), workspace)
        return sampling.with_own_loss(reply, site, weight * sampling.mean_loss(reply))

    def expected(self, order: Order, sender: Sender, reply: Sums) -> ExpectedReply:
        """Both displacements, or a batch's mean loss."""
        weight = float(order.weights[sender.number])
        if order.phase == 0:
            return sampling.expect_snapshot(order, sender, reply, self._plan, weight=weight)
        rows = batch_sizes(sender.rows, self.batch_size)[0] if weight else 0
        mean = weight * float(reply.group_loss.sum()) / rows if weight else 0.0
        return ExpectedReply(
            numbers=0, scale=0.0, rows=rows, evaluations=0, own_loss=OwnLoss(1, mean, mean)
        )

    def update(self, state: DRFAState, total: Sums) -> DRFAState:
        """Move to the mean of the trained models and store the mean snapshot."""
        trained, snapshot = sampling.descend_twice(state.parameters, total)
        return replace(state, parameters=trained, snapshot=snapshot)

    def ask_again(self, state: DRFAState, key: RoundKey) -> Order | None:
        """Send the mean snapshot, and how often each site's loss counts."""
        if len(state.snapshot) == 0:
            return None
        return Order(key, state.snapshot[0], self._draw(state, key).loss_counts, phase=1)

    def update_again(self, state: DRFAState, total: Sums) -> DRFAState:
        """Ascend: projection of lambda + tau gamma v, with v_k = (|K| / m) f_k per draw."""
        sites = int(state.occupied.sum())
        weights = ascend_on_simplex(
            state.weights,
            sites / (self.sites_drawn or sites) * total.site_risks,
            total.site_count > 0,
            rate=self.steps * self.adversary_rate,
            kept=state.kept,
        )
        return replace(
            state,
            weights=weights,
            weight_sum=state.weight_sum + weights,
            rounds=state.rounds + 1,
            snapshot=sampling.no_snapshot(state.parameters),
        )


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
