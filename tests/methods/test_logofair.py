"""LoGoFair (Zhang et al. 2025): its thresholds against brute force, a linear program, Fairlearn."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from fairlearn.postprocessing import ThresholdOptimizer
from numpy.typing import NDArray
from scipy.optimize import linprog
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

from fedminmax.core.losses import cross_entropy_loss
from fedminmax.core.parity import Parity
from fedminmax.methods.fedavg import FedAvg
from fedminmax.methods.logofair import LoGoFair, fair_thresholds, moved_prices, threshold_of
from fedminmax.training.progress import personal_models
from fedminmax.training.simulation import Simulation
from fedminmax.training.train import train
from tests.complaints import complaint_of
from tests.problems import softmax_problem

Column = NDArray[np.float64]
BOTH = pytest.mark.parametrize("parity", list(Parity))
THREE_GROUPS = softmax_problem([[9, 5, 7], [4, 8, 0], [0, 6, 9]], seed=5, classes=2)


def counts_of(scores: Column, parity: Parity) -> Column:
    """How much of each row counts for its group's rate."""
    return np.ones_like(scores) if parity is Parity.DEMOGRAPHIC else scores


def rate(scores: Column, positive: NDArray[Any], parity: Parity) -> float:
    mass = counts_of(scores, parity)
    return float(mass[positive].sum() / mass.sum())


@BOTH
@pytest.mark.parametrize("budget", [0.0, 0.1, 0.3, 0.7])
@pytest.mark.parametrize("seed", range(6))
def test_a_site_finds_the_best_of_all_thresholds(parity: Parity, budget: float, seed: int) -> None:
    """Brute force over every cut of every group; a rate may miss the budget by one row."""
    rng = np.random.default_rng(seed)
    own = [rng.beta(1 + 2 * a, 3 - a, size) for a, size in enumerate((7, 4, 6))]
    prices = rng.normal(scale=0.3, size=3)
    best = -np.inf
    for cuts in itertools.product(*(range(len(scores) + 1) for scores in own)):
        chosen = [np.argsort(-scores)[:cut] for scores, cut in zip(own, cuts, strict=True)]
        rates = [rate(s, c, parity) for s, c in zip(own, chosen, strict=True)]
        if max(rates) - min(rates) <= budget + 1e-12:
            best = max(best, value_of(own, chosen, prices, parity))
    group = np.repeat(np.arange(3), [len(scores) for scores in own])
    thresholds = fair_thresholds(
        torch.from_numpy(np.concatenate(own)),
        torch.from_numpy(group),
        torch.from_numpy(prices),
        budget,
        parity,
    ).numpy()
    positive = [np.flatnonzero(s > t) for s, t in zip(own, thresholds, strict=True)]
    value = value_of(own, positive, prices, parity)
    rates = [rate(s, c, parity) for s, c in zip(own, positive, strict=True)]
    spread = max(rates) - min(rates)
    steps = [counts_of(s, parity).max() / counts_of(s, parity).sum() for s in own]
    assert value >= best - 1e-12
    assert spread <= budget + 2 * max(steps)
    if spread <= budget + 1e-12:
        assert value == pytest.approx(best, abs=1e-12)


def value_of(
    own: list[Column], chosen: list[NDArray[Any]], prices: Column, parity: Parity
) -> float:
    return sum(
        float((2 * s - 1 - price * counts_of(s, parity))[c].sum())
        for s, c, price in zip(own, chosen, prices, strict=True)
    )


def test_two_budgets_against_a_linear_program() -> None:
    """Sites and server together, with the model held still: the optimum of the whole problem."""
    problem = scored_sites([[400, 150, 0], [100, 300, 250], [200, 200, 200]], seed=3)
    for budget, local in [(0.02, 1.0), (1.0, 0.05), (0.02, 0.08)]:
        found, global_gap, local_gap = post_processed(problem, LoGoFair(budget, local), rounds=200)
        best = optimum(problem, budget, local)
        free = optimum(problem, 1.0, 1.0)
        assert best < 0.995 * free
        assert found == pytest.approx(best, rel=0.005)
        assert global_gap <= budget + 0.01
        assert local_gap <= local + 0.015


@BOTH
def test_without_a_limit_every_threshold_is_one_half(parity: Parity) -> None:
    method = LoGoFair(1.0, 1.0, parity, learning_rate=0.3, epochs=1)
    for done in train(THREE_GROUPS.federation(), method, rounds=5):
        assert not done.progress.kept[:, len(THREE_GROUPS.start) :].any()
        assert float(done.progress.state.prices.abs().max()) < 1e-12


def test_as_accurate_as_fairlearn_at_equal_rates() -> None:
    """One site, budget 0: Hardt et al.'s optimum as Fairlearn computes it, which draws lots."""
    rng = np.random.default_rng(0)
    group = np.repeat([0, 1, 2], [4000, 3000, 1000])
    x = rng.normal(np.array([0.5, -1.0, 1.0])[group], 1.5)[:, None]
    labels = (rng.random(len(x)) < 1 / (1 + np.exp(-x[:, 0]))).astype(int)
    model = LogisticRegression().fit(x, labels)
    peer = ThresholdOptimizer(
        estimator=model, constraints="demographic_parity", prefit=True, grid_size=2000
    )
    peer.fit(x, labels, sensitive_features=group)
    chances = peer._pmf_predict(x, sensitive_features=group)[:, 1]
    scores = model.predict_proba(x)[:, 1]
    thresholds = fair_thresholds(
        torch.from_numpy(scores),
        torch.from_numpy(group),
        torch.zeros(3, dtype=torch.float64),
        0.0,
        Parity.DEMOGRAPHIC,
    ).numpy()
    ours = scores > thresholds[group]
    rates = [ours[group == a].mean() for a in range(3)]
    assert max(rates) - min(rates) < 0.002
    accuracy = np.mean(np.where(labels == 1, ours, ~ours))
    accuracy_of_peer = np.mean(np.where(labels == 1, chances, 1 - chances))
    # Fairlearn's follows the labels of these rows, ours their scores.
    assert accuracy == pytest.approx(accuracy_of_peer, abs=0.004)
    assert accuracy < np.mean(labels == (scores > 0.5)) - 0.02


@BOTH
@pytest.mark.parametrize("batch_size", [None, 4])
def test_the_common_model_is_fedavgs_to_the_bit(parity: Parity, batch_size: int | None) -> None:
    method = LoGoFair(parity=parity, learning_rate=0.3, epochs=2, batch_size=batch_size)
    fedavg = FedAvg(0.3, epochs=2, batch_size=batch_size)
    both = zip(
        train(THREE_GROUPS.federation(), method, rounds=8, participation=0.6),
        train(THREE_GROUPS.federation(), fedavg, rounds=8, participation=0.6),
        strict=True,
    )
    for one, other in both:
        assert torch.equal(one.parameters(), other.parameters())
        state = one.progress.state
        assert float((state.shares * state.prices).sum()) == pytest.approx(0.0, abs=1e-9)


@BOTH
def test_what_a_site_keeps_answers_as_its_thresholds_do(parity: Parity) -> None:
    federation = THREE_GROUPS.federation()
    method = LoGoFair(0.0, 0.2, parity, learning_rate=0.3, epochs=1)
    *_, before, done = train(federation, method, rounds=6)
    x, _, group = THREE_GROUPS.sites[0]
    scores = torch.softmax(federation.model(before.parameters())(x), dim=1)[:, 1].detach()
    prices = before.progress.state.prices
    thresholds = fair_thresholds(scores, group, prices, 0.2, parity)
    assert float((thresholds - threshold_of(torch.zeros(1), parity)).abs().max()) > 1e-3
    for own, (model, groups) in enumerate(personal_models(federation, done.progress.kept[0])):
        assert groups.nonzero()[:, 0].tolist() == [own]
        outputs = model(x).detach()
        expected = scores > thresholds[own]
        assert torch.equal(outputs[:, 1] > outputs[:, 0], expected)


@pytest.mark.parametrize("budget", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("total", [0.0, 0.05])
def test_prices_fulfil_the_conditions_of_their_proximal_step(budget: float, total: float) -> None:
    """Minimise -R (l - l0) + (l - l0)^2 / 2 s + budget / 2 |l| in every price, for one middle."""
    rng = np.random.default_rng(int(10 * budget))
    prices, rates, shares = (torch.from_numpy(rng.random(5)) for _ in range(3))
    shares = shares / shares.sum()
    moved = moved_prices(prices, rates, shares, 0.7, budget, total).numpy()
    assert (shares.numpy() * moved).sum() == pytest.approx(total, abs=1e-9)
    slopes = rates.numpy() - (moved - prices.numpy()) / 0.7
    sides = np.sign(moved)
    at_zero = moved == 0
    middles = (slopes - 0.5 * budget * sides)[~at_zero]
    np.testing.assert_allclose(middles, middles.mean(), atol=1e-9)
    assert (np.abs(slopes[at_zero] - middles.mean()) <= 0.5 * budget + 1e-9).all()


def test_settings_are_checked() -> None:
    assert "local_budget = -1" in complaint_of(lambda: LoGoFair(0.1, -1.0))
    assert "adversary_rate = 0" in complaint_of(lambda: LoGoFair(adversary_rate=0.0))
    three = softmax_problem([[3, 3]], classes=3).federation()
    assert "LoGoFair needs labels of two classes" in complaint_of(
        lambda: next(train(three, LoGoFair(), rounds=1))
    )


Rows = tuple[Tensor, Tensor, Tensor]


def scored_sites(counts: list[list[int]], seed: int) -> list[Rows]:
    """Rows whose only feature is the logit of their score."""
    rng = np.random.default_rng(seed)
    sites = []
    for number, row in enumerate(counts):
        group = np.repeat(np.arange(len(row)), row)
        logits = rng.normal(0.8 * group - 0.6 + 0.4 * number * (group == 0), 1.0)
        labels = rng.random(len(group)) < 1 / (1 + np.exp(-logits))
        sites.append(
            (
                torch.from_numpy(logits)[:, None],
                torch.from_numpy(labels).long(),
                torch.from_numpy(group),
            )
        )
    return sites


def post_processed(sites: list[Rows], method: LoGoFair, rounds: int) -> tuple[float, float, float]:
    """Return the mean of (2 p - 1) over positive rows, and the gaps overall and at a site."""
    model = nn.Linear(1, 2, bias=False, dtype=torch.float64)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.0], [1.0]]))
    federation = Simulation(model, cross_entropy_loss, sites)
    still = LoGoFair(method.budget, method.local_budget, learning_rate=1e-12, epochs=1)
    *_, done = train(federation, still, rounds=rounds)
    value, by_group, gaps = 0.0, [], []
    for kept, (x, _, group) in zip(done.progress.kept, sites, strict=True):
        scores = torch.sigmoid(x[:, 0])
        positive = x[:, 0] + kept[-3:][group] > 0
        value += float((2 * scores - 1)[positive].sum())
        of_group = [positive[group == a].double() for a in range(3)]
        rates = [float(part.mean()) for part in of_group if len(part)]
        gaps.append(max(rates) - min(rates))
        by_group.append(of_group)
    pooled = [float(torch.cat(parts).mean()) for parts in zip(*by_group, strict=True)]
    return value / sum(len(x) for x, _, _ in sites), max(pooled) - min(pooled), max(gaps)


def optimum(sites: list[Rows], budget: float, local: float) -> float:
    """The linear program over answers in [0, 1]; each middle is a variable of its own."""
    group = np.concatenate([g.numpy() for _, _, g in sites])
    site = np.repeat(np.arange(len(sites)), [len(g) for _, _, g in sites])
    scores = 1 / (1 + np.exp(-np.concatenate([x[:, 0].numpy() for x, _, _ in sites])))
    rows, limits = [], []
    for number in range(-1, len(sites)):
        for a in range(3):
            own = (group == a) & ((site == number) | (number < 0))
            if own.any():
                line = np.concatenate([own / own.sum(), np.zeros(len(sites) + 1)])
                line[len(group) + number + 1] = -1.0
                rows += [line, -line]
                limits += [0.5 * (budget if number < 0 else local)] * 2
    gains = np.concatenate([1 - 2 * scores, np.zeros(len(sites) + 1)])
    done = linprog(gains, A_ub=np.array(rows), b_ub=limits, bounds=(0, 1))
    return -float(gains @ done.x) / len(group)
