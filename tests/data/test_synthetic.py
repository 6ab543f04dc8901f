"""The synthetic data against its definition, and its optimum against independent integration."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, optimize, stats
from torch import Tensor

from fedminmax.data.synthetic import (
    MEAN_RISKS,
    MINIMAX_RISKS,
    PROBABILITIES,
    draw_synthetic,
    expected_risks,
    optimal_risks,
    qffl_risks,
    risks_of_sides,
)
from tests.complaints import complaint_of


def step_risk(group: int, low: float, high: float) -> float:
    """E over y of the two-class Brier score, each side of 0 having probability one half."""
    total = 0.0
    for predicted, true in zip((low, high), PROBABILITIES[group], strict=True):
        if_one = (1 - predicted) ** 2 + (0 - (1 - predicted)) ** 2
        if_zero = predicted**2 + (1 - (1 - predicted)) ** 2
        total += 0.5 * (true * if_one + (1 - true) * if_zero)
    return total


def least(objective: Callable[[float, float], float]) -> tuple[float, float]:
    """Minimise over step models with a method that knows nothing of the problem."""

    def of_vector(sides: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
        return objective(float(sides[0]), float(sides[1]))

    found = optimize.minimize(of_vector, [0.4, 0.6], method="Nelder-Mead", tol=1e-12)
    return float(found.x[0]), float(found.x[1])


def test_the_papers_probabilities() -> None:
    assert PROBABILITIES == ((0.3, 0.6), (0.1, 0.9))


@given(low=st.floats(0, 1), high=st.floats(0, 1))
def test_risks_of_a_step_model_equal_the_expectation_written_out(low: float, high: float) -> None:
    risks = risks_of_sides(low, high)
    assert risks.group_0 == pytest.approx(step_risk(0, low, high), abs=1e-9)
    assert risks.group_1 == pytest.approx(step_risk(1, low, high), abs=1e-9)


def test_minimax_and_mean_optimum() -> None:
    assert (MINIMAX_RISKS.group_0, MINIMAX_RISKS.group_1) == pytest.approx((0.45, 0.31))
    assert (MEAN_RISKS.group_0, MEAN_RISKS.group_1) == pytest.approx((0.4825, 0.2125))


def test_no_step_model_beats_the_minimax_risk() -> None:
    sides = least(lambda low, high: max(step_risk(0, low, high), step_risk(1, low, high)))
    assert step_risk(0, *sides) == pytest.approx(MINIMAX_RISKS.worst, abs=1e-8)
    assert sides == pytest.approx(PROBABILITIES[0], abs=1e-4)


@pytest.mark.parametrize("weight", [0.0, 0.05, 0.3, 0.5, 1.0])
def test_the_risk_curve_over_the_weight(weight: float) -> None:
    risks = optimal_risks(weight)
    assert risks.group_0 == pytest.approx(0.45 + 0.13 * weight**2, abs=1e-10)
    assert risks.group_1 == pytest.approx(0.18 + 0.13 * (1 - weight) ** 2, abs=1e-10)


@pytest.mark.parametrize("q", [0.2, 1.0, 5.0])
def test_the_optimum_of_q_ffl_is_the_least_power_sum(q: float) -> None:
    sides = least(lambda low, high: sum(step_risk(a, low, high) ** (q + 1) for a in (0, 1)))
    risks = qffl_risks(q)
    assert risks.group_0 == pytest.approx(step_risk(0, *sides), abs=1e-5)
    assert risks.group_1 == pytest.approx(step_risk(1, *sides), abs=1e-5)


def test_golden_optima_of_q_ffl() -> None:
    golden = {0.2: (0.4776, 0.2178), 1.0: (0.4648, 0.2370), 5.0: (0.4511, 0.2867)}
    for q, expected in golden.items():
        risks = qffl_risks(q)
        assert (risks.group_0, risks.group_1) == pytest.approx(expected, abs=5e-5)


def smooth_logits(x: Tensor) -> Tensor:
    """A classifier with P(Y = 1 | x) = 1 / (1 + exp(-(0.3 + 0.8 x)))."""
    return torch.cat([torch.zeros_like(x), 0.3 + 0.8 * x], dim=1)


@pytest.mark.parametrize("group", [0, 1])
def test_expected_risks_equal_adaptive_quadrature(group: int) -> None:
    def integrand(x: float) -> float:
        predicted = 1 / (1 + math.exp(-(0.3 + 0.8 * x)))
        true = PROBABILITIES[group][int(x > 0)]
        return float(stats.norm.pdf(x)) * 2 * ((predicted - true) ** 2 + true * (1 - true))

    parts = [integrate.quad(integrand, low, high)[0] for low, high in ((-10, 0), (0, 10))]
    risks = expected_risks(smooth_logits)
    assert (risks.group_0, risks.group_1)[group] == pytest.approx(sum(parts), abs=2e-6)


def test_drawn_rows_follow_their_distribution() -> None:
    rows = draw_synthetic(200_000, seed=0)
    assert torch.bincount(rows.group).tolist() == [100_000, 100_000]
    assert stats.kstest(rows.x[:, 0].numpy(), "norm").pvalue > 0.001
    for group in (0, 1):
        for side in (0, 1):
            inside = (rows.group == group) & ((rows.x[:, 0] > 0) == bool(side))
            true = PROBABILITIES[group][side]
            error = math.sqrt(true * (1 - true) / int(inside.sum()))
            assert abs(float(rows.y[inside].double().mean()) - true) < 4 * error


def test_features_do_not_tell_the_group() -> None:
    rows = draw_synthetic(100_000, seed=1)
    one, other = (rows.x[rows.group == a, 0].numpy() for a in (0, 1))
    assert stats.ks_2samp(one, other).pvalue > 0.001


def test_seeds_decide_the_rows() -> None:
    first, again, other = (draw_synthetic(50, seed=s) for s in (1, 1, 2))
    assert torch.equal(first.x, again.x)
    assert not torch.equal(first.x, other.x)


@pytest.mark.parametrize("rows", [0, -2, 7])
def test_a_number_of_rows_that_cannot_be_halved_is_refused(rows: int) -> None:
    assert f"rows = {rows}" in complaint_of(lambda: draw_synthetic(rows, seed=0))
