"""FedSRCVaR: no large part of the records does badly, whoever is in it; no group is named.

Papadaki, Martinez, Bertran, Sapiro, Rodrigues: Federated fairness without access to sensitive
groups, arXiv 2402.14929, 2024. With L the loss of a record, they minimise the relaxed conditional
value at risk

    J = (1 - epsilon) (c + E[(L - c)+] / rho) + epsilon E[L]    over the model theta and c.

At the best c, J is epsilon times the mean risk plus 1 - epsilon times the mean loss of the share
rho of the records that fares worst. So no group that has at least this share of the records has a
higher mean loss than these do, whatever defines the group. rho = 1 or epsilon = 1 is the mean risk.
A site needs no sensitive attribute, and J is convex if the loss is.

Sites return sums: of the losses above c, of how many records are there, and of gradients, in which
those weigh more. (u)+ is smoothed within tau of 0, to (u + tau)^2 / (4 tau), which adds at most
(1 - epsilon) tau / (4 rho) to J. The server, which is ours, minimises over theta and c together by
steps with a limited memory (Liu, Nocedal: On the limited memory BFGS method, Mathematical
Programming 1989), of additive and linear models in the metric of the mean risk's second
derivatives, which the first round brings. A candidate that does not lower J enough is followed by a
shorter step (Armijo's rule). In a convex J with a ridge m > 0, no model is better than the best one
by more than |dJ/dtheta|^2 / (2 m) + |dJ/dc| max(c, J / s - c) with s = 1 - epsilon + epsilon rho: a
share rho of the records has at least the best c as loss, so that J is at least s times it; and the
best c is not negative, both up to tau.

| symbol  | name                       |
|---------|----------------------------|
| rho     | share                      |
| epsilon | keep_share                 |
| tau     | smoothing                  |
| c       | the last entry of a point  |
| m       | state.linear.ridge         |
| s       | state.least_share          |
"""

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import ClassVar

import torch
from torch import Tensor

from fedminmax.core.additive.sums import coded_group_sums
from fedminmax.core.iterates import Iterate
from fedminmax.core.linear_structure import LinearStructure
from fedminmax.core.messages import Census, Order, Reveals, RoundKey, Sums, zero_sums
from fedminmax.core.one_step import evaluation_losses, linear_group_sums, weighted_gradient
from fedminmax.core.validation import MEAN, Judge
from fedminmax.core.workspace import Workspace
from fedminmax.methods.card import GAP, OURS, MethodCard, Over, Pace
from fedminmax.methods.method import SiteData
from fedminmax.methods.shared.checks import check_not_negative, check_positive, check_share
from fedminmax.methods.shared.expected_reply import (
    ExpectedReply,
    Sender,
    curvature_limits,
    layout_of,
)
from fedminmax.methods.shared.replies import NO_WEIGHTS, sum_by_group
from fedminmax.methods.shared.second_order_state import second_order_fits

DEFAULT_GAP, MEMORY = 1e-4, 20
# Armijo's rule: a step must lower J by this part of what its slope promises, or it is shortened.
PROMISED, SHORTER = 1e-4, 0.3
# A step this much shorter lowers J no more than rounding does; steps with less curvature, relative
# to both lengths, teach nothing.
SHORTEST, MIN_CURVATURE = 1e-9, 1e-10
# Added to the metric, relative to its largest diagonal entry, where nothing bends.
MIN_METRIC = 1e-5
# The sums over the tail; second derivatives follow, if the order has a second weight.
STATISTICS = 2


@dataclass(frozen=True, eq=False)
class FedSRCVaRState:
    """The candidate that is sent next, and the best point so far.

    A point is the model and c in one vector, in float64; a linear model in its free coordinates.
    ``steps`` and ``turns`` [k, f + 1] are the last steps and changes of gradient. ``metric`` is the
    Cholesky factor of the first round's second derivatives [f, f], empty if there are none.
    ``length`` is the part of ``direction`` that the candidate takes; 0 means that it is a new
    start. ``value`` is infinite before one was measured.
    """

    parameters: Tensor
    candidate: Tensor
    _: KW_ONLY
    best: Tensor
    gradient: Tensor
    direction: Tensor
    steps: Tensor
    turns: Tensor
    metric: Tensor
    value: float
    length: float
    rounds: int
    counts: Tensor
    linear: LinearStructure | None
    least_share: float
    smoothing: float

    @property
    def weights(self) -> Tensor:
        """No adversary over groups."""
        return NO_WEIGHTS

    @property
    def selected(self) -> Tensor:
        """The model with the lowest J so far, as the only row."""
        if math.isinf(self.value):
            return self.parameters.unsqueeze(0)
        return _model_at(self, self.best).unsqueeze(0)

    @property
    def certificate(self) -> None:
        """The bound is about J, not about named groups."""
        return

    @property
    def remaining(self) -> float | None:
        """The possible relative improvement of J; None where nothing is known."""
        linear = self.linear
        if linear is None or not linear.is_convex or not linear.ridge or math.isinf(self.value):
            return None
        slope, threshold, slack = self.gradient[:-1], float(self.best[-1]), self.smoothing
        reach = max(threshold + slack, (self.value + slack) / self.least_share - threshold)
        fall = float(slope @ slope) / (2.0 * linear.ridge) + abs(float(self.gradient[-1])) * reach
        return min(fall / self.value, 1.0) if self.value > 0 else 0.0


@MethodCard(
    key="fedsrcvar",
    paper="Papadaki, Martinez, Bertran, Sapiro, Rodrigues 2024, with a server of ours",
    optimises="worst-off share of the records, whoever is in it",
    over=Over.ROWS,
    pace=Pace.LOOK_AHEAD,
    minimax=True,
    sources=GAP | dict.fromkeys(("share", "keep_share", "smoothing", "learning_rate"), OURS),
)
@dataclass(frozen=True)
class FedSRCVaR:
    """Minimise the mean loss of the worst-off ``share`` of the records; no group is needed.

    Args:
        share: the smallest part of the records that is protected, rho.
        keep_share: how much the mean risk over all records counts, epsilon.
        smoothing: how far from the threshold losses are smoothed, tau.
        learning_rate: of the first step without second derivatives; the server chooses the others.
        optimality_gap: when to stop: the possible relative improvement; 0 runs all rounds.
    """

    share: float = 0.5
    _: KW_ONLY
    keep_share: float = 0.0
    smoothing: float = 0.01
    learning_rate: float = 0.1
    optimality_gap: float = field(default=DEFAULT_GAP, repr=False)
    output: Iterate = Iterate.LAST
    reveals: Reveals = field(default=Reveals.SUMS, init=False)
    # Losses by group do not show which records fare worst.
    judge: ClassVar[Judge] = MEAN

    def __post_init__(self) -> None:
        check_share("FedSRCVaR", share=self.share)
        if self.keep_share:
            check_share("FedSRCVaR", keep_share=self.keep_share)
        check_positive("FedSRCVaR", smoothing=self.smoothing, learning_rate=self.learning_rate)
        check_not_negative("FedSRCVaR", optimality_gap=self.optimality_gap)

    @property
    def name(self) -> str:
        """The name in tables, with rho."""
        return f"FedSRCVaR (share={self.share:g})"

    @property
    def tail_weight(self) -> float:
        """How much more a record above the threshold weighs than one below it."""
        return (1.0 - self.keep_share) / self.share

    def init(self, parameters: Tensor, census: Census) -> FedSRCVaRState:
        """The first round measures the mean loss of the initial model, the first threshold."""
        linear = census.linear
        model = linear.to_free(parameters.detach()) if linear else parameters.detach().double()
        point = torch.cat([model.cpu(), torch.zeros(1).double()])
        nothing = point[None, :][:0]
        state = FedSRCVaRState(
            parameters,
            point,
            best=point,
            gradient=torch.zeros_like(point),
            direction=torch.zeros_like(point),
            steps=nothing,
            turns=nothing,
            metric=nothing[:, :-1],
            value=math.inf,
            length=0.0,
            rounds=0,
            counts=census.counts.sum(dim=0),
            linear=linear,
            least_share=1.0 - self.keep_share + self.keep_share * self.share,
            smoothing=self.smoothing,
        )
        return replace(state, parameters=_model_at(state, point))

    def order(self, state: FedSRCVaRState, key: RoundKey) -> Order:
        """Broadcast the candidate and its threshold; the first round asks for curvature, too."""
        threshold = state.candidate[-1:]
        if state.rounds == 0 and second_order_fits(state.linear, 1):
            threshold = torch.cat([threshold, torch.ones_like(threshold)])
        return Order(key, state.parameters, threshold)

    def is_done(self, state: FedSRCVaRState) -> bool:
        """Return whether the possible improvement is within the gap; never for a gap of 0."""
        left = state.remaining
        return left is not None and left <= self.optimality_gap and self.optimality_gap > 0

    def local(self, order: Order, site: SiteData, workspace: Workspace) -> Sums:
        """Return the sums over this site's records."""
        return self.row_sums(order, site, [workspace])

    def row_sums(self, order: Order, site: SiteData, workspaces: Sequence[Workspace]) -> Sums:
        """Return the weighted gradient, losses by group, and the sums over the tail."""
        rows, chunk, first = site.examples, site.rows_per_chunk, workspaces[0]
        losses = evaluation_losses(workspaces, order.parameters, rows, chunk).double()
        tail, above = self._smooth(losses - float(order.weights[0]))
        row_weights = (self.keep_share + self.tail_weight * above).to(order.parameters)
        for workspace in workspaces:
            workspace.load(order.parameters)
        gradient, _ = weighted_gradient(workspaces, rows, row_weights, chunk)
        # The server adds the ridge, once for all records.
        penalty = first.ridge * float(row_weights.sum(dtype=torch.float64))
        statistics = [torch.stack([tail.sum(), above.sum()]).cpu()]
        if len(order.weights) > 1 and first.linear is not None:
            statistics.append(_curvature_of(order, site, first, first.linear))
        return replace(
            zero_sums(0, site.groups, 0),
            step=torch.sub(gradient, order.parameters, alpha=penalty).cpu(),
            scale=float(len(rows)),
            group_loss=sum_by_group(losses, site),
            group_count=torch.bincount(rows.group, minlength=site.groups).cpu(),
            statistics=torch.cat(statistics),
            gradient_evaluations=len(rows),
        )

    def _smooth(self, excess: Tensor) -> tuple[Tensor, Tensor]:
        """Return the smoothed (u)+ of each record, and its slope, which is between 0 and 1."""
        near = (excess + self.smoothing).clamp(min=0.0)
        bend = near.clamp(max=2.0 * self.smoothing)
        return bend.square() / (4.0 * self.smoothing) + (near - bend), bend / (2.0 * self.smoothing)

    def expected(self, order: Order, sender: Sender, reply: Sums) -> ExpectedReply:
        """Expect sums over all records; none has more than the tail's weight."""
        rows, losses = sender.rows, float(reply.group_loss.sum())
        squares = sender.limits.squared_slopes(torch.tensor(rows), reply.group_loss.sum())
        most = losses + rows * (max(-float(order.weights[0]), 0.0) + self.smoothing)
        upper, reported = torch.tensor([most, rows], dtype=torch.float64), None
        linear = layout_of(len(order.parameters), sender) if len(order.weights) > 1 else None
        if linear is not None:
            total = replace(sender, counts=sender.counts.sum(dim=0, keepdim=True))
            bent = replace(reply, statistics=reply.statistics[STATISTICS:])
            bends, reported = curvature_limits(linear, total, bent)
            upper = torch.cat([upper, bends])
        lower = torch.cat([torch.zeros(STATISTICS), -upper[STATISTICS:]])
        return ExpectedReply(
            numbers=len(order.parameters),
            scale=float(rows),
            rows=rows,
            evaluations=rows,
            reach=(self.keep_share + self.tail_weight) * math.sqrt(float(squares)),
            lower=lower,
            upper=upper,
            reported_curvature=reported,
            adds_up=True,
            by_loss=True,
        )

    def update(self, state: FedSRCVaRState, total: Sums) -> FedSRCVaRState:
        """Accept the candidate or shorten the step; sums that miss records only move the model."""
        value, gradient = self._measure(state, total)
        is_first, rows = state.rounds == 0, float(total.group_count.sum())
        state = replace(state, rounds=state.rounds + 1)
        if state.linear is not None and len(total.statistics) > STATISTICS:
            state = replace(state, metric=_metric_of(state.linear, total, rows))
        if not torch.equal(total.group_count.cpu(), state.counts):
            # J of other records cannot be compared: take a plain step, and begin anew from there.
            nothing, most = state.steps[:0], self.keep_share + self.tail_weight
            moved = replace(state, value=math.inf, steps=nothing, turns=nothing)
            step = _newton_like(moved, gradient, self.learning_rate) / most
            return _send(moved, state.candidate + step, length=0.0)
        if is_first:
            mean = total.group_loss.sum().double().cpu()[None] / rows
            return _send(state, torch.cat([state.candidate[:-1], mean]), length=0.0)
        return self._judge(state, value, gradient)

    def _measure(self, state: FedSRCVaRState, total: Sums) -> tuple[float, Tensor]:
        """Return J of the candidate and its gradient in the model and c, from a round's sums."""
        rows = float(total.group_count.sum())
        model, threshold = state.candidate[:-1], float(state.candidate[-1])
        ridge = state.linear.ridge if state.linear else 0.0
        tail, above = (total.statistics[:STATISTICS] / rows).tolist()
        value = (1.0 - self.keep_share) * threshold + self.tail_weight * tail
        value += self.keep_share * float(total.group_loss.sum()) / rows
        value += 0.5 * ridge * float(model @ model)
        slopes = total.step.double().cpu() / rows
        slopes = state.linear.to_free(slopes) if state.linear else slopes
        in_threshold = (1.0 - self.keep_share) - self.tail_weight * above
        last = torch.tensor([in_threshold], dtype=torch.float64)
        return value, torch.cat([slopes + ridge * model, last])

    def _judge(self, state: FedSRCVaRState, value: float, gradient: Tensor) -> FedSRCVaRState:
        """Go on from the candidate if J fell enough; else take less of the same step."""
        promised = state.length * float(state.gradient @ state.direction)
        if state.length > 0.0 and not value <= state.value + PROMISED * promised:
            length = SHORTER * state.length
            if length >= SHORTEST:
                return _send(state, state.best + length * state.direction, length=length)
            # What was remembered misleads: begin anew with the steepest descent.
            forgetful = replace(state, steps=state.steps[:0], turns=state.turns[:0])
            return self._step_from(forgetful, state.best, state.value, state.gradient)
        if state.length > 0.0:
            state = _remember(state, state.candidate - state.best, gradient - state.gradient)
        return self._step_from(state, state.candidate, value, gradient)

    def _step_from(
        self, state: FedSRCVaRState, best: Tensor, value: float, gradient: Tensor
    ) -> FedSRCVaRState:
        direction = _newton_like(state, gradient, self.learning_rate)
        known = replace(state, best=best, value=value, gradient=gradient, direction=direction)
        return _send(known, best + direction, length=1.0)


def _curvature_of(
    order: Order, site: SiteData, workspace: Workspace, linear: LinearStructure
) -> Tensor:
    """Return the packed second derivatives of the sum of all losses."""
    rows, groups, design = site.examples, site.groups, workspace.design
    if design is None:
        sums = linear_group_sums(linear, order.parameters, rows, groups)
        return sums.curvature.sum(dim=0)
    ones = torch.ones(groups, dtype=torch.float64)
    sums = coded_group_sums(linear, design, order.parameters, rows, groups, group_weights=ones)
    return sums.curvature[0]


def _metric_of(linear: LinearStructure, total: Sums, rows: float) -> Tensor:
    """Return the Cholesky factor of the mean risk's second derivatives, ridge included."""
    (bends,) = linear.free_curvature(total.statistics[None, STATISTICS:] / rows)
    bends.diagonal().add_(linear.ridge + MIN_METRIC * float(bends.diagonal().max()))
    factor: Tensor
    factor, failed = torch.linalg.cholesky_ex(bends)
    return factor if int(failed) == 0 else bends[:0]


def _model_at(state: FedSRCVaRState, point: Tensor) -> Tensor:
    """Return a point's model as parameters, in the model's precision."""
    model = point[:-1]
    return (state.linear.from_free(model) if state.linear else model).to(state.parameters)


def _send(state: FedSRCVaRState, point: Tensor, *, length: float) -> FedSRCVaRState:
    """Make this point the next candidate."""
    sent = _model_at(state, point)
    # Sites compute with what was sent, so the step is measured to there.
    model = state.linear.to_free(sent) if state.linear else sent.double()
    return replace(
        state, parameters=sent, candidate=torch.cat([model.cpu(), point[-1:]]), length=length
    )


def _remember(state: FedSRCVaRState, step: Tensor, turn: Tensor) -> FedSRCVaRState:
    """Keep a step and the change of the gradient along it, if J bends upwards there."""
    if float(step @ turn) <= MIN_CURVATURE * float(step.norm() * turn.norm()):
        return state
    steps, turns = torch.cat([state.steps, step[None]]), torch.cat([state.turns, turn[None]])
    return replace(state, steps=steps[-MEMORY:], turns=turns[-MEMORY:])


def _newton_like(state: FedSRCVaRState, gradient: Tensor, rate: float) -> Tensor:
    """Return minus the gradient times the inverse curvature that the remembered steps show."""
    ahead, factors = -gradient, []
    for step, turn in zip(state.steps.flip(0), state.turns.flip(0), strict=True):
        factors.append((step @ ahead) / (step @ turn))
        ahead = ahead - factors[-1] * turn
    ahead = _in_metric(state, ahead)
    if len(state.steps):
        turn = state.turns[-1]
        ahead = ahead * ((state.steps[-1] @ turn) / (turn @ _in_metric(state, turn)))
    elif not len(state.metric):
        ahead = ahead * rate
    for step, turn, factor in zip(state.steps, state.turns, reversed(factors), strict=True):
        ahead = ahead + step * (factor - (turn @ ahead) / (step @ turn))
    return ahead


def _in_metric(state: FedSRCVaRState, slope: Tensor) -> Tensor:
    """Return the step that a slope means in the metric; without one it is the slope itself."""
    if not len(state.metric):
        return slope
    solved = torch.cholesky_solve(slope[:-1, None], state.metric)[:, 0]
    return torch.cat([solved, slope[-1:]])
