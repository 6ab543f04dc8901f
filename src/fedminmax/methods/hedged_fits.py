"""Fits against exponential weights, and the mixture of all of them.

Freund, Schapire: Adaptive game playing using multiplicative weights, Games and Economic Behavior
1999: if one player moves its weights mu_a in proportion to mu_a exp(eta r_a) and the other answers
each time with its best response, the uniform mixture of the answers approaches the minimax value.
Two papers on fair learning do this, with different starts and rates.

The mixture keeps every fitted model: m fits of a model with d parameters take m * d numbers.
"""

from dataclasses import dataclass, replace

from torch import Tensor

from fedminmax.core.messages import Census, Sums, descend
from fedminmax.methods.group_term import tilted_weights
from fedminmax.methods.weighted_fits import (
    Fits,
    after_fit,
    after_step,
    is_evaluation,
    mixture_so_far,
    next_start,
    no_fits,
    no_members,
    with_member,
)


@dataclass(frozen=True, eq=False)
class HedgedFitsState:
    """The model of the present fit, mu, where the fits stand, and all fitted models [m, d]."""

    parameters: Tensor
    weights: Tensor
    fits: Fits
    members: Tensor

    @property
    def selected(self) -> Tensor:
        """The uniform mixture of all fitted models; before the first one, the present model."""
        return mixture_so_far(self.members, self.parameters)


def start_hedging(parameters: Tensor, weights: Tensor, census: Census) -> HedgedFitsState:
    """Before the first fit, with these weights."""
    return HedgedFitsState(parameters, weights, no_fits(parameters, census), no_members(parameters))


def hedge(
    state: HedgedFitsState, total: Sums, *, rate: float, fit_rounds: int, warm_start: bool
) -> HedgedFitsState:
    """Take a step of the fit; if it is finished, keep it and move the weights by its risks."""
    if not is_evaluation(state.fits, fit_rounds):
        return replace(
            state, parameters=descend(state.parameters, total), fits=after_step(state.fits)
        )
    return HedgedFitsState(
        next_start(state.parameters, state.fits, warm=warm_start),
        exponentiate(
            state.weights,
            total.group_risks,
            (total.group_count > 0) & state.fits.playable,
            rate,
        ),
        after_fit(state.fits),
        with_member(state.members, state.parameters),
    )


def exponentiate(weights: Tensor, risks: Tensor, seen: Tensor, rate: float) -> Tensor:
    """Move weights in proportion to ``weights * exp(rate * risks)``, only among groups seen.

    A group not seen keeps its weight exactly, and the others share the mass that they had.

    >>> import torch
    >>> weights = torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64)
    >>> risks = torch.tensor([float("nan"), 0.0, 1e6], dtype=torch.float64)
    >>> exponentiate(weights, risks, ~risks.isnan(), 1.0).tolist()
    [0.5, 0.0, 0.5]
    """
    mass = weights[seen].sum()
    if float(mass) == 0.0:
        return weights
    moved = weights.clone()
    moved[seen] = mass * tilted_weights(weights[seen], risks[seen], rate)
    return moved
