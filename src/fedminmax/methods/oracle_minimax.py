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
from dataclasses import KW_ONLY, dataclass

from torch import Tensor

from fedminmax.core.messages import Census, Sums
from fedminmax.methods.card import FITS, KEEP, OURS, SAFE_RATE, MethodCard, Over, Pace, Weights
from fedminmax.methods.shared.checks import check_whole
from fedminmax.methods.shared.fits import HedgedFitsState, WeightedFits, start_hedging
from fedminmax.methods.shared.replies import uniform_weights


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
class OracleMinimax(WeightedFits):
    """Multiplicative weights with the rate for a planned number of fits."""

    fits: int = 100
    _: KW_ONLY
    keep_share: float = 0.0
    name: str = "OracleMinimax"

    def __post_init__(self) -> None:
        check_whole(self.name, minimum=1, fits=self.fits)
        self.check_fits(self.name, self.keep_share)

    def init(self, parameters: Tensor, census: Census) -> HedgedFitsState:
        """The weights start uniform."""
        return start_hedging(parameters, uniform_weights(census), census, self.keep_share)

    def update(self, state: HedgedFitsState, total: Sums) -> HedgedFitsState:
        """Continue the fit, or end it and update the A included groups' weights with eta."""
        groups = int(state.fits.included.sum())
        return self.hedge(state, total, math.sqrt(math.log(groups) / (2 * self.fits)))
