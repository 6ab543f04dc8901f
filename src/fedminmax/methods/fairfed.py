"""FairFed: sites whose disparity differs from the federation's get less weight in the average.

Ezzeldin, Yan, He, Ferrara, Avestimehr: FairFed: enabling group fairness in federated learning,
AAAI 2023.

| symbol        | name                                                      |
|---------------|-----------------------------------------------------------|
| omega_k       | state.weights                                             |
| beta          | beta, the fairness budget                                 |
| F, F_k        | disparity of all participants' rows, of site k's rows   |
| Acc, Acc_k    | accuracy on the same rows                                 |
| Delta_k       | gaps                                                      |

Omega starts at n_k / n. A round has two requests. First all sites evaluate theta^{t-1}: with
Delta_k = |F - F_k|, or |Acc - Acc_k| where F_k is undefined (a site of one group),
omega_k <- omega_k - beta (Delta_k - mean Delta). Then they train from theta^{t-1}, and the server
averages with omega. Training may debias locally in the paper; here it is plain.

F is the rate of group 0 minus that of group 1, as in the paper; with more than two groups, the
largest gap between two of them. The paper's step may leave the simplex; we project back on it,
among the sites that took part, which changes nothing inside it. The first reply has the sums by
cell, and one number of the site's own: F_k or Acc_k.
"""

import math
from dataclasses import KW_ONLY, dataclass, field, replace

import torch
from torch import Tensor

from fedminmax.core.messages import Census, Order, Reveals, RoundKey, Sums, descend, zero_sums
from fedminmax.core.parity import (
    LABELS,
    Parity,
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
    with_numbers,
)
from fedminmax.methods.shared.replies import LocalTraining, sums_before_training

EVALUATE, TRAIN = 0, 1


@dataclass(frozen=True, eq=False)
class FairFedState:
    """theta^t, omega^t, and the next phase."""

    parameters: Tensor
    weights: Tensor
    next_phase: int


@MethodCard(
    key="fairfed",
    paper="Ezzeldin, Yan, He, Ferrara, Avestimehr, AAAI 2023",
    optimises="mean risk, sites reweighted towards equal rates",
    over=Over.GROUPS,
    pace=Pace.LOCAL_EPOCHS,
    parity=True,
    weights=Weights.SITES,
    works_with_absent=True,
    sources=RATE | LOCAL | {"beta": "the paper", "parity": OURS},
    requests=2,
)
@dataclass(frozen=True)
class FairFed(LocalTraining):
    """Average the sites' models with weights that follow their disparity.

    ``beta=0`` equals FedAvg.
    """

    beta: float = 1.0
    parity: Parity = Parity.DEMOGRAPHIC
    _: KW_ONLY
    reveals: Reveals = field(default=Reveals.OWN_LOSS, init=False)

    def __post_init__(self) -> None:
        check_not_negative("FairFed", beta=self.beta)
        self.check_training("FairFed")

    @property
    def name(self) -> str:
        """The name in tables, with beta."""
        return f"FairFed (beta={self.beta:g})"

    def init(self, parameters: Tensor, census: Census) -> FairFedState:
        """omega_k = n_k / n."""
        check_two_classes("FairFed", census)
        return FairFedState(parameters, census.site_shares, EVALUATE)

    def order(self, state: FairFedState, key: RoundKey) -> Order:
        """Request an evaluation of the current model."""
        return Order(key, state.parameters, state.weights, EVALUATE)

    def ask_again(self, state: FairFedState, key: RoundKey) -> Order | None:
        """Request training with this round's omega; a site uses only its own entry."""
        if state.next_phase != TRAIN:
            return None
        return Order(key, state.parameters, state.weights, TRAIN)

    def local(self, order: Order, site: SiteData, workspace: Workspace) -> Sums:
        """Evaluate, or train and return omega_k (theta - theta_k) on the scale omega_k."""
        if order.phase == EVALUATE:
            return self._evaluate(order, site, workspace)
        workspace.load(order.parameters)
        trained = self.train(order, site, workspace)
        before, weight = zero_sums(0, site.groups, 0), float(order.weights[site.number])
        return self.with_step(before, order, site, trained, weight)

    def _evaluate(self, order: Order, site: SiteData, workspace: Workspace) -> Sums:
        """Return the sums by cell and this site's F_k, or Acc_k if F_k is undefined."""
        before = sums_before_training(order, site, workspace)
        examples = site.examples
        scores = positive_scores_of(workspace, examples, site.rows_per_chunk)
        positives = sum_by_cell(positive_answers(scores), examples, site.groups)
        counts = count_by_cell(examples, site.groups).to(torch.float64)
        numbers = self._own_numbers(positives, counts, site.number, site.sites)
        sums = [positives.flatten(), counts.flatten(), numbers]
        return replace(before, statistics=torch.cat(sums))

    def _own_numbers(self, positives: Tensor, counts: Tensor, number: int, sites: int) -> Tensor:
        """Return F_k or Acc_k, whether it is F_k, and a 1 for taking part, in the own column."""
        gap = disparity(self.parity, positives, counts)
        numbers = torch.zeros(3, sites, dtype=torch.float64)
        measure = accuracy(positives, counts) if math.isnan(gap) else gap
        numbers[:, number] = torch.tensor([measure, not math.isnan(gap), True], dtype=torch.float64)
        return numbers.flatten()

    def expected(self, order: Order, sender: Sender, reply: Sums) -> ExpectedReply:
        """Sums within their cells and the number derived from them, or training."""
        if order.phase == TRAIN:
            weight = float(order.weights[sender.number])
            training = expect_local_epochs(order, sender, reply, self.plan, weight=weight)
            return replace(training, rows=0)
        cells = LABELS * len(sender.counts)
        lower, upper = limits_by_cell(reply, sender)
        sums = with_numbers(reply.statistics[: 2 * cells], 2 * cells).view(2, LABELS, -1)
        numbers = self._own_numbers(sums[0], sums[1], sender.number, sender.sites)
        return ExpectedReply(
            numbers=0,
            scale=0.0,
            rows=sender.rows,
            evaluations=0,
            lower=torch.cat([lower, numbers]),
            upper=torch.cat([upper, numbers]),
        )

    def update(self, state: FairFedState, total: Sums) -> FairFedState:
        """Update omega; the model is updated after the second request."""
        cells = LABELS * len(total.group_count)
        positives, counts = total.statistics[: 2 * cells].view(2, LABELS, -1)
        number, has_gap, present = total.statistics[2 * cells :].view(3, -1)
        gaps = torch.where(
            has_gap > 0,
            number - disparity(self.parity, positives, counts),
            number - accuracy(positives, counts),
        ).abs()
        weights = ascend_on_simplex(state.weights, -gaps, present > 0, rate=self.beta)
        return FairFedState(state.parameters, weights, TRAIN)

    def update_again(self, state: FairFedState, total: Sums) -> FairFedState:
        """Move to the average with omega over the sites that took part."""
        return FairFedState(descend(state.parameters, total), state.weights, EVALUATE)


def disparity(parity: Parity, positives: Tensor, counts: Tensor) -> float:
    """Return F from sums by cell; NaN where fewer than two groups have a rate.

    >>> counts = torch.tensor([[4, 4], [0, 0]])
    >>> disparity(Parity.DEMOGRAPHIC, torch.tensor([[1.0, 3.0], [0.0, 0.0]]), counts)
    -0.5
    """
    rates = group_rates(parity, positives, counts)
    if int((~rates.isnan()).sum()) < 2:
        return math.nan
    return float(rates[0] - rates[1]) if len(rates) == 2 else largest_gap(rates)


def accuracy(positives: Tensor, counts: Tensor) -> float:
    """Return the share of correct predictions from sums by cell.

    >>> accuracy(torch.tensor([[1.0], [3.0]]), torch.tensor([[4], [4]]))
    0.75
    """
    right = positives[1].sum() + counts[0].sum() - positives[0].sum()
    return float(right / counts.sum())
