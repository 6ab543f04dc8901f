"""APStar (Martinez et al. 2020): the paper's loop by hand, the analytic minimax, patience."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
import torch

from fedminmax.data.synthetic import MINIMAX_RISKS
from fedminmax.methods.ap_star import APStar, move_towards
from fedminmax.training.progress import initial_progress
from fedminmax.training.train import train
from tests import sides
from tests.complaints import complaint_of
from tests.fits_by_hand import Pooled
from tests.problems import Vector, softmax_problem, to_numpy

PROBLEM = softmax_problem([[4, 0, 2], [1, 5, 0], [0, 0, 3]], seed=1)


@dataclass(frozen=True)
class ByHand:
    """The paper's loop: weights after each fit, the best model, its worst risk, fits done."""

    weights: list[Vector]
    best: Vector
    worst: float
    fits: int


def ap_star_by_hand(
    *, fits: int, eta: float, steps: int, alpha: float, k: int, k_min: int, patience: int
) -> ByHand:
    pooled = Pooled(PROBLEM)
    theta = best = PROBLEM.start
    mu = np.full(3, 1 / 3)
    weights, worst, failures, done = [mu], np.inf, 0, 0
    while done < fits and failures < patience:
        theta = pooled.fit(theta, mu, eta=eta, steps=steps)
        risks = pooled.risks(theta)
        done += 1
        if risks.max() < worst:
            best, worst, k, failures = theta, float(risks.max()), min(k, k_min), 0
        else:
            k, failures = k + 1, failures + 1
        mask = (risks >= worst).astype(float)
        mu = (1 - alpha) * mu + alpha / k * mask / mask.sum()
        mu = mu / mu.sum()
        weights.append(mu)
    return ByHand(weights, best, worst, done)


@pytest.mark.parametrize(
    ("alpha", "k", "k_min", "patience"),
    [(0.5, 1, 20, 20), (0.9, 1, 2, 20), (0.9, 7, 3, 20), (0.9, 1, 20, 2)],
)
def test_it_is_the_papers_loop(alpha: float, k: int, k_min: int, patience: int) -> None:
    """The last case runs out of patience, and then nothing changes any more."""
    method = APStar(
        learning_rate=0.5,
        fit_rounds=2,
        alpha=alpha,
        divisor=k,
        divisor_cap=k_min,
        fit_patience=patience,
    )
    hand = ap_star_by_hand(
        fits=25, eta=0.5, steps=2, alpha=alpha, k=k, k_min=k_min, patience=patience
    )
    rounds = list(train(PROBLEM.federation(), method, rounds=75))
    for fit, expected in enumerate(hand.weights[1:], start=1):
        np.testing.assert_allclose(
            to_numpy(rounds[3 * fit - 1].weights), expected, rtol=0, atol=1e-10
        )
    state = rounds[-1].progress.state
    np.testing.assert_allclose(to_numpy(rounds[-1].parameters()), hand.best, rtol=0, atol=1e-10)
    assert state.best_worst_risk == pytest.approx(hand.worst, abs=1e-12)
    assert state.fits.done == hand.fits
    assert method.is_over(state) == (hand.fits < 25)
    assert method.is_over(state) == (patience == 2)


def test_after_patience_the_state_stays_and_risks_are_still_told() -> None:
    method = APStar(learning_rate=0.5, fit_rounds=2, alpha=0.9, fit_patience=2)
    rounds = list(train(PROBLEM.federation(), method, rounds=75))
    over = [done for done in rounds if method.is_over(done.progress.state)]
    assert len(over) > 5
    for done in over[1:]:
        assert done.progress.state is over[0].progress.state
        assert bool(torch.isfinite(done.risks).all())


def test_the_exact_minimax_and_a_best_worst_risk_that_never_rises() -> None:
    method = APStar(learning_rate=4.0, fit_rounds=5)
    rounds = list(train(sides.federation(), method, rounds=15 * 6))
    worst = [done.progress.state.best_worst_risk for done in rounds]
    assert all(later <= earlier for earlier, later in pairwise(worst))
    assert len(set(worst)) > 5
    risks = sides.mixture_risks(rounds[-1].members)
    assert risks == pytest.approx([MINIMAX_RISKS.group_0, MINIMAX_RISKS.group_1], abs=1e-3)
    assert worst[-1] == pytest.approx(max(risks), abs=1e-12)


def test_before_the_first_fit_the_answer_is_the_initial_model() -> None:
    method = APStar(fit_rounds=3)
    start = PROBLEM.federation().initial_parameters
    assert torch.equal(initial_progress(PROBLEM.federation(), method).state.selected[0], start)
    for done in train(PROBLEM.federation(), method, rounds=3):
        assert torch.equal(done.parameters(), start)


def test_a_fit_seen_by_some_groups_alone_is_never_the_best() -> None:
    """Site 1 alone has group 1: without it, the worst risk of all groups is not known."""
    problem = softmax_problem([[6, 0], [0, 6]], seed=3)
    method = APStar(learning_rate=0.5, fit_rounds=1)
    for done in train(problem.federation(), method, rounds=20, participation=0.5):
        state = done.progress.state
        assert state.fits.done == done.number // 2
        assert torch.equal(done.members, problem.federation().initial_parameters.unsqueeze(0))
        assert (state.best_worst_risk, state.divisor, state.failures) == (float("inf"), 1, 0)
        assert done.weights.tolist() == [0.5, 0.5]


def test_weight_moves_only_among_the_groups_seen() -> None:
    """Two of three groups share 0.6: half of it moves to the one behind, (.3, .3) -> (.15, .45)."""
    weights = torch.tensor([0.3, 0.4, 0.3], dtype=torch.float64)
    seen, behind = torch.tensor([True, False, True]), torch.tensor([False, False, True])
    moved = move_towards(behind, seen, weights, alpha=0.5, divisor=1, kept=0.0 * weights)
    assert moved.tolist() == pytest.approx([0.15, 0.4, 0.45], abs=1e-15)
    assert torch.equal(moved[1], weights[1])
    damped = move_towards(behind, seen, weights, alpha=0.5, divisor=4, kept=0.0 * weights)
    assert damped.tolist() == pytest.approx([0.24, 0.4, 0.36], abs=1e-15)


def test_what_makes_no_sense_is_refused() -> None:
    assert "alpha = 1.5; give a number above 0, at most 1" in complaint_of(
        lambda: APStar(alpha=1.5)
    )
    assert "alpha = 0; give a number above 0" in complaint_of(lambda: APStar(alpha=0.0))
    counts: list[tuple[str, Callable[[], object]]] = [
        ("divisor", lambda: APStar(divisor=0)),
        ("divisor_cap", lambda: APStar(divisor_cap=0)),
        ("fit_patience", lambda: APStar(fit_patience=0)),
        ("fit_rounds", lambda: APStar(fit_rounds=0)),
    ]
    for name, make in counts:
        assert f"{name} = 0; give a whole number of at least 1" in complaint_of(make)
