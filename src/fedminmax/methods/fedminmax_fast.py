"""FedMinMaxFast: the minimax over groups in a handful of rounds, by looking ahead.

The objective is that of Papadaki et al. 2021 (see ``fedminmax``), with a ridge m/2 |theta|^2 if
wanted: min over theta of max_a r_a(theta). Holders return loss, gradient and curvature sums by
group. With them the server knows a quadratic model of every group's risk and goes to the lowest
point of the highest model: the weights are those that will be right after the step, not those
that would have been right before it. A trust region in the manner of Levenberg and Marquardt (More:
The Levenberg-Marquardt algorithm, 1978) makes the steps safe for every data set with the same
settings: a step that fails costs one round, never the run. Squared error is its own model: one
round of sums is the whole problem.

For linear models of cross-entropy or squared error with a ridge, the sums also prove a lower bound
(see ``core.certificate``).

| symbol         | name                            |
|----------------|---------------------------------|
| theta          | state.parameters, the next try  |
| best theta     | state.best                      |
| mu             | state.weights                   |
| r, g, H        | state.risks, slopes, curvature  |
| m              | ridge                           |
| epsilon        | epsilon                         |
"""

import math
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from fedminmax.core.certificate import Cuts, cuts_at, lower_bound
from fedminmax.core.errors import InputError
from fedminmax.core.group_sums import linear_group_sums
from fedminmax.core.iterates import Iterate
from fedminmax.core.linear_structure import LinearStructure
from fedminmax.core.max_of_quadratics import Quadratics, highest_mix, minimise_max
from fedminmax.core.messages import Census, Moment, Order, Reveals, Sums, zero_sums
from fedminmax.core.workspace import Workspace
from fedminmax.methods.checks import check_floor, check_not_negative
from fedminmax.methods.expected_reply import ExpectedReply, Sender
from fedminmax.methods.method import Holder

# Numbers of second derivatives that a server keeps: 160 MB.
MAX_CURVATURE = 20_000_000
# A step is good if the worst risk falls by half of what the models promised, and fails below a
# tenth.
GOOD, FAIR = 0.5, 0.1
FIRST_DAMPING = 1e-3
LEAST_DAMPING, MOST_DAMPING = 1e-12, 1e12
DAMPING_FACTOR = 10.0
ROUNDS_OF_CUTS = 3


@dataclass(frozen=True, eq=False)
class FedMinMaxFastState:
    """The next try, the best model so far with what is known there, and the bounds.

    ``damping`` is the trust region's, relative to ``scale``, the largest curvature seen of each
    parameter. ``promised`` is the fall that the models expect of the next try. ``cuts`` are lines
    below the risks: constant and slope. ``upper`` and ``lower`` bound the game's value; lower is
    minus infinity where nothing is proved.
    """

    parameters: Tensor
    weights: Tensor
    best: Tensor
    structure: LinearStructure
    group_counts: Tensor
    risks: Tensor
    slopes: Tensor
    curvature: Tensor
    scale: Tensor
    cuts: Tensor
    damping: float
    promised: float
    upper: float
    lower: float
    rounds: int

    @property
    def selected(self) -> Tensor:
        """The model with the lowest worst risk so far; for squared error the next one is known."""
        known = self.structure.is_quadratic and self.rounds > 0
        return (self.parameters if known else self.best).unsqueeze(0)


@dataclass(frozen=True)
class FedMinMaxFast:
    """Second-order minimax for linear models; there is no learning rate to choose."""

    ridge: float = 0.0
    epsilon: float = 0.0
    name: str = "FedMinMaxFast"
    output: Iterate = Iterate.LAST
    reveals: Reveals = field(default=Reveals.SUMS, init=False)
    learning_rate: float = field(default=1.0, init=False)
    sums_over_rows: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        check_not_negative(self.name, ridge=self.ridge, epsilon=self.epsilon)

    def init(self, parameters: Tensor, census: Census) -> FedMinMaxFastState:
        """Nothing is known yet: the first round asks for the sums of the model as it is."""
        check_floor(self.name, self.epsilon, census.groups, "groups")
        structure = census.linear
        if structure is None:
            raise InputError(
                f"{self.name} needs one linear layer and the Brier, cross-entropy or squared-error "
                "loss; use FedMinMax for other models"
            )
        groups, numbers = census.groups, structure.free_numbers
        if groups * numbers**2 > MAX_CURVATURE:
            raise InputError(
                f"{self.name}: {groups} groups x {numbers:,}^2 second derivatives are more than "
                f"{MAX_CURVATURE:,}; use fewer features or FedMinMax"
            )
        # A common shift of all outputs changes no prediction, and would cost ridge.
        start = structure.from_free(structure.to_free(parameters)).to(parameters)
        new = torch.zeros(groups, dtype=torch.float64).new_zeros
        return FedMinMaxFastState(
            parameters=start,
            weights=census.group_shares,
            best=start,
            structure=structure,
            group_counts=census.counts.sum(dim=0),
            risks=new(groups),
            slopes=new(groups, numbers),
            curvature=new(groups, structure.curvature_numbers),
            scale=new(numbers),
            cuts=new(0, numbers + 1),
            damping=FIRST_DAMPING,
            promised=0.0,
            upper=float("inf"),
            lower=-float("inf"),
            rounds=0,
        )

    def order(self, state: FedMinMaxFastState, moment: Moment) -> Order:
        """Broadcast the next try; holders need no weights."""
        return Order(moment, state.parameters, torch.zeros(0, dtype=torch.float64))

    def local(self, order: Order, holder: Holder, workspace: Workspace) -> Sums:
        """Return loss, gradient and curvature sums by group at the broadcast model."""
        if workspace.linear is None:
            raise InputError(f"{self.name}: the holder's model is not linear")
        rows = holder.examples
        sums = linear_group_sums(workspace.linear, order.parameters, rows, holder.groups)
        return replace(
            zero_sums(0, holder.groups, 0),
            step=sums.gradients.flatten(),
            scale=1.0,
            group_loss=sums.losses,
            group_count=torch.bincount(rows.group, minlength=holder.groups).cpu(),
            statistics=sums.curvature.flatten(),
            gradient_evaluations=len(rows),
        )

    def expected(self, order: Order, sender: Sender, reply: Sums) -> ExpectedReply:
        """Expect sums over all rows; the squares of the groups' gradients add up to the reach's."""
        groups = len(sender.counts)
        total = reply.group_loss.sum()
        squares = sender.limits.squared_slopes(torch.tensor(sender.rows), total)
        anything = torch.full((len(reply.statistics),), math.inf, dtype=torch.float64)
        return ExpectedReply(
            numbers=groups * len(order.parameters),
            scale=1.0,
            rows=sender.rows,
            evaluations=sender.rows,
            reach=math.sqrt(float(squares)),
            least=-anything,
            most=anything,
        )

    def update(self, state: FedMinMaxFastState, total: Sums) -> FedMinMaxFastState:
        """Keep the try if the worst risk fell as promised; then look ahead from the best model."""
        tried = self._with_bounds(self._told(state, total), total)
        before, now = self._worst(state.risks), self._worst(tried.risks)
        first = state.rounds == 0
        gain = 1.0 if first else (before - now) / max(state.promised, 1e-300)
        if first or now < before:
            state = replace(tried, best=state.parameters)
        else:
            state = replace(state, cuts=tried.cuts, lower=tried.lower)
        state = replace(state, rounds=tried.rounds)
        nothing = state.structure.risk_of_nothing
        if first and now > nothing:
            # Rows with outputs far off have no curvature left to go by: 0 is the better start.
            start = torch.zeros_like(state.parameters)
            return replace(state, parameters=start, promised=now - nothing)
        return self._look_ahead(state, gain)

    def _told(self, state: FedMinMaxFastState, total: Sums) -> FedMinMaxFastState:
        """Return what is known at the try; a group that nobody told of keeps its last word."""
        structure, seen = state.structure, total.group_count > 0
        point = structure.to_free(state.parameters)
        rows = total.group_count[seen].double()
        before = (state.risks, state.slopes, state.curvature)
        risks, slopes, curvature = (known.clone() for known in before)
        risks[seen] = total.group_loss[seen] / rows + 0.5 * self.ridge * point @ point
        gradients = total.step.double().reshape(len(seen), -1)
        slopes[seen] = structure.to_free(gradients[seen]) / rows[:, None] + self.ridge * point
        packed = total.statistics.reshape(len(seen), -1)
        curvature[seen] = packed[seen] / rows[:, None]
        return replace(
            state, risks=risks, slopes=slopes, curvature=curvature, rounds=state.rounds + 1
        )

    def _with_bounds(self, tried: FedMinMaxFastState, total: Sums) -> FedMinMaxFastState:
        """Add what a round of all rows proves."""
        if not torch.equal(total.group_count.cpu(), tried.group_counts):
            return tried
        upper = min(tried.upper, self._worst(tried.risks))
        if self.ridge == 0.0 or not tried.structure.is_convex:
            return replace(tried, upper=upper)
        point = tried.structure.to_free(tried.parameters)
        new = cuts_at(point, tried.risks, tried.slopes, self.ridge)
        lines = torch.cat([new.constants[:, None], new.slopes], dim=1)
        # With a floor on the weights, only a cut per group of one point proves something.
        kept = 0 if self.epsilon else (ROUNDS_OF_CUTS - 1) * len(lines)
        cuts = torch.cat([lines, tried.cuts[:kept]])
        bound = lower_bound(Cuts(cuts[:, 0], cuts[:, 1:]), self.ridge, self.epsilon)
        return replace(tried, cuts=cuts, upper=upper, lower=max(tried.lower, bound))

    def _look_ahead(self, state: FedMinMaxFastState, gain: float) -> FedMinMaxFastState:
        """Choose the next try, from the best model, within a trust region that fits the gain."""
        factor = 1.0 / DAMPING_FACTOR if gain >= GOOD else 1.0 if gain >= FAIR else DAMPING_FACTOR
        damping = min(max(state.damping * factor, LEAST_DAMPING), MOST_DAMPING)
        structure = state.structure
        curvatures = structure.free_curvature(state.curvature)
        curvatures.diagonal(dim1=1, dim2=2).add_(self.ridge)
        diagonal = (state.weights[:, None] * curvatures.diagonal(dim1=1, dim2=2)).sum(dim=0)
        scale = torch.maximum(state.scale, diagonal)
        functions = Quadratics(state.risks, state.slopes, curvatures)
        # A column that is 0 throughout has no curvature of its own.
        least = 1e-12 * float(scale.max())
        region = (0.0 if structure.is_quadratic else damping) * scale + least
        lowest = minimise_max(functions, region, state.weights, self.epsilon)
        while lowest.value < max(state.lower, 0.0) and not structure.is_quadratic:
            # No model is that good: the promise is beyond where the quadratics hold.
            damping *= DAMPING_FACTOR
            lowest = minimise_max(functions, damping * scale + least, state.weights, self.epsilon)
        point = structure.to_free(state.best) + lowest.step
        return replace(
            state,
            parameters=structure.from_free(point).to(state.best),
            weights=lowest.weights,
            scale=scale,
            damping=damping,
            promised=self._worst(state.risks) - lowest.value,
        )

    def _worst(self, risks: Tensor) -> float:
        return highest_mix(risks, self.epsilon)
