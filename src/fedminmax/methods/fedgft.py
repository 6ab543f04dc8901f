"""FedGFT: the risk plus a penalty on the disparity of the whole federation.

Wang, Payani, Lee, Kompella: Mitigating group bias in federated learning: beyond local fairness,
Transactions on Machine Learning Research 2024 (arXiv 2305.09931, 2023): minimise
R(theta) + penalty * J(theta), where J is computed from sums over sites.

| symbol                | name                                                     |
|-----------------------|----------------------------------------------------------|
| lambda                | penalty                                                  |
| m_a                   | state.rates: mean score p_1 of group a                   |
| N_a / n               | state.row_shares: share of the rows that m_a is over     |
| slope_{y,a}           | order.weights[y * groups + a]                            |

J = sum over pairs of groups of (m_a - m_b)^2, which is F^2 for two groups with F = m_0 - m_1. m_a
is over all rows of group a, or for equal opportunity over those with a positive label. By the
chain rule the gradient of R + penalty J is the mean over all rows of that of
loss_i + slope_{y_i,a_i} p_1(x_i), with slope_{y,a} = penalty (n / N_a) dJ / dm_a on the rows that
m_a is over and 0 on others, and dJ / dm_a = 2 A (m_a - mean of the m_b) with A groups. So a site
that knows the slopes can descend the federation's objective with its own rows.

The server computes the slopes from the previous round's sums, for the model that entered it, so a
round needs one message each way; the fixed points are the same. The first round has no slopes yet.
A missing group keeps its last known m_a. Large penalties need small steps, because the slopes do
not change while a site trains.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedminmax.core.local_epochs import train_on_scores
from fedminmax.core.messages import Census, Order, RoundKey, Sums, descend
from fedminmax.core.parity import (
    LABELS,
    Parity,
    cells_of,
    check_two_classes,
    count_by_cell,
    group_rates,
    positive_scores_of,
    sum_by_cell,
)
from fedminmax.core.workspace import Workspace
from fedminmax.methods.card import LOCAL, OURS, RATE, MethodCard, Over, Pace
from fedminmax.methods.method import SiteData
from fedminmax.methods.shared.checks import check_not_negative
from fedminmax.methods.shared.expected_reply import (
    ExpectedReply,
    Sender,
    expect_local_epochs,
    limits_by_cell,
)
from fedminmax.methods.shared.replies import (
    NO_WEIGHTS,
    LocalTraining,
    local_stream,
    sums_before_training,
)


@dataclass(frozen=True, eq=False)
class FedGFTState:
    """theta^t, and the last known m_a and N_a / n of each group, 0 before that."""

    parameters: Tensor
    rates: Tensor
    row_shares: Tensor

    @property
    def weights(self) -> Tensor:
        """A penalty, no adversary."""
        return NO_WEIGHTS


@MethodCard(
    key="fedgft",
    paper="Wang, Payani, Lee, Kompella 2023",
    optimises="mean risk plus a penalty on unequal rates",
    over=Over.GROUPS,
    pace=Pace.LOCAL_EPOCHS,
    parity=True,
    works_with_absent=True,
    sources=RATE | LOCAL | {"penalty": OURS, "parity": OURS},
)
@dataclass(frozen=True)
class FedGFT(LocalTraining):
    """Minimise the risk plus ``penalty`` times the squared disparity; 0 equals FedAvg."""

    penalty: float = 1.0
    parity: Parity = Parity.DEMOGRAPHIC

    def __post_init__(self) -> None:
        check_not_negative("FedGFT", penalty=self.penalty)
        self.check_training("FedGFT")

    @property
    def name(self) -> str:
        """The name in tables, with the penalty."""
        return f"FedGFT (penalty={self.penalty:g})"

    def init(self, parameters: Tensor, census: Census) -> FedGFTState:
        """Nothing is known yet."""
        check_two_classes("FedGFT", census)
        nothing = torch.zeros(census.groups, dtype=torch.float64)
        return FedGFTState(parameters, nothing, nothing)

    def order(self, state: FedGFTState, key: RoundKey) -> Order:
        """Broadcast the model and the slope of each cell."""
        return Order(key, state.parameters, self._slopes(state))

    def _slopes(self, state: FedGFTState) -> Tensor:
        """Return penalty * dJ / dm_a * n / N_a for the rows that m_a is over, else 0."""
        known = state.row_shares > 0
        rates, slopes = state.rates[known], torch.zeros(LABELS, len(known), dtype=torch.float64)
        pull = 2.0 * len(rates) * (rates - rates.mean()) / state.row_shares[known]
        slopes[1, known] = self.penalty * pull
        if self.parity is Parity.DEMOGRAPHIC:
            slopes[0] = slopes[1]
        return slopes.flatten()

    def local(self, order: Order, site: SiteData, workspace: Workspace) -> Sums:
        """Train and return n_k (theta - theta_k) on the scale n_k, and sums of scores by cell."""
        before = sums_before_training(order, site, workspace)
        examples = site.examples
        scores = positive_scores_of(workspace, examples, site.rows_per_chunk)
        sums = torch.stack(
            [
                sum_by_cell(scores, examples, site.groups),
                count_by_cell(examples, site.groups).to(torch.float64),
            ]
        )
        reply = self.with_step(before, order, site, self._train(order, site, workspace))
        return replace(reply, statistics=sums.flatten())

    def _train(self, order: Order, site: SiteData, workspace: Workspace) -> Tensor:
        if not bool(order.weights.any()):
            return self.train(order, site, workspace)
        slopes = order.weights.to(order.parameters)[cells_of(site.examples, site.groups)]
        return train_on_scores(
            workspace, site.examples, self.plan, local_stream(order, site), slopes
        )

    def expected(self, order: Order, sender: Sender, reply: Sums) -> ExpectedReply:
        """n_k times the displacement by epochs on loss and scores; sums within their cells."""
        lower, upper = limits_by_cell(reply, sender)
        slope = float(order.weights.abs().max())
        common = expect_local_epochs(order, sender, reply, self.plan, slope_of_scores=slope)
        return replace(common, lower=lower, upper=upper)

    def update(self, state: FedGFTState, total: Sums) -> FedGFTState:
        """Average the models; store the rates of the model that entered the round."""
        scores, counts = total.statistics.view(2, LABELS, -1)
        rates = group_rates(self.parity, scores, counts)
        rows = counts[1] if self.parity is Parity.OPPORTUNITY else counts.sum(dim=0)
        return FedGFTState(
            descend(state.parameters, total),
            torch.where(rows > 0, rates, state.rates),
            torch.where(rows > 0, rows / counts.sum(), state.row_shares),
        )
