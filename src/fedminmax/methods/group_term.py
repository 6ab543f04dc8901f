"""Group TERM: a smooth maximum of the group risks instead of the maximum.

Li, Beirami, Sanjabi, Smith: Tilted empirical risk minimization, ICLR 2021, with the groups as the
parts: J = (1/t) log sum_a rho_a exp(t r_a). Its gradient is sum_a mu_a grad r_a with
mu_a proportional to rho_a exp(t r_a): Algorithm 1 of Papadaki et al. 2021 with mu in closed form.
The server uses the risks of the previous round, so a round needs one message each way; the fixed
point is the same. t near 0 is plain risk minimisation, large t approaches minimax.

The tilt adds curvature: that of J is sum_a mu_a H_a + t Cov_mu(g), with H_a and g_a the curvature
and slope of group a. A rate that is safe for every group's risk can therefore be too long for J,
and the model would swing. Every sum covers all rows, so J is known exactly: where it rises, steps
are halved, and they grow back slowly while it falls. Steps that lower J are never changed.

| symbol | name               |
|--------|--------------------|
| t      | tilt               |
| mu     | state.weights      |
| rho    | state.group_shares |
| J      | state.objective    |
"""

import math
from dataclasses import KW_ONLY, dataclass, field, replace

import torch
from torch import Tensor

from fedminmax.core.iterates import Iterate
from fedminmax.core.messages import Census, Order, Reveals, RoundKey, Sums, descend
from fedminmax.core.solvers.simplex import tilted_mean, tilted_weights
from fedminmax.core.validation import Judge, Players
from fedminmax.methods.card import OURS, SAFE_RATE, MethodCard, Over, Pace, Weights
from fedminmax.methods.method import RowWeights
from fedminmax.methods.shared.checks import check_not_negative, check_rate
from fedminmax.methods.shared.replies import weigh_by_group

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
