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
"""

import math
from dataclasses import KW_ONLY, dataclass, field

from torch import Tensor

from fedminmax.core.iterates import Iterate
from fedminmax.core.messages import Census, Order, Reveals, RoundKey, Sums
from fedminmax.methods.card import AUTHORS, FITS, SAFE_RATE, MethodCard, Over, Pace, Weights
from fedminmax.methods.method import RowWeights
from fedminmax.methods.shared.checks import check_not_negative
from fedminmax.methods.shared.fits import (
    HedgedFitsState,
    check_fits,
    hedge,
    order_step,
    start_hedging,
)
from fedminmax.methods.shared.replies import weigh_by_group


@MethodCard(
    key="minimax-fair",
    paper="Diana, Gill, Kearns, Kenthapadi, Roth, AIES 2021",
    optimises="worst group's risk of a mixture of weighted fits",
    over=Over.GROUPS,
    pace=Pace.ONE_STEP,
    minimax=True,
    weights=Weights.GROUPS,
    sources=SAFE_RATE | FITS | {"adversary_rate": AUTHORS},
    mixes_fits=True,
)
@dataclass(frozen=True)
class MinimaxFair:
    """Exponential weights with a falling rate; ``adversary_rate=0`` fits the mean risk."""

    learning_rate: float | None = None
    adversary_rate: float = 1.0
    _: KW_ONLY
    fit_rounds: int = 20
    warm_start: bool = True
    name: str = "MinimaxFair"
    output: Iterate = Iterate.LAST
    reveals: Reveals = field(default=Reveals.SUMS, init=False)

    def __post_init__(self) -> None:
        check_fits(self.name, self.learning_rate, self.fit_rounds)
        check_not_negative(self.name, adversary_rate=self.adversary_rate)

    def init(self, parameters: Tensor, census: Census) -> HedgedFitsState:
        """The weights start at rho."""
        return start_hedging(parameters, census.group_shares, census)

    def order(self, state: HedgedFitsState, key: RoundKey) -> Order:
        """Broadcast the model of the current fit and its weights."""
        return order_step(key, state.parameters, state.weights, state.fits)

    def weigh(self, order: Order, sites: Tensor, counts: Tensor) -> RowWeights:
        """Weigh every row by its group."""
        return weigh_by_group(order, sites, counts)

    def update(self, state: HedgedFitsState, total: Sums) -> HedgedFitsState:
        """Continue the fit, or end it and update the weights with eta_t."""
        return hedge(
            state,
            total,
            rate=self.adversary_rate / math.sqrt(state.fits.done + 1),
            fit_rounds=self.fit_rounds,
            warm_start=self.warm_start,
        )
