"""Fits to weighted group risks, one after another, and the mixture of all of them.

The centralized minimax papers alternate between fitting a model to fixed group weights, which they
ask of an oracle, and moving the weights by the risks of the fitted model. Over a federation, one
outer step is ``fit_rounds`` rounds of full-batch gradient steps with the weights fixed, and one
round of evaluation: the risks that arrive with the first step after the fit are the fitted model's,
and that step is not taken. They are risks of the training rows of the holders that take part in
that round. With one holder this is the centralized algorithm, with gradient descent as its oracle.

| symbol              | name                     |
|---------------------|--------------------------|
| theta^0             | fits.start               |
| rho                 | fits.group_shares        |
| t - 1 (outer steps) | fits.done                |

``hedge`` fits against exponential weights. Freund, Schapire: Adaptive game playing using
multiplicative weights, Games and Economic Behavior 1999: if one player moves its weights mu_a in
proportion to mu_a exp(eta r_a) and the other answers each time with its best response, the uniform
mixture of the answers approaches the minimax value. Two papers on fair learning do this, with
different starts and rates. The mixture keeps every fitted model: m fits of a model with d
parameters take m * d numbers.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedminmax.core.messages import Census, Order, RoundKey, Sums, descend
from fedminmax.methods.group_term import tilted_weights
from fedminmax.methods.shared.checks import check_rate, check_whole


@dataclass(frozen=True, eq=False)
class Fits:
    """Where the fits stand: gradient steps of the present one, and how many are done.

    ``playable`` are the groups whose weights may move (see ``shared.replies``).
    """

    start: Tensor
    group_shares: Tensor
    playable: Tensor
    steps: int
    done: int


def check_fits(method: str, learning_rate: float | None, fit_rounds: int) -> None:
    """Refuse settings with which there is no fit."""
    check_rate(method, learning_rate)
    check_whole(method, least=1, fit_rounds=fit_rounds)


def no_fits(parameters: Tensor, census: Census) -> Fits:
    """Before the first step of the first fit."""
    return Fits(parameters, census.group_shares, census.playable, steps=0, done=0)


def order_step(key: RoundKey, parameters: Tensor, weights: Tensor, fits: Fits) -> Order:
    """Broadcast theta and mu / rho, with mu scaled to sum 1.

    A common factor of the weights does not move the minimum, only the length of the steps.
    """
    return Order(key, parameters, weights / weights.sum() / fits.group_shares)


def max_members(method: object, rounds: int) -> int:
    """How many models the answer of so many rounds may mix: one per fit, else a single one.

    >>> max_members(object(), 100)
    1
    """
    fit_rounds = getattr(method, "fit_rounds", None)
    return 1 if fit_rounds is None else max(rounds // (int(fit_rounds) + 1), 1)


def is_evaluation(fits: Fits, fit_rounds: int) -> bool:
    """Return whether the model that entered this round is a finished fit."""
    return fits.steps == fit_rounds


def after_step(fits: Fits) -> Fits:
    """One more gradient step of the present fit."""
    return replace(fits, steps=fits.steps + 1)


def after_fit(fits: Fits) -> Fits:
    """One more fit; the next one has not begun."""
    return replace(fits, steps=0, done=fits.done + 1)


def next_start(fitted: Tensor, fits: Fits, *, warm: bool) -> Tensor:
    """Return where the next fit begins: at the fitted model, or at theta^0 again."""
    return fitted if warm else fits.start


def no_members(parameters: Tensor) -> Tensor:
    """Return a mixture without models, [0, d]."""
    return parameters.new_zeros(0, parameters.numel())


def with_member(members: Tensor, fitted: Tensor) -> Tensor:
    """Add a model to a mixture: [m, d] becomes [m + 1, d]."""
    return torch.cat([members, fitted.unsqueeze(0)])


def mixture_so_far(members: Tensor, parameters: Tensor) -> Tensor:
    """Return the mixture; while it has no member yet, the present model in its place."""
    return members if len(members) else parameters.unsqueeze(0)


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
