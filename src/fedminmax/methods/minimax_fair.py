"""MinimaxFair: the worst-off group's risk, by exponential weights against fitted models.

Diana, Gill, Kearns, Kenthapadi, Roth: Minimax group fairness: algorithms and experiments, AIES
2021, the algorithm without relaxation. It returns the uniform mixture of all fitted models, which
are kept: m * d numbers. The mixture's risks are the means of its members' risks.

| symbol                        | name                       |
|-------------------------------|----------------------------|
| lambda^t (weights of groups)  | state.weights              |
| eta_t = a / sqrt(t)           | adversary_rate is a        |
| h_1, ..., h_T                 | state.selected             |

The weights start at rho. The authors' program divides a by the largest squared target when it fits
quantities; here losses are not rescaled, so choose a to match their size. One outer step is
``fit_rounds`` + 1 rounds (see ``shared.fits``).

RelaxedMinimaxFair is the same paper's relaxed algorithm: the lowest mean risk among models whose
group risks are at most gamma, by projected gradient ascent on the multipliers nu of the constraints
r_a <= gamma, against models fitted to the Lagrangian sum_a (rho_a + nu_a) r_a. It returns the
uniform mixture of the fitted models as well.

| symbol                                      | name                          |
|---------------------------------------------|-------------------------------|
| gamma                                       | gamma                         |
| nu^t                                        | state.multipliers             |
| rho + nu^t (the learner's weights)          | state.weights                 |
| eta_t = a / sqrt(t)                         | adversary_rate is a           |
| p = (rho + nu) / (1 + sum nu)               | weights of the gradient steps |

nu_a <- max(0, nu_a + eta_t (r_a - gamma)); a missing group keeps its nu. The gradient steps use p,
which has the same minimum as rho + nu, so the effective learning rate does not depend on the size
of nu. The early fits, before nu has grown, violate the constraints; ``discard`` skips the first
ones in the mixture (by default none, as in the paper).

Infeasible gamma: a model with all risks at most gamma also has sum_a p_a r_a <= gamma. So if the
minimum of sum_a p_a r_a is above gamma, there is no such model, nor a mixture (weak duality, which
does not need convexity). Conversely, for convex risks and an infeasible gamma the dual function is
unbounded, so the ascent reaches such a p, though slowly if gamma is nearly feasible. A fit is not
exactly a minimum; it counts against gamma if sum_a p_a r_a exceeds gamma by more than the share
``SLACK`` of it, and by more than ``REACH`` further fits would gain at the pace of its last step.
After ``fit_patience`` such fits in a row (``state.stalled_fits``) the run stops.

Groups too small for an adversary (see ``shared.replies``) have no constraint: their nu stays 0. A
model within gamma may then have a higher risk for them than the fit. In the sum above they count
with the opposite sign, which allows for twice their current risk; this term vanishes as nu grows.
"""

import math
from dataclasses import KW_ONLY, dataclass, replace

import torch
from torch import Tensor

from fedminmax.core.errors import DivergedError
from fedminmax.core.messages import Census, Sums, descend
from fedminmax.methods.card import (
    AUTHORS,
    FITS,
    KEEP,
    OURS,
    SAFE_RATE,
    MethodCard,
    Over,
    Pace,
    Weights,
)
from fedminmax.methods.shared.checks import check_not_negative, check_positive, check_whole
from fedminmax.methods.shared.fits import (
    Fits,
    HedgedFitsState,
    WeightedFits,
    initial_fits,
    mixture_so_far,
    no_members,
    start_hedging,
    with_member,
)


@MethodCard(
    key="minimax-fair",
    paper="Diana, Gill, Kearns, Kenthapadi, Roth, AIES 2021",
    optimises="worst group's risk of a mixture of weighted fits",
    over=Over.GROUPS,
    pace=Pace.ONE_STEP,
    minimax=True,
    weights=Weights.GROUPS,
    sources=SAFE_RATE | FITS | KEEP | {"adversary_rate": AUTHORS},
    mixes_fits=True,
)
@dataclass(frozen=True)
class MinimaxFair(WeightedFits):
    """Exponential weights with a falling rate; ``adversary_rate=0`` fits the mean risk."""

    learning_rate: float | None = None
    adversary_rate: float = 1.0
    _: KW_ONLY
    keep_share: float = 0.0
    name: str = "MinimaxFair"

    def __post_init__(self) -> None:
        self.check_fits(self.name, self.keep_share)
        check_not_negative(self.name, adversary_rate=self.adversary_rate)

    def init(self, parameters: Tensor, census: Census) -> HedgedFitsState:
        """The weights start at rho."""
        return start_hedging(parameters, census.group_shares, census, self.keep_share)

    def update(self, state: HedgedFitsState, total: Sums) -> HedgedFitsState:
        """Continue the fit, or end it and update the weights with eta_t."""
        rate = self.adversary_rate / math.sqrt(state.fits.done + 1)
        return self.hedge(state, total, rate)


SLACK = 1e-3
REACH = 100


@dataclass(frozen=True, eq=False)
class RelaxedMinimaxFairState:
    """The model of the current fit, nu, the progress of the fits, and the fitted models [m, d].

    ``entering_risk`` is sum_a p_a r_a at the model that entered the last round, infinite if a group
    was missing; ``stalled_fits`` counts the fits in a row that indicate an infeasible gamma.
    """

    parameters: Tensor
    multipliers: Tensor
    _: KW_ONLY
    fits: Fits
    members: Tensor
    entering_risk: float
    stalled_fits: int

    @property
    def weights(self) -> Tensor:
        """The learner's weights rho + nu, which sum to 1 + sum nu."""
        return self.fits.group_shares + self.multipliers

    @property
    def selected(self) -> Tensor:
        """The uniform mixture of the fitted models; before the first one, the current model."""
        return mixture_so_far(self.members, self.parameters)


@MethodCard(
    key="relaxed-minimax-fair",
    paper="Diana, Gill, Kearns, Kenthapadi, Roth, AIES 2021, relaxed form",
    optimises="mean risk of a mixture with every group's risk at most gamma",
    over=Over.GROUPS,
    pace=Pace.ONE_STEP,
    weights=Weights.GROUPS,
    absent_keep_weight=False,
    sources=SAFE_RATE
    | FITS
    | {
        "gamma": "yours to choose",
        "adversary_rate": AUTHORS,
        "discard": AUTHORS,
        "fit_patience": OURS,
    },
    required={"gamma": "0.47"},
    mixes_fits=True,
)
@dataclass(frozen=True)
class RelaxedMinimaxFair(WeightedFits):
    """Lowest mean risk with every group's risk at most gamma."""

    gamma: float
    _: KW_ONLY
    adversary_rate: float = 1.0
    discard: int = 0
    fit_patience: int = 20

    def __post_init__(self) -> None:
        check_not_negative(self.name, gamma=self.gamma)
        check_positive(self.name, adversary_rate=self.adversary_rate)
        self.check_fits(self.name)
        check_whole(self.name, minimum=0, discard=self.discard)
        check_whole(self.name, minimum=1, fit_patience=self.fit_patience)

    @property
    def name(self) -> str:
        """The name in tables, with gamma."""
        return f"MinimaxFair (gamma={self.gamma:g})"

    def init(self, parameters: Tensor, census: Census) -> RelaxedMinimaxFairState:
        """The multipliers start at 0: the first fit is to the mean risk."""
        return RelaxedMinimaxFairState(
            parameters,
            torch.zeros(census.groups, dtype=torch.float64),
            fits=initial_fits(parameters, census),
            members=no_members(parameters),
            entering_risk=math.inf,
            stalled_fits=0,
        )

    def update(self, state: RelaxedMinimaxFairState, total: Sums) -> RelaxedMinimaxFairState:
        """Continue the fit, or end it and update the multipliers; stop if gamma is infeasible."""
        risk = _weighted_risk(state, total)
        if not self.is_evaluation(state):
            return replace(
                state,
                parameters=descend(state.parameters, total),
                fits=state.fits.after_step(),
                entering_risk=risk,
            )
        kept = state.fits.done >= self.discard
        return RelaxedMinimaxFairState(
            self.next_start(state),
            self._ascend(state, total),
            fits=state.fits.after_fit(),
            members=with_member(state.members, state.parameters) if kept else state.members,
            entering_risk=risk,
            stalled_fits=self._count_stalled(state, risk),
        )

    def _ascend(self, state: RelaxedMinimaxFairState, total: Sums) -> Tensor:
        """Update nu by the violations r_a - gamma, with eta_t."""
        rate = self.adversary_rate / math.sqrt(state.fits.done + 1)
        moved = (state.multipliers + rate * (total.group_risks - self.gamma)).clamp(min=0.0)
        seen = (total.group_count > 0) & state.fits.included
        return torch.where(seen, moved, state.multipliers)

    def _count_stalled(self, state: RelaxedMinimaxFairState, risk: float) -> int:
        """Count this fit if it indicates an infeasible gamma; stop after too many in a row."""
        if math.isinf(risk):
            return state.stalled_fits
        last_gain = max(0.0, state.entering_risk - risk)
        within_reach = self.gamma * (1.0 + SLACK) + last_gain * self.fit_rounds * REACH
        if risk <= within_reach:
            return 0
        if state.stalled_fits + 1 == self.fit_patience:
            raise DivergedError(
                f"{self.name}: no model with all group risks at most {self.gamma:g} was found: "
                f"{self.fit_patience} fits in a row stayed at a weighted risk above it, the last "
                f"one at {risk:.4g}; give a larger gamma, or more fit_rounds if fits are unfinished"
            )
        return state.stalled_fits + 1


def _weighted_risk(state: RelaxedMinimaxFairState, total: Sums) -> float:
    """Return sum_a p_a r_a minus the small groups' part; infinite if a group was missing."""
    if not bool((total.group_count > 0).all()):
        return math.inf
    included, weights = state.fits.included, state.weights
    signed = torch.where(included, weights, -weights)
    return float(torch.dot(signed, total.group_risks) / weights[included].sum())
