"""LoGoFair: thresholds by group and site that equalise rates, after training by FedAvg.

Zhang, Chen, Han, Zhong, Zheng: LoGoFair: post-processing for local and global fairness in federated
learning, AAAI 2025 (arXiv 2503.17231). With p_i the score of row i and h_i its answer, 0 or 1:

    maximise sum_i h_i (2 p_i - 1)
    so that |R_a - R_b| <= delta^g over all rows and |R_{a,k} - R_{b,k}| <= delta^l at each site k,

where R_a = sum_i h_i w_i / W_a is the rate of group a and W_a = sum_i w_i; w_i is 1 for demographic
parity, and p_i for equal opportunity (which scores say who is positive). By duality a row is
positive if 2 p_i - 1 is above w_i times a price of its group, the sum of one for all sites and one
of the site's own. So each site has a threshold for each group.

| symbol             | name                                               |
|--------------------|----------------------------------------------------|
| delta^g, delta^l   | budget, local_budget                               |
| lambda_a n / W_a   | state.prices[a], the price for all sites           |
| W_a / n            | state.shares[a]                                    |
| gamma_g            | adversary_rate                                     |

As in the paper, a site solves its own part of the dual for the prices that came, and the server
moves the prices by the rates that result, which are sums over sites; the sites' own prices and
thresholds stay with them. Where the paper leaves it open, or we differ:

- A site finds its optimum exactly, where the authors' code takes 20 steps on a smoothed objective.
  The server takes proximal gradient steps of length gamma_g / sqrt(t), which keep prices at 0 while
  rates are within the budget. Any number of groups: all their rates are within the budget.
- A reply has both, a step of FedAvg and rates of the model that was sent: no separate rounds.
- Scores are used as they are. The authors calibrate them by group and site.
- Rows with one score get one answer, so rates keep a site's budget up to one such step.

What a site keeps is the model that it was sent, and for each group the number to be added to the
output of class 1, minus the logit of the threshold. The common model is FedAvg's.
"""

import math
from dataclasses import KW_ONLY, dataclass, replace

import torch
from torch import Tensor

from fedminmax.core.messages import Census, Order, RoundKey, Sums, descend
from fedminmax.core.parity import Parity, check_two_classes, positive_scores_of
from fedminmax.core.workspace import Workspace
from fedminmax.methods.card import LOCAL, OURS, RATE, MethodCard, Over, Pace
from fedminmax.methods.method import SiteData
from fedminmax.methods.shared.checks import check_not_negative, check_positive
from fedminmax.methods.shared.expected_reply import (
    ExpectedReply,
    Sender,
    expect_local_epochs,
    with_numbers,
)
from fedminmax.methods.shared.replies import NO_WEIGHTS, LocalTraining, sum_by_group

# A site tries about so many middles of the range of its rates, all of them if there are fewer.
MIDDLES = 2000
BISECTIONS = 100
# Logits of thresholds 0 and 1 are cut off here.
NEVER = 1e-9


@dataclass(frozen=True, eq=False)
class LoGoFairState:
    """theta^t, the prices for all sites, the last known W_a / n (0 before that), and t."""

    parameters: Tensor
    prices: Tensor
    shares: Tensor
    rounds: int

    @property
    def weights(self) -> Tensor:
        """Prices, no adversary."""
        return NO_WEIGHTS


@MethodCard(
    key="logofair",
    paper="Zhang, Chen, Han, Zhong, Zheng, AAAI 2025",
    optimises="accuracy of thresholds by group and site with equal rates, after FedAvg",
    over=Over.GROUPS,
    pace=Pace.LOCAL_EPOCHS,
    parity=True,
    works_with_absent=True,
    sources=RATE
    | LOCAL
    | {
        "budget": "the paper's Table 1",
        "local_budget": "the paper's Table 1",
        "adversary_rate": OURS,
        "parity": "the paper's main tables",
    },
)
@dataclass(frozen=True)
class LoGoFair(LocalTraining):
    """FedAvg, and thresholds whose rates differ by at most the budgets; 1 is no limit."""

    budget: float = 0.01
    local_budget: float = 0.01
    parity: Parity = Parity.DEMOGRAPHIC
    _: KW_ONLY
    adversary_rate: float = 1.0

    def __post_init__(self) -> None:
        check_not_negative("LoGoFair", budget=self.budget, local_budget=self.local_budget)
        check_positive("LoGoFair", adversary_rate=self.adversary_rate)
        self.check_training("LoGoFair")

    @property
    def name(self) -> str:
        """The name in tables, with the budgets."""
        return f"LoGoFair ({self.budget:g}, {self.local_budget:g})"

    def init(self, parameters: Tensor, census: Census) -> LoGoFairState:
        """No group has a price yet."""
        check_two_classes("LoGoFair", census)
        nothing = torch.zeros(census.groups, dtype=torch.float64)
        return LoGoFairState(parameters, nothing, nothing, 0)

    def order(self, state: LoGoFairState, key: RoundKey) -> Order:
        """Broadcast the model and the prices."""
        return Order(key, state.parameters, state.prices)

    def start_keeping(self, parameters: Tensor, groups: int) -> Tensor:
        """Keep the initial model, with the threshold 1/2 for every group."""
        return torch.cat([parameters, parameters.new_zeros(groups)])

    def local_and_keep(
        self, order: Order, site: SiteData, workspace: Workspace
    ) -> tuple[Sums, Tensor]:
        """Reply as in FedAvg, with the rates of the own thresholds; keep these."""
        reply = self.local(order, site, workspace)
        workspace.load(order.parameters)
        scores = positive_scores_of(workspace, site.examples, site.rows_per_chunk)
        scores = scores.to("cpu", torch.float64)
        group, prices = site.examples.group.cpu(), order.weights.to("cpu", torch.float64)
        thresholds = fair_thresholds(scores, group, prices, self.local_budget, self.parity)
        mass = weights_of(scores, self.parity)
        positives = torch.where(scores > thresholds[group], mass, 0.0)
        sums = torch.cat([sum_by_group(values, site) for values in (positives, mass)])
        shifts = -torch.logit(thresholds, eps=NEVER)
        kept = torch.cat([order.parameters, shifts.to(order.parameters)])
        return replace(reply, statistics=sums), kept

    def expected(self, order: Order, sender: Sender, reply: Sums) -> ExpectedReply:
        """As in FedAvg; positive answers within the rows, all of which count for parity."""
        rows = sender.counts.to(torch.float64)
        numbers = with_numbers(reply.statistics, 2 * len(rows)).view(2, -1)
        # Scores in single precision may add up to a little more than there are rows.
        least = rows if self.parity is Parity.DEMOGRAPHIC else torch.zeros_like(rows)
        return replace(
            expect_local_epochs(order, sender, reply, self.plan),
            lower=torch.cat([torch.zeros_like(rows), least]),
            upper=torch.cat([numbers[1].clamp(min=0.0).minimum(rows), rows]),
        )

    def update(self, state: LoGoFairState, total: Sums) -> LoGoFairState:
        """As in FedAvg; move the prices by the rates."""
        positives, mass = total.statistics.view(2, -1)
        seen, rate = mass > 0, self.adversary_rate / math.sqrt(state.rounds + 1)
        shares = torch.where(seen, mass / total.group_count.sum(), state.shares)
        prices = state.prices.clone()
        # Prices of absent groups stay; all of them, weighted by shares, sum to 0.
        rest = -float((shares * prices)[~seen].sum())
        rates = positives[seen] / mass[seen]
        prices[seen] = moved_prices(prices[seen], rates, shares[seen], rate, self.budget, rest)
        average = descend(state.parameters, total)
        return LoGoFairState(average, prices, shares, state.rounds + 1)


def weights_of(scores: Tensor, parity: Parity) -> Tensor:
    """Return how much of each row counts for its group's rate."""
    return torch.ones_like(scores) if parity is Parity.DEMOGRAPHIC else scores


def threshold_of(prices: Tensor, parity: Parity) -> Tensor:
    """Return the score above which 2 p - 1 exceeds a price times what the row counts.

    >>> threshold_of(torch.tensor([0.0, 0.5, 7.0]), Parity.DEMOGRAPHIC).tolist()
    [0.5, 0.75, 1.0]
    >>> threshold_of(torch.tensor([0.0, -2.0, 7.0]), Parity.OPPORTUNITY).tolist()
    [0.5, 0.25, 1.0]
    """
    if parity is Parity.OPPORTUNITY:
        return 1.0 / (2.0 - prices.clamp(max=1.0))
    return (0.5 * (1.0 + prices)).clamp(0.0, 1.0)


def fair_thresholds(
    scores: Tensor, group: Tensor, prices: Tensor, budget: float, parity: Parity
) -> Tensor:
    """Return a site's best threshold for each group, with rates at most ``budget`` apart.

    Rates within a budget of each other are within half of it of some middle. For each middle every
    group has its own best number of positive rows; the best middle has the largest sum.

    >>> scores, group = torch.tensor([0.9, 0.75, 0.25, 0.5, 0.0]), torch.tensor([0, 0, 0, 1, 1])
    >>> fair_thresholds(scores, group, torch.zeros(2), 1.0, Parity.DEMOGRAPHIC).tolist()
    [0.5, 0.5]
    >>> fair_thresholds(scores, group, torch.zeros(2), 0.2, Parity.DEMOGRAPHIC).tolist()
    [0.5, 0.25]
    """
    thresholds = threshold_of(prices, parity)
    present = torch.unique(group).tolist()
    if budget >= 1.0 or len(present) < 2:
        return thresholds
    plans = [
        _GroupPlan.of(scores[group == number], float(prices[number]), thresholds[number], parity)
        for number in present
    ]
    # The best numbers change only where a possible rate is half a budget away.
    ends = torch.cat([plan.rates for plan in plans])
    middles = torch.cat([ends - 0.5 * budget, ends + 0.5 * budget]).sort().values
    middles = middles[:: 1 + len(middles) // MIDDLES]
    chosen = torch.stack([plan.chosen(middles, budget) for plan in plans])
    values = torch.stack([plan.values[cut] for plan, cut in zip(plans, chosen, strict=True)])
    best = chosen[:, int(values.sum(dim=0).argmax())]
    for number, plan, cut in zip(present, plans, best.tolist(), strict=True):
        thresholds[number] = plan.thresholds[cut]
    return thresholds


@dataclass(frozen=True, eq=False)
class _GroupPlan:
    """What a group at a site can have: by cut between scores, the rate, value and threshold.

    ``free`` is the best cut if nothing limits the rate.
    """

    rates: Tensor
    values: Tensor
    thresholds: Tensor
    free: int

    @classmethod
    def of(cls, scores: Tensor, price: float, threshold: Tensor, parity: Parity) -> "_GroupPlan":
        ordered = scores.sort(descending=True).values
        mass = weights_of(ordered, parity)
        ends = torch.cat([ordered, ordered.new_zeros(1)])
        # The answers can only change where the score does.
        cuts = torch.cat([torch.ones(1, dtype=torch.bool), ends[:-1] > ends[1:]])
        cuts[-1] = True
        start = ordered.new_zeros(1)
        rates = torch.cat([start, (mass / mass.sum().clamp(min=NEVER)).cumsum(0)])[cuts]
        values = torch.cat([start, (2.0 * ordered - 1.0 - price * mass).cumsum(0)])[cuts]
        between = 0.5 * (torch.cat([ordered.new_ones(1), ordered]) + ends)
        thresholds = between[cuts]
        free = int(torch.searchsorted(cuts.nonzero()[:, 0], (ordered > threshold).sum()))
        thresholds[free] = threshold
        return cls(rates, values, thresholds, free)

    def chosen(self, middles: Tensor, budget: float) -> Tensor:
        """Return the best cut for each middle of the rates."""
        reach, rounding = 0.5 * budget, 1e-9
        most = torch.searchsorted(self.rates, middles + (reach + rounding), right=True) - 1
        least = torch.searchsorted(self.rates, middles - (reach + rounding))
        free = torch.full_like(most, self.free)
        return torch.where(
            free > most, most, torch.maximum(free, least.clamp(max=len(self.rates) - 1))
        )


def moved_prices(
    prices: Tensor, rates: Tensor, shares: Tensor, rate: float, budget: float, total: float
) -> Tensor:
    """Return the prices after a proximal gradient step on the dual.

    Their sum, weighted by shares, is ``total``.

    A group whose rate is above the middle gets dearer, and a price within reach of 0 becomes 0. The
    middle is the one that gives this sum.

    >>> prices, shares = torch.zeros(2), torch.tensor([0.5, 0.5])
    >>> moved_prices(prices, torch.tensor([0.75, 0.25]), shares, 1.0, 0.0, 0.0).tolist()
    [0.25, -0.25]
    >>> moved_prices(prices, torch.tensor([0.75, 0.25]), shares, 1.0, 0.5, 0.0).tolist()
    [0.0, 0.0]
    """
    reach = 0.5 * rate * budget

    def step(middle: float) -> Tensor:
        far = prices + rate * (rates - middle)
        return far - far.clamp(-reach, reach)

    aims = prices / rate + rates
    slack = budget + abs(total) / (rate * float(shares.sum()))
    low, high = float(aims.min()) - slack, float(aims.max()) + slack
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        if float((shares * step(middle)).sum()) > total:
            low = middle
        else:
            high = middle
    return step(0.5 * (low + high))
