"""TERM over sites: each site's update counts in proportion to the exponential of its loss.

Li, Beirami, Sanjabi, Smith: Tilted empirical risk minimization, ICLR 2021:
J = (1/t) log sum_k p_k exp(t R_k). With ``group_tilt`` tau a site's R_k is itself a tilted mean
of its groups' risks, (1/tau) log sum_a (n_{a,k} / n_k) exp(tau r_{a,k}): client-then-group tilt;
without it R_k is the site's mean loss. Local epochs start from the broadcast model, with the
groups' weights fixed at their values there.

| symbol                            | name                                     |
|-----------------------------------|------------------------------------------|
| t, tau                            | tilt, group_tilt                         |
| p_k                               | n_k / n                                  |
| R_k                               | the site's tilted loss                 |
| omega_k = p_k exp(t R_k) / sum    | state.site_weights                     |

A round has two requests: first all sites return R_k at theta^{t-1}, then they train from there,
and the server averages with omega over the sites that took part. Knowing every R_k, it subtracts
the largest, which a sum of replies would not reveal: exp(t R_k) itself overflows at t R_k = 709, in
single precision at 88.
"""

from dataclasses import KW_ONLY, dataclass, field, replace

import torch
from torch import Tensor

from fedminmax.core.messages import Census, Order, Reveals, RoundKey, Sums, descend, zero_sums
from fedminmax.core.solvers.simplex import tilted_mean, tilted_weights
from fedminmax.core.validation import Judge, Players
from fedminmax.core.workspace import Workspace
from fedminmax.methods.card import LOCAL, RATE, MethodCard, Over, Pace
from fedminmax.methods.method import SiteData
from fedminmax.methods.shared.checks import check_not_negative
from fedminmax.methods.shared.expected_reply import (
    ExpectedReply,
    OwnLoss,
    Sender,
    expect_local_epochs,
)
from fedminmax.methods.shared.local_training import LocalTraining
from fedminmax.methods.shared.replies import (
    NO_WEIGHTS,
    sums_before_training,
)

EVALUATE, TRAIN = 0, 1


@dataclass(frozen=True, eq=False)
class TERMState:
    """theta^t, and omega between the two requests of a round; empty between rounds."""

    parameters: Tensor
    site_weights: Tensor

    @property
    def weights(self) -> Tensor:
        """No adversary, no weights."""
        return NO_WEIGHTS


@MethodCard(
    key="term",
    paper="Li, Beirami, Sanjabi, Smith, ICLR 2021 (over sites, and over each one's groups)",
    optimises="tilted mean of the sites' risks",
    over=Over.SITES,
    pace=Pace.LOCAL_EPOCHS,
    works_with_absent=True,
    sources=RATE | LOCAL | {"tilt": "the authors' runs", "group_tilt": "ours: no second tilt"},
    requests=2,
)
@dataclass(frozen=True)
class TERM(LocalTraining):
    """Tilted mean over sites; ``tilt=0`` equals FedAvg, large tilts approach minimax."""

    tilt: float = 0.1
    group_tilt: float = 0.0
    _: KW_ONLY
    reveals: Reveals = field(default=Reveals.OWN_LOSS, init=False)

    def __post_init__(self) -> None:
        check_not_negative("TERM", tilt=self.tilt, group_tilt=self.group_tilt)
        self.check_training("TERM")

    @property
    def name(self) -> str:
        """The name in tables, with t and tau."""
        groups = f", tau={self.group_tilt:g}" if self.group_tilt else ""
        return f"TERM (t={self.tilt:g}{groups})"

    @property
    def judge(self) -> Judge:
        """Validation rows judge by the same tilted mean."""
        return Judge(Players.SITES, tilt=self.tilt)

    def init(self, parameters: Tensor, census: Census) -> TERMState:  # noqa: ARG002
        """Start from the initial model; no loss is known yet."""
        return TERMState(parameters, NO_WEIGHTS)

    def order(self, state: TERMState, key: RoundKey) -> Order:
        """Request the losses of the current model."""
        return Order(key, state.parameters, NO_WEIGHTS, EVALUATE)

    def ask_again(self, state: TERMState, key: RoundKey) -> Order | None:
        """Request training with this round's omega; a site uses only its own entry."""
        if len(state.site_weights) == 0:
            return None
        return Order(key, state.parameters, state.site_weights, TRAIN)

    def local(self, order: Order, site: SiteData, workspace: Workspace) -> Sums:
        """Return n_k R_k, or train and return omega_k (theta - theta_k) on the scale omega_k."""
        if order.phase == EVALUATE:
            return self._evaluate(order, site, workspace)
        workspace.load(order.parameters)
        before, row_weights = zero_sums(0, site.groups, 0), None
        if self.group_tilt > 0:
            before = sums_before_training(order, site, workspace)
            _, group_weights = self._tilt_groups(before)
            row_weights = group_weights.to(order.parameters)[site.examples.group]
        trained = self.train(order, site, workspace, row_weights)
        return self.with_step(before, order, site, trained, float(order.weights[site.number]))

    def _evaluate(self, order: Order, site: SiteData, workspace: Workspace) -> Sums:
        before = sums_before_training(order, site, workspace)
        loss, _ = self._tilt_groups(before)
        rows = len(site.examples)
        losses = torch.zeros(site.sites, dtype=torch.float64)
        counts = torch.zeros(site.sites, dtype=torch.int64)
        losses[site.number], counts[site.number] = rows * loss, rows
        return replace(before, site_loss=losses, site_count=counts)

    def expected(self, order: Order, sender: Sender, reply: Sums) -> ExpectedReply:
        """R_k follows from the groups' losses; then omega_k times the displacement."""
        rows = sender.rows
        loss, group_weights = self._tilt_groups(reply)
        if order.phase == EVALUATE:
            own = OwnLoss(rows, rows * loss, rows * loss)
            return ExpectedReply(numbers=0, scale=0.0, rows=rows, evaluations=0, own_loss=own)
        training = expect_local_epochs(
            order,
            sender,
            reply,
            self.plan,
            weight=float(order.weights[sender.number]),
            row_weight=float(group_weights.max()) if self.group_tilt > 0 else 1.0,
        )
        return training if self.group_tilt > 0 else replace(training, rows=0)

    def _tilt_groups(self, before: Sums) -> tuple[float, Tensor]:
        """Return R_k, and the weight of a row of each group in its gradient."""
        present = before.group_count > 0
        shares = before.group_count[present].to(torch.float64) / before.group_count.sum()
        risks = before.group_risks[present]
        weights = torch.zeros_like(before.group_loss)
        weights[present] = tilted_weights(shares, risks, self.group_tilt) / shares
        return float(tilted_mean(shares, risks, self.group_tilt)), weights

    def update(self, state: TERMState, total: Sums) -> TERMState:
        """Weight the sites that returned a loss; the second request updates the model."""
        seen = total.site_count > 0
        weights = torch.zeros_like(total.site_loss)
        rows = total.site_count[seen].to(torch.float64)
        weights[seen] = tilted_weights(rows, total.site_risks[seen], self.tilt)
        return TERMState(state.parameters, weights)

    def update_again(self, state: TERMState, total: Sums) -> TERMState:
        """Move to the average with omega over the sites that took part."""
        return TERMState(descend(state.parameters, total), NO_WEIGHTS)
