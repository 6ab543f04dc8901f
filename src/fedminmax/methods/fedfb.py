"""FedFB: weights over (label, group) cells that the server moves towards parity.

Zeng, Chen, Lee: Improving fairness via federated learning, arXiv 2110.15545, 2021: FairBatch (Roh,
Lee, Whang, Suh: FairBatch: batch selection for model fairness, ICLR 2021) in a federation. Sites
train on the loss with the weight lambda_{y,a} n / n_a on a row of label y and group a, and return
sums by cell, from which the server updates lambda.

| symbol               | name                           |
|----------------------|--------------------------------|
| lambda_{y,a}         | state.weights[y * groups + a]  |
| n_a / n              | state.group_shares             |
| alpha                | adversary_rate                 |
| L_{y,a}, n_{y,a}     | loss sum and rows of a cell    |
| mu                   | excess                         |

All start at lambda_{y,a} = n_a / n, which is the plain loss; their sum stays 2.

Demographic parity: with s_a the rate of positive answers of group a and mu_a = s_a minus the mean
of the s_a, lambda_{0,a} <- lambda_{0,a} + alpha_t mu_a / |mu|, kept within [0, 2 n_a / n], and
lambda_{1,a} = 2 n_a / n - lambda_{0,a}: a group with too many positive answers gets more weight on
its negative rows. The paper has s_a = (L_{0,a} - L_{1,a} + n_{1,a}) / n_a, which is the rate of
positive answers if L counts errors; we count them, so that rates become equal under any loss.

Equal opportunity: mu_a = L_{1,a} / n_{1,a} minus the mean over groups, and the lambda_{1,a} move by
alpha_t mu_a / |mu|, projected so that they stay non-negative with the same sum; the weights of
negative rows do not change.

With two groups mu / |mu| is the paper's. With more, the paper compares all groups with group 0; we
compare with the mean, so that the numbering does not matter. A step of constant length circles
around parity, so alpha_t = alpha / sqrt(t), as in the authors' experiments.
"""

import math
from dataclasses import KW_ONLY, dataclass, replace

import torch
from torch import Tensor

from fedminmax.core.messages import Census, Order, RoundKey, Sums, descend
from fedminmax.core.one_step import losses_of
from fedminmax.core.parity import (
    LABELS,
    Parity,
    cells_of,
    check_two_classes,
    count_by_cell,
    group_rates,
    largest_gap,
    positive_answers,
    positive_scores_of,
    sum_by_cell,
)
from fedminmax.core.solvers.simplex import ascend_on_simplex
from fedminmax.core.workspace import Workspace
from fedminmax.methods.card import LOCAL, OURS, RATE, MethodCard, Over, Pace, Weights
from fedminmax.methods.method import SiteData
from fedminmax.methods.shared.checks import check_not_negative
from fedminmax.methods.shared.expected_reply import (
    ExpectedReply,
    Sender,
    expect_local_epochs,
    limits_by_cell,
)
from fedminmax.methods.shared.replies import LocalTraining, sums_before_training


@dataclass(frozen=True, eq=False)
class FedFBState:
    """theta^t, lambda^t by cell, the group shares n_a / n, and t."""

    parameters: Tensor
    weights: Tensor
    group_shares: Tensor
    rounds: int


@MethodCard(
    key="fedfb",
    paper="Zeng, Chen, Lee 2021 (arXiv 2110.15545)",
    optimises="mean risk with equal rates",
    over=Over.GROUPS,
    pace=Pace.LOCAL_EPOCHS,
    parity=True,
    weights=Weights.CELLS,
    absent_keep_weight=False,
    works_with_absent=True,
    sources=RATE | LOCAL | {"adversary_rate": OURS, "parity": OURS},
)
@dataclass(frozen=True)
class FedFB(LocalTraining):
    """FairBatch's weights around local epochs; ``adversary_rate=0`` equals FedAvg."""

    learning_rate: float = 0.1
    adversary_rate: float = 0.1
    _: KW_ONLY
    parity: Parity = Parity.DEMOGRAPHIC
    name: str = "FedFB"

    def __post_init__(self) -> None:
        check_not_negative(self.name, adversary_rate=self.adversary_rate)
        self.check_training(self.name)

    def init(self, parameters: Tensor, census: Census) -> FedFBState:
        """Start from the plain loss: lambda_{y,a} = n_a / n for both labels."""
        check_two_classes(self.name, census)
        shares = census.group_shares
        return FedFBState(parameters, shares.repeat(LABELS), shares, 0)

    def order(self, state: FedFBState, key: RoundKey) -> Order:
        """Broadcast the model and the weight of a row of each cell."""
        row_weights = state.weights / state.group_shares.repeat(LABELS)
        return Order(key, state.parameters, row_weights)

    def local(self, order: Order, site: SiteData, workspace: Workspace) -> Sums:
        """Train on the weighted loss; return n_k (theta - theta_k), and sums by cell."""
        before = sums_before_training(order, site, workspace)
        examples = site.examples
        reported = torch.stack(
            [
                sum_by_cell(self._values_to_sum(site, workspace), examples, site.groups),
                count_by_cell(examples, site.groups).to(torch.float64),
            ]
        )
        row_weights = order.weights.to(order.parameters)[cells_of(examples, site.groups)]
        trained = self.train(order, site, workspace, row_weights)
        sums = self.with_step(before, order, site, trained)
        return replace(sums, statistics=reported.flatten())

    def _values_to_sum(self, site: SiteData, workspace: Workspace) -> Tensor:
        """Return the values whose sums the server needs: losses, or positive answers."""
        if self.parity is Parity.OPPORTUNITY:
            return losses_of(workspace, site.examples, site.rows_per_chunk)
        return positive_answers(positive_scores_of(workspace, site.examples, site.rows_per_chunk))

    def expected(self, order: Order, sender: Sender, reply: Sums) -> ExpectedReply:
        """n_k times the displacement by epochs on the weighted loss; sums within their cells."""
        present = sender.counts > 0
        lower, upper = limits_by_cell(reply, sender)
        if self.parity is Parity.OPPORTUNITY:
            cells, counts = upper.view(2, LABELS, -1)
            # A cell's loss sum is at most that of its group.
            losses = (sender.limits.max_loss * cells).minimum(reply.group_loss.clamp(min=0.0))
            upper = torch.stack([torch.where(cells > 0, losses, 0.0), counts]).flatten()
        largest = float(order.weights.view(LABELS, -1)[:, present].max())
        common = expect_local_epochs(order, sender, reply, self.plan, row_weight=largest)
        return replace(common, lower=lower, upper=upper)

    def update(self, state: FedFBState, total: Sums) -> FedFBState:
        """Average the models; update lambda by the entering model's results in each cell."""
        sums, counts = total.statistics.view(2, LABELS, -1)
        negative, positive = state.weights.view(LABELS, -1)
        rate = self.adversary_rate / math.sqrt(state.rounds + 1)
        if self.parity is Parity.OPPORTUNITY:
            excess = unit_excess(sums[1] / counts[1])
            positive = ascend_on_simplex(positive, excess, counts[1] > 0, rate=rate)
        else:
            rates = group_rates(self.parity, sums, counts)
            # A cell without rows keeps its weight, and so does the group's other cell.
            rates[(counts == 0).any(dim=0)] = math.nan
            upper = 2.0 * state.group_shares
            negative = (negative + rate * unit_excess(rates)).clamp(min=0.0).minimum(upper)
            positive = upper - negative
        return FedFBState(
            descend(state.parameters, total),
            torch.cat([negative, positive]),
            state.group_shares,
            state.rounds + 1,
        )


def unit_excess(values: Tensor) -> Tensor:
    """Return the known values minus their mean, of length 1; 0 where a value is NaN.

    >>> unit_excess(torch.tensor([1.0, float("nan"), 1.0])).tolist()
    [0.0, 0.0, 0.0]
    >>> unit_excess(torch.tensor([7.0, 7.0, float("nan"), 3.0, 3.0])).tolist()
    [0.5, 0.5, 0.0, -0.5, -0.5]
    """
    excess = torch.zeros_like(values)
    # Equal values may differ from their rounded mean: noise must not become a step of length 1.
    if largest_gap(values) == 0.0:
        return excess
    known = ~values.isnan()
    excess[known] = values[known] - values[known].mean()
    return excess / excess.square().sum().sqrt()
