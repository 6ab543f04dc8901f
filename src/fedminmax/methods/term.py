"""TERM: a tilted mean of risks over sites, or over groups: a smooth maximum instead of the maximum.

Li, Beirami, Sanjabi, Smith: Tilted empirical risk minimization, ICLR 2021:
J = (1/t) log sum_k p_k exp(t R_k). t near 0 is plain risk minimisation, large t approaches minimax.

TERM is over sites. With ``group_tilt`` tau a site's R_k is itself a tilted mean of its groups'
risks, (1/tau) log sum_a (n_{a,k} / n_k) exp(tau r_{a,k}): client-then-group tilt; without it R_k is
the site's mean loss. Local epochs start from the broadcast model, with the groups' weights fixed at
their values there.

| symbol                            | name                                     |
|-----------------------------------|------------------------------------------|
| t, tau                            | tilt, group_tilt                         |
| p_k                               | n_k / n                                  |
| R_k                               | the site's tilted loss                   |
| omega_k = p_k exp(t R_k) / sum    | state.site_weights                       |

A round has two requests: first all sites return R_k at theta^{t-1}, then they train from there,
and the server averages with omega over the sites that took part. Knowing every R_k, it subtracts
the largest, which a sum of replies would not reveal: exp(t R_k) itself overflows at t R_k = 709, in
single precision at 88.

GroupTERM is over groups, with p_a = rho_a and R_a = r_a. The gradient is sum_a mu_a grad r_a with
mu_a proportional to rho_a exp(t r_a): Algorithm 1 of Papadaki et al. 2021 with mu in closed form.
The server uses the risks of the previous round, so a round needs one message each way; the fixed
point is the same.

The tilt adds curvature: that of J is sum_a mu_a H_a + t Cov_mu(g), with H_a and g_a the curvature
and slope of group a. A rate that is safe for every group's risk can therefore be too long for J,
and the model would swing. Every sum covers all rows, so J is known exactly: where it rises, steps
are halved, and they grow back slowly while it falls. Steps that lower J are never changed.

| symbol | name               |
|--------|--------------------|
| mu     | state.weights      |
| rho    | state.group_shares |
| J      | state.objective    |
"""

import math
from dataclasses import KW_ONLY, dataclass, field, replace

import torch
from torch import Tensor

from fedminmax.core.iterates import Iterate
from fedminmax.core.messages import Census, Order, Reveals, RoundKey, Sums, descend, zero_sums
from fedminmax.core.solvers.simplex import tilted_mean, tilted_weights
from fedminmax.core.validation import Judge, Players
from fedminmax.core.workspace import Workspace
from fedminmax.methods.card import LOCAL, OURS, RATE, SAFE_RATE, MethodCard, Over, Pace, Weights
from fedminmax.methods.method import RowWeights, SiteData
from fedminmax.methods.shared.checks import check_not_negative, check_rate
from fedminmax.methods.shared.expected_reply import (
    ExpectedReply,
    OwnLoss,
    Sender,
    expect_local_epochs,
)
from fedminmax.methods.shared.replies import (
    NO_WEIGHTS,
    LocalTraining,
    sums_before_training,
    weigh_by_group,
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


# Factors of the step's length: after a rise of J, and after a fall.
SHRINKAGE, GROWTH = 0.5, 1.05


@dataclass(frozen=True, eq=False)
class GroupTERMState:
    """theta^t, the weights of the next round, the shares rho, and which groups are tilted.

    Groups too small for an adversary (see ``shared.replies``) keep their share here, too: only the
    others are tilted. ``objective`` is J of the model before, infinite if it is not comparable with
    the next one: the first round has none, nor has a round without some of the rows, and with noise
    every J is only an estimate. ``ridge`` is that of J's penalty. ``step_factor`` is the share of
    the learning rate in use.
    """

    parameters: Tensor
    weights: Tensor
    _: KW_ONLY
    group_shares: Tensor
    included: Tensor
    counts: Tensor
    noisy: bool
    ridge: float
    objective: float
    step_factor: float


@MethodCard(
    key="group-term",
    paper="Li, Beirami, Sanjabi, Smith, ICLR 2021 (over groups)",
    optimises="tilted mean of the groups' risks",
    over=Over.GROUPS,
    pace=Pace.ONE_STEP,
    weights=Weights.GROUPS,
    sources=SAFE_RATE | {"tilt": OURS},
    required={"tilt": "5"},
)
@dataclass(frozen=True)
class GroupTERM:
    """Minimise the tilted mean of the group risks."""

    tilt: float
    learning_rate: float | None = None
    _: KW_ONLY
    output: Iterate = Iterate.LAST
    reveals: Reveals = field(default=Reveals.SUMS, init=False)

    def __post_init__(self) -> None:
        check_not_negative("group TERM", tilt=self.tilt)
        check_rate("group TERM", self.learning_rate)

    @property
    def name(self) -> str:
        """The name in tables, with t."""
        return f"group TERM (t={self.tilt:g})"

    @property
    def judge(self) -> Judge:
        """Validation rows judge by the same tilted mean."""
        return Judge(Players.GROUPS, tilt=self.tilt)

    def init(self, parameters: Tensor, census: Census) -> GroupTERMState:
        """No risk is known yet: the first round weighs by rho."""
        shares = census.group_shares
        return GroupTERMState(
            parameters,
            shares,
            group_shares=shares,
            included=census.included,
            counts=census.counts.sum(dim=0),
            noisy=census.noise is not None,
            ridge=census.linear.ridge if census.linear else 0.0,
            objective=math.inf,
            step_factor=1.0,
        )

    def order(self, state: GroupTERMState, key: RoundKey) -> Order:
        """Broadcast theta^{t-1} and mu / rho."""
        return Order(key, state.parameters, state.weights / state.group_shares)

    def weigh(self, order: Order, sites: Tensor, counts: Tensor) -> RowWeights:
        """Weigh by group alone."""
        return weigh_by_group(order, sites, counts)

    def update(self, state: GroupTERMState, total: Sums) -> GroupTERMState:
        """Descend in theta; tilt by this round's risks.

        A missing group keeps its weight, and the others share the rest.
        """
        seen = (total.group_count > 0) & state.included
        weights = state.weights.clone()
        weights[seen] = state.weights[seen].sum() * tilted_weights(
            state.group_shares[seen], total.group_risks[seen], self.tilt
        )
        objective = self._objective(state, total)
        rises = objective > state.objective and math.isfinite(objective)
        factor = min(1.0, state.step_factor * (SHRINKAGE if rises else GROWTH))
        return replace(
            state,
            parameters=descend(state.parameters, replace(total, scale=total.scale / factor)),
            weights=weights,
            objective=objective,
            step_factor=factor,
        )

    def _objective(self, state: GroupTERMState, total: Sums) -> float:
        """Return J of the model that entered the round; infinite if it is not known exactly."""
        if state.noisy or not torch.equal(total.group_count, state.counts):
            return math.inf
        included, shares, risks = state.included, state.group_shares, total.group_risks
        mass = shares[included].sum()
        tilted = mass * tilted_mean(shares[included] / mass, risks[included], self.tilt)
        penalty = 0.5 * state.ridge * state.parameters.double().square().sum().cpu()
        return float(tilted + torch.dot(shares[~included], risks[~included]) + penalty)
