"""Successive fits to weighted group risks, and the mixture of all of them.

The centralized minimax papers alternate between fitting a model to fixed group weights by an
oracle, and updating the weights by the risks of the fitted model. Over a federation, one outer step
is ``fit_rounds`` rounds of full-batch gradient steps with fixed weights, and one round of
evaluation: the risks that arrive with the first step after the fit are the fitted model's, and that
step is not taken. They are risks on the training rows of that round's participants. With one site
this is the centralized algorithm, with gradient descent as its oracle.

| symbol              | name                     |
|---------------------|--------------------------|
| theta^0             | fits.start               |
| rho                 | fits.group_shares        |
| t - 1 (outer steps) | fits.done                |

``hedge`` fits against exponential weights. Freund, Schapire: Adaptive game playing using
multiplicative weights, Games and Economic Behavior 1999: if one player moves its weights mu_a in
proportion to mu_a exp(eta r_a) and the other always plays its best response, the uniform mixture of
the responses approaches the minimax value. Two papers on fair learning do this, with
different starts and rates. The mixture keeps every fitted model: m fits of a model with d
parameters take m * d numbers.

With ``keep_share`` k, groups keep k rho_a, and the game is about what weights are above that: the
responses are then to k times the mean risk plus the rest times the worst one.
"""

from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Protocol

import torch
from torch import Tensor

from fedminmax.core.iterates import Iterate
from fedminmax.core.messages import Census, Order, Reveals, RoundKey, Sums, descend
from fedminmax.core.solvers.simplex import FixedShares, tilted_weights
from fedminmax.methods.method import RowWeights
from fedminmax.methods.shared.checks import check_keep_share, check_rate, check_whole
from fedminmax.methods.shared.replies import weigh_by_group


@dataclass(frozen=True, eq=False)
class Fits:
    """The progress of the fits: gradient steps of the current one, and how many are done.

    ``included`` are the groups whose weights may change (see ``shared.replies``), and ``kept`` is
    what each group's weight is at least.
    """

    start: Tensor
    group_shares: Tensor
    included: Tensor
    kept: Tensor
    steps: int
    done: int

    def after_step(self) -> "Fits":
        """Count one more gradient step of the current fit."""
        return replace(self, steps=self.steps + 1)

    def after_fit(self) -> "Fits":
        """Count one more fit; the next one has not begun."""
        return replace(self, steps=0, done=self.done + 1)


class FittingState(Protocol):
    """The state of a method that fits models to weights of the groups."""

    @property
    def parameters(self) -> Tensor:
        """The model of the current fit."""
        ...

    @property
    def weights(self) -> Tensor:
        """The groups' weights, mu; their sum may be any number."""
        ...

    @property
    def fits(self) -> Fits:
        """The progress of the fits."""
        ...


@dataclass(frozen=True)
class WeightedFits:
    """What methods with weighted fits share.

    Args:
        learning_rate: of the gradient steps; None is one that is safe for the rows.
        fit_rounds: gradient steps of a fit.
        warm_start: whether the next fit starts from the last one, or from theta^0 again.
        output: not used; the result is chosen, or mixed, by the method itself.
    """

    _: KW_ONLY
    learning_rate: float | None = None
    fit_rounds: int = 20
    warm_start: bool = True
    output: Iterate = Iterate.LAST
    reveals: Reveals = field(default=Reveals.SUMS, init=False)

    def check_fits(self, name: str, keep_share: float = 0.0) -> None:
        """Refuse invalid settings of the method with this name."""
        check_rate(name, self.learning_rate)
        check_whole(name, minimum=1, fit_rounds=self.fit_rounds)
        check_keep_share(name, keep_share)

    def order(self, state: FittingState, key: RoundKey) -> Order:
        """Broadcast theta and mu / rho, with mu scaled to sum 1.

        A common factor of the weights does not change the minimum, only the length of the steps.
        """
        weights = state.weights / state.weights.sum()
        return Order(key, state.parameters, weights / state.fits.group_shares)

    def weigh(self, order: Order, sites: Tensor, counts: Tensor) -> RowWeights:
        """Weigh every row by its group."""
        return weigh_by_group(order, sites, counts)

    def is_evaluation(self, state: FittingState) -> bool:
        """Return whether the model that entered this round is a finished fit."""
        return state.fits.steps == self.fit_rounds

    def next_start(self, state: FittingState) -> Tensor:
        """Return the start of the next fit: the fitted model, or theta^0 again."""
        return state.parameters if self.warm_start else state.fits.start

    def hedge(self, state: "HedgedFitsState", total: Sums, rate: float) -> "HedgedFitsState":
        """Take a step of the fit; a finished one is kept, and its risks update the weights."""
        if not self.is_evaluation(state):
            return replace(
                state, parameters=descend(state.parameters, total), fits=state.fits.after_step()
            )
        return HedgedFitsState(
            self.next_start(state),
            exponentiate(
                state.weights,
                total.group_risks,
                (total.group_count > 0) & state.fits.included,
                rate,
                state.fits.kept,
            ),
            state.fits.after_fit(),
            with_member(state.members, state.parameters),
        )


def initial_fits(parameters: Tensor, census: Census, keep_share: float = 0.0) -> Fits:
    """Return the progress before the first step of the first fit."""
    shares, included = census.group_shares, census.included
    kept = FixedShares(shares, included, keep_share).kept
    return Fits(parameters, shares, included, kept, steps=0, done=0)


def no_members(parameters: Tensor) -> Tensor:
    """Return an empty mixture, [0, d]."""
    return parameters.new_zeros(0, parameters.numel())


def with_member(members: Tensor, fitted: Tensor) -> Tensor:
    """Add a model to a mixture: [m, d] becomes [m + 1, d]."""
    return torch.cat([members, fitted.unsqueeze(0)])


def mixture_so_far(members: Tensor, parameters: Tensor) -> Tensor:
    """Return the mixture, or the current model while it is empty."""
    return members if len(members) else parameters.unsqueeze(0)


@dataclass(frozen=True, eq=False)
class HedgedFitsState:
    """The model of the current fit, mu, the progress of the fits, all fitted models [m, d]."""

    parameters: Tensor
    weights: Tensor
    fits: Fits
    members: Tensor

    @property
    def selected(self) -> Tensor:
        """The uniform mixture of all fitted models; before the first one, the current model."""
        return mixture_so_far(self.members, self.parameters)


def start_hedging(
    parameters: Tensor, weights: Tensor, census: Census, keep_share: float
) -> HedgedFitsState:
    """Return the state before the first fit, with these weights but for what groups keep."""
    fits = initial_fits(parameters, census, keep_share)
    weights = torch.lerp(weights, census.group_shares, keep_share)
    return HedgedFitsState(parameters, weights, fits, no_members(parameters))


def exponentiate(weights: Tensor, risks: Tensor, seen: Tensor, rate: float, kept: Tensor) -> Tensor:
    """Make weights proportional to ``weights * exp(rate * risks)`` among the groups ``seen``.

    A missing group keeps its weight exactly, and the others share the mass that they had. It is
    about what weights are above ``kept``.

    >>> import torch
    >>> weights = torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64)
    >>> risks = torch.tensor([float("nan"), 0.0, 1e6], dtype=torch.float64)
    >>> exponentiate(weights, risks, ~risks.isnan(), 1.0, 0.0 * weights).tolist()
    [0.5, 0.0, 0.5]
    >>> exponentiate(weights, risks, ~risks.isnan(), 1.0, 0.5 * weights).tolist()
    [0.5, 0.125, 0.375]
    """
    above = (weights - kept)[seen]
    mass = above.sum()
    if float(mass) == 0.0:
        return weights
    moved = weights.clone()
    moved[seen] = kept[seen] + mass * tilted_weights(above, risks[seen], rate)
    return moved
