"""FCFL: the worst site's loss under a disparity budget, then a better mean for all.

Cui, Pan, Liang, Zhang, Wang: Addressing algorithmic disparity and performance inconsistency in
federated learning, NeurIPS 2021. In each round a site sends loss, disparity and the gradients of
both on one batch. Stage one lowers a smooth maximum of the losses while no disparity exceeds the
budget; otherwise it lowers a smooth maximum of the disparities without raising that of the losses.
Stage two lowers the mean loss without raising any site's loss, or a disparity above the budget.

The server finds its direction by a linear programme over mixtures d = sum_j beta_j v_j of
gradients. The model moves by -d, so <d, v> >= 0 means that the objective with gradient v does not
rise, to first order. The programmes use only inner products of the gradients. Every programme has a
solution, because the shortest mixture x has <x, v_j> >= |x|^2 for all j. If the solver misses it
because of rounding, we use that mixture.

| symbol                          | name                                 |
|---------------------------------|--------------------------------------|
| r_k, g_k                        | Sums.statistics                      |
| grad r_k, grad g_k              | the halves of Sums.step              |
| grad r_k, in a programme        | losses[k]                            |
| d_l, d_g                        | loss, disparity                      |
| v_j                             | gradients[j]                         |
| epsilon, the budget             | max_disparity                              |
| delta_l, delta_g                | state.loss_smoothing, state.disparity_smoothing |
| eta                             | learning_rate                        |

Choices that the paper or its code leaves open:
- Within the budget, stage one's programme has no constraint, so it follows the disparity's
  gradient alone where that lowers the loss faster than the loss's own gradient. We keep this: the
  direction still lowers the loss, and the disparity as well.
- delta starts at 0.5 and is multiplied by 0.01 in rounds of stage one where 0.1 |d| <= delta, as
  long as it is above 1e-4. With gradients shorter than 5 it is 0.005 after the first round; below
  that alpha is nearly one-hot.
- The paper also bounds each loss in stage two by stage one's maximum; like its code, we rely on
  directions along which no loss rises.
- The learning rate is the same wherever the method runs. The rate that is safe for the losses is
  not safe here: a smoothed rate's second derivative in the outputs is at most
  2 * 10^2 / (6 sqrt 3) = 19.2, that of a gap between two rates twice as much, against 0.62 for the
  Brier loss.
- A smoothed rate of a group is the mean of sigmoid(10 z), with z the difference of the two outputs.
  With more than two groups the disparity is the largest gap between two of them. A group without
  rows in the batch is skipped, and with fewer than two groups g_k = 0.
"""

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from importlib.util import find_spec
from typing import ClassVar

import torch
from torch import Tensor

from fedminmax.core.errors import InputError, install_command
from fedminmax.core.examples import Examples
from fedminmax.core.iterates import Iterate
from fedminmax.core.local_epochs import shuffled_batches
from fedminmax.core.messages import Census, Order, Reveals, RoundKey, Sums
from fedminmax.core.parity import Parity, cells_of, check_two_classes, count_by_cell, group_rates
from fedminmax.core.solvers.simplex import min_norm_weights
from fedminmax.core.validation import WORST_SITE, Judge
from fedminmax.core.workspace import Workspace
from fedminmax.methods.card import AUTHORS, OURS, MethodCard, Over, Pace
from fedminmax.methods.method import SiteData
from fedminmax.methods.shared.checks import (
    check_not_negative,
    check_plan,
    check_positive,
    check_whole,
)
from fedminmax.methods.shared.expected_reply import (
    ExpectedReply,
    Sender,
    batch_sizes,
    one_batch_reach,
)
from fedminmax.methods.shared.replies import NO_WEIGHTS, local_stream, sums_before_training

# The strictest tolerance that the solver offers; inner products are scaled to at most 1.
SOLVER_TOLERANCE = 1e-10
SHARPNESS = 10.0
FIRST_SMOOTHING = 0.5
MIN_SMOOTHING = 1e-4
SMOOTHING_FACTOR = 0.01
SMOOTHING_PER_LENGTH = 0.1


def smoothed_maximum(values: Tensor, gradients: Tensor, smoothing: float) -> Tensor:
    """Return sum_k alpha_k gradients[k], with alpha_k proportional to exp(values_k / smoothing)."""
    return torch.softmax(values / smoothing, dim=0) @ gradients


def stage_one_direction(loss: Tensor, disparity: Tensor, *, within_budget: bool) -> Tensor:
    """Lower the loss if no disparity is above budget; else the disparity, without raising the loss.

    Within the budget the programme has no constraint, so its solution is d_l or d_g alone: the one
    that lowers the loss faster. It is d_g if <d_g, d_l> > |d_l|^2.
    """
    gradients = torch.stack([loss, disparity])
    if within_budget:
        return _steepest_mixture(gradients, loss, gradients[:0])
    return _steepest_mixture(gradients, disparity, loss.unsqueeze(0))


def stage_two_direction(losses: Tensor, disparity: Tensor) -> Tensor:
    """Lower the mean loss, while neither any site's loss nor the disparity rises."""
    gradients = torch.cat([losses, disparity.unsqueeze(0)])
    return _steepest_mixture(gradients, losses.mean(dim=0), gradients)


def _steepest_mixture(gradients: Tensor, target: Tensor, guarded: Tensor) -> Tensor:
    """Return the mixture d with the largest <d, target> such that <d, v> >= 0 for all guarded v."""
    from scipy.optimize import linprog

    gains, guards = gradients @ target, guarded @ gradients.T
    longest = gradients.square().sum(dim=1).max()
    if float(longest) == 0.0:
        return torch.zeros_like(target)
    count = len(gradients)
    answer = linprog(
        (-gains / longest).numpy(),
        A_ub=(-guards / longest).numpy(),
        b_ub=torch.zeros(len(guarded)).numpy(),
        A_eq=torch.ones(1, count).numpy(),
        b_eq=torch.ones(1).numpy(),
        options={
            "primal_feasibility_tolerance": SOLVER_TOLERANCE,
            "dual_feasibility_tolerance": SOLVER_TOLERANCE,
        },
    )
    if answer.status != 0:
        same_for_all = torch.full((count,), 1.0 / count, dtype=torch.float64)
        return min_norm_weights(gradients @ gradients.T, same_for_all, 1.0) @ gradients
    return torch.from_numpy(answer.x) @ gradients


@dataclass(frozen=True, eq=False)
class FCFLState:
    """theta^t, the rounds done, and how smooth the maxima of losses and disparities are."""

    parameters: Tensor
    rounds: int
    loss_smoothing: float
    disparity_smoothing: float

    @property
    def weights(self) -> Tensor:
        """No adversary, no weights: alpha is recomputed in each round."""
        return NO_WEIGHTS


@MethodCard(
    key="fcfl",
    paper="Cui, Pan, Liang, Zhang, Wang, NeurIPS 2021",
    optimises="worst site's risk with every site's disparity below max_disparity",
    over=Over.SITES_AND_GROUPS,
    pace=Pace.ONE_STEP,
    parity=True,
    sources={
        "learning_rate": OURS,
        "max_disparity": AUTHORS,
        "parity": OURS,
        "stage_one_rounds": AUTHORS,
        "batch_size": AUTHORS,
        "weight_decay": AUTHORS,
    },
)
@dataclass(frozen=True)
class FCFL:
    """Minimax over sites under a disparity budget, then Pareto improvement."""

    learning_rate: float = 0.01
    max_disparity: float = 0.1
    _: KW_ONLY
    parity: Parity = Parity.DEMOGRAPHIC
    stage_one_rounds: int = 800
    batch_size: int | None = 100
    weight_decay: float = 1e-4
    name: str = "FCFL"
    output: Iterate = Iterate.LAST
    reveals: Reveals = field(default=Reveals.OWN_VECTOR, init=False)
    judge: ClassVar[Judge] = WORST_SITE

    def __post_init__(self) -> None:
        check_positive(self.name, learning_rate=self.learning_rate)
        check_not_negative(
            self.name, max_disparity=self.max_disparity, weight_decay=self.weight_decay
        )
        check_whole(self.name, minimum=0, stage_one_rounds=self.stage_one_rounds)
        check_plan(self.name, 1, self.batch_size)

    def init(self, parameters: Tensor, census: Census) -> FCFLState:
        """Start from the initial model; disparity needs a positive class."""
        check_two_classes(self.name, census)
        if find_spec("scipy") is None:
            raise InputError(f"{self.name} needs scipy's solvers: {install_command('scipy')}")
        return FCFLState(parameters, 0, FIRST_SMOOTHING, FIRST_SMOOTHING)

    def order(self, state: FCFLState, key: RoundKey) -> Order:
        """Broadcast the model alone."""
        return Order(key, state.parameters, NO_WEIGHTS)

    def local(self, order: Order, site: SiteData, workspace: Workspace) -> Sums:
        """Return loss and disparity of one batch, and their gradients one after the other."""
        before = sums_before_training(order, site, workspace)
        examples = site.examples
        batch = next(shuffled_batches(len(examples), self.batch_size, local_stream(order, site)))
        if batch is not None:
            examples = examples.rows(batch.to(examples.group.device))
        outputs = workspace.model(examples.x)
        loss = workspace.loss(outputs, examples.y).mean()
        disparity = soft_disparity(self.parity, outputs, examples, site.groups)
        gradients = [
            piece.reshape(-1)
            for objective in (loss, disparity)
            for piece in torch.autograd.grad(
                objective, workspace.parameters, retain_graph=True, materialize_grads=True
            )
        ]
        both = torch.cat(gradients)
        both[: len(workspace.flat)] += workspace.ridge * workspace.in_model_order(workspace.flat)
        return replace(
            before,
            step=both,
            statistics=torch.tensor([loss.item(), disparity.item()], dtype=torch.float64),
            gradient_evaluations=2 * len(examples),
        )

    def expected(self, order: Order, sender: Sender, reply: Sums) -> ExpectedReply:
        """Two gradients of one batch; a mean loss and a gap between rates.

        A rate's gradient is a mean over its group's rows in the batch, of which there may be one.
        """
        size = batch_sizes(sender.rows, self.batch_size)[0]
        of_gap = SHARPNESS * sender.limits.score_slope * math.sqrt(2.0)
        highest = min(sender.limits.max_loss, float(reply.group_loss.sum()) / size)
        return ExpectedReply(
            numbers=2 * len(order.parameters),
            scale=0.0,
            rows=sender.rows,
            evaluations=2 * size,
            reach=math.hypot(one_batch_reach(sender, reply, size), of_gap),
            lower=torch.zeros(2, dtype=torch.float64),
            upper=torch.tensor([highest, 1.0], dtype=torch.float64),
        )

    def update_from_each(self, state: FCFLState, replies: Sequence[Sums]) -> FCFLState:
        """Find the stage's direction and step along it."""
        statistics = torch.stack([reply.statistics for reply in replies])
        gradients = torch.stack([reply.step.to("cpu", torch.float64) for reply in replies])
        losses, disparities = gradients.chunk(2, dim=1)
        worst = float(statistics[:, 1].max())
        loss = smoothed_maximum(statistics[:, 0], losses, state.loss_smoothing)
        disparity = smoothed_maximum(statistics[:, 1], disparities, state.disparity_smoothing)
        if state.rounds < self.stage_one_rounds:
            direction = stage_one_direction(
                loss, disparity, within_budget=worst <= self.max_disparity
            )
            smoothings = (
                _sharpen(state.loss_smoothing, loss),
                _sharpen(state.disparity_smoothing, disparity),
            )
        else:
            guarded = disparity if worst >= self.max_disparity else torch.zeros_like(disparity)
            direction = stage_two_direction(losses, guarded)
            smoothings = (state.loss_smoothing, state.disparity_smoothing)
        theta = state.parameters
        step = direction.to(theta) + self.weight_decay * theta
        return FCFLState(theta - self.learning_rate * step, state.rounds + 1, *smoothings)


def soft_disparity(parity: Parity, outputs: Tensor, examples: Examples, groups: int) -> Tensor:
    """Return the largest gap between two groups' smoothed rates, as a function of the outputs."""
    answers = torch.sigmoid(SHARPNESS * (outputs[:, 1] - outputs[:, 0]))
    counts = count_by_cell(examples, groups).to(answers.device)
    positives = answers.new_zeros(counts.numel()).index_add(0, cells_of(examples, groups), answers)
    rates = group_rates(parity, positives.view_as(counts), counts)
    known = rates[~rates.isnan()]
    if len(known) < 2:
        return outputs.new_zeros((), requires_grad=True)
    return known.max() - known.min()


def _sharpen(smoothing: float, direction: Tensor) -> float:
    """Sharpen a maximum whose smoothed gradient has become short."""
    short = SMOOTHING_PER_LENGTH * float(torch.linalg.vector_norm(direction)) <= smoothing
    return smoothing * SMOOTHING_FACTOR if short and smoothing > MIN_SMOOTHING else smoothing
