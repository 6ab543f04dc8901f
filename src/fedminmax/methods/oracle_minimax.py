"""Robust optimisation with an oracle: multiplicative weights on the groups' cumulative risks.

Chen, Lucier, Singer, Syrgkanis: Robust optimization for non-convex objectives, NeurIPS 2017, with
the groups as the objectives and weighted fits as the oracle. It returns the uniform mixture of the
T oracle solutions. If the oracle is an alpha-approximation, the mixture's worst risk is at most
alpha times the optimum plus O(sqrt(log A / T)), for losses in [0, 1]; convexity is not required.
Only for convex losses would the single averaged model be as good. All T models are kept: T * d
numbers.

| symbol                      | name                        |
|-----------------------------|-----------------------------|
| T                           | fits                        |
| eta = sqrt(log A / (2 T))   | rate of ``update``          |
| w_t (weights of objectives) | state.weights               |
| x_1, ..., x_T               | state.selected              |

The weights start uniform. A run of ``fits`` outer steps takes ``fits`` * (``fit_rounds`` + 1)
rounds (see ``shared.fits``); a longer run keeps the rate.
"""

import math
from dataclasses import KW_ONLY, dataclass, field

from torch import Tensor

from fedminmax.core.iterates import Iterate
from fedminmax.core.messages import Census, Order, Reveals, RoundKey, Sums
from fedminmax.methods.card import FITS, KEEP, OURS, SAFE_RATE, MethodCard, Over, Pace, Weights
from fedminmax.methods.method import RowWeights
from fedminmax.methods.shared.checks import check_whole
from fedminmax.methods.shared.fits import (
    HedgedFitsState,
    check_fits,
    hedge,
    order_step,
    start_hedging,
)
from fedminmax.methods.shared.replies import uniform_weights, weigh_by_group


@MethodCard(
    key="oracle-minimax",
    paper="Chen, Lucier, Singer, Syrgkanis, NeurIPS 2017",
    optimises="worst group's risk of a mixture of weighted fits",
    over=Over.GROUPS,
    pace=Pace.ONE_STEP,
    minimax=True,
    weights=Weights.GROUPS,
    sources=SAFE_RATE | FITS | KEEP | {"fits": OURS},
    mixes_fits=True,
)
@dataclass(frozen=True)
class OracleMinimax:
    """Multiplicative weights with the rate for a planned number of fits."""

    fits: int = 100
    learning_rate: float | None = None
    _: KW_ONLY
    fit_rounds: int = 20
    warm_start: bool = True
    keep_share: float = 0.0
    name: str = "OracleMinimax"
    output: Iterate = Iterate.LAST
    reveals: Reveals = field(default=Reveals.SUMS, init=False)

    def __post_init__(self) -> None:
        check_whole(self.name, minimum=1, fits=self.fits)
        check_fits(self.name, self.learning_rate, self.fit_rounds, self.keep_share)

    def init(self, parameters: Tensor, census: Census) -> HedgedFitsState:
        """The weights start uniform."""
        return start_hedging(parameters, uniform_weights(census), census, self.keep_share)

    def order(self, state: HedgedFitsState, key: RoundKey) -> Order:
        """Broadcast the model of the current fit and its weights."""
        return order_step(key, state.parameters, state.weights, state.fits)

    def weigh(self, order: Order, sites: Tensor, counts: Tensor) -> RowWeights:
        """Weigh every row by its group."""
        return weigh_by_group(order, sites, counts)

    def update(self, state: HedgedFitsState, total: Sums) -> HedgedFitsState:
        """Continue the fit, or end it and update the A included groups' weights with eta."""
        return hedge(
            state,
            total,
            rate=math.sqrt(math.log(int(state.fits.included.sum())) / (2 * self.fits)),
            fit_rounds=self.fit_rounds,
            warm_start=self.warm_start,
        )
