"""APStar: move weight towards the groups at or above the best worst risk found so far.

Martinez, Bertran, Sapiro: Minimax Pareto fairness: a multi objective perspective, ICML 2020. It
returns the fitted model with the lowest worst risk. The paper compares risks on validation rows;
here they are training risks, which arrive anyway: set rows aside to evaluate the result.

| symbol                      | name                        |
|-----------------------------|-----------------------------|
| mu                          | state.weights               |
| alpha                       | alpha                       |
| K at the start, K           | divisor, state.divisor      |
| K_min                       | divisor_cap                 |
| best model, its worst risk  | state.selected, state.best_worst_risk |

After each fit: if its worst risk is the lowest so far, K <- min(K, K_min), else K <- K + 1; then
mu <- (1 - alpha) mu + (alpha / K) 1_P / |P|, scaled to sum 1, with P the groups whose risk is at
least the best worst risk. After ``fit_patience`` fits in a row without improvement the search is
over (``is_over``): further rounds change nothing, and the caller may stop.

If sites are absent, a model can become the best only if its evaluation round covered every group;
other fits are ignored, and a group that was not covered keeps its weight.
One outer step is ``fit_rounds`` + 1 rounds (see ``shared.fits``).

With ``keep_share`` k, every group keeps k of its share as weight, and in place of its risk r_a
counts k times the mean risk plus (1 - k) r_a.
"""

import math
from dataclasses import KW_ONLY, dataclass, replace

import torch
from torch import Tensor

from fedminmax.core.messages import Census, Sums, descend
from fedminmax.methods.card import AUTHORS, FITS, KEEP, SAFE_RATE, MethodCard, Over, Pace, Weights
from fedminmax.methods.shared.checks import check_share, check_whole
from fedminmax.methods.shared.fits import Fits, WeightedFits, initial_fits
from fedminmax.methods.shared.replies import uniform_weights


@dataclass(frozen=True, eq=False)
class APStarState:
    """The model of the current fit, mu, the progress of the fits, and the best model [1, d]."""

    parameters: Tensor
    weights: Tensor
    _: KW_ONLY
    fits: Fits
    selected: Tensor
    best_worst_risk: float
    divisor: int
    failures: int


@MethodCard(
    key="ap-star",
    paper="Martinez, Bertran, Sapiro, ICML 2020",
    optimises="worst group's risk: the best of a sequence of weighted fits",
    over=Over.GROUPS,
    pace=Pace.ONE_STEP,
    minimax=True,
    weights=Weights.GROUPS,
    sources=SAFE_RATE
    | FITS
    | KEEP
    | {"alpha": AUTHORS, "divisor": AUTHORS, "divisor_cap": AUTHORS, "fit_patience": AUTHORS},
)
@dataclass(frozen=True)
class APStar(WeightedFits):
    """Search for the group weights whose fit has the lowest worst risk."""

    _: KW_ONLY
    alpha: float = 0.5
    divisor: int = 1
    divisor_cap: int = 20
    fit_patience: int = 20
    keep_share: float = 0.0
    name: str = "APStar"

    def __post_init__(self) -> None:
        self.check_fits(self.name, self.keep_share)
        check_share(self.name, alpha=self.alpha)
        check_whole(
            self.name,
            minimum=1,
            divisor=self.divisor,
            divisor_cap=self.divisor_cap,
            fit_patience=self.fit_patience,
        )

    def init(self, parameters: Tensor, census: Census) -> APStarState:
        """The weights start uniform; theta^0 is the best model until one is fitted."""
        return APStarState(
            parameters,
            torch.lerp(uniform_weights(census), census.group_shares, self.keep_share),
            fits=initial_fits(parameters, census, self.keep_share),
            selected=parameters.unsqueeze(0),
            best_worst_risk=math.inf,
            divisor=self.divisor,
            failures=0,
        )

    def is_over(self, state: APStarState) -> bool:
        """Return whether patience has run out: the state no longer changes."""
        return state.failures >= self.fit_patience

    def update(self, state: APStarState, total: Sums) -> APStarState:
        """Continue the fit, or end it: evaluate the fitted model, then update the weights."""
        if self.is_over(state):
            return state
        if not self.is_evaluation(state):
            return replace(
                state, parameters=descend(state.parameters, total), fits=state.fits.after_step()
            )
        included = state.fits.included
        mean = float(total.group_loss.sum() / total.group_count.sum())
        risks = (1.0 - self.keep_share) * total.group_risks + self.keep_share * mean
        seen = (total.group_count > 0) & included
        judged = self._judge(state, risks[included]) if torch.equal(seen, included) else state
        # The risk of a missing group is NaN, for which the comparison is false.
        behind = (risks >= judged.best_worst_risk) & included
        return replace(
            judged,
            parameters=self.next_start(state),
            weights=move_towards(
                behind,
                seen,
                state.weights,
                alpha=self.alpha,
                divisor=judged.divisor,
                kept=state.fits.kept,
            ),
            fits=state.fits.after_fit(),
        )

    def _judge(self, state: APStarState, risks: Tensor) -> APStarState:
        worst = float(risks.max())
        if worst >= state.best_worst_risk:
            return replace(state, divisor=state.divisor + 1, failures=state.failures + 1)
        return replace(
            state,
            selected=state.parameters.unsqueeze(0),
            best_worst_risk=worst,
            divisor=min(state.divisor, self.divisor_cap),
            failures=0,
        )


def move_towards(
    behind: Tensor, seen: Tensor, weights: Tensor, *, alpha: float, divisor: int, kept: Tensor
) -> Tensor:
    """Shift weight towards the groups ``behind``, within the total weight of the groups ``seen``.

    It is about what weights are above ``kept``.

    >>> half, both = torch.tensor([0.5, 0.5], dtype=torch.float64), torch.tensor([True, True])
    >>> first, kept = torch.tensor([True, False]), torch.tensor([0.0, 0.25], dtype=torch.float64)
    >>> move_towards(first, both, half, alpha=0.5, divisor=1, kept=0.0 * kept).tolist()
    [0.75, 0.25]
    >>> move_towards(first, both, half, alpha=0.25, divisor=1, kept=kept).tolist()
    [0.5625, 0.4375]
    """
    above = (weights - kept)[seen]
    mass = above.sum()
    if not bool(behind.any()) or float(mass) == 0.0:
        return weights
    pull = behind[seen].to(weights.dtype) / behind.sum()
    mixed = (1.0 - alpha) * above / mass + alpha / divisor * pull
    moved = weights.clone()
    moved[seen] = kept[seen] + mass * mixed / mixed.sum()
    return moved
