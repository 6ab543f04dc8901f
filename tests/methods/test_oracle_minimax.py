"""Multiplicative weights with an oracle (Chen et al. 2017): loop by hand, closed form, bound."""

import math

import numpy as np
import pytest
from torch import Tensor

from fedminmax.core.losses import brier_loss
from fedminmax.data.synthetic import MINIMAX_RISKS, optimal_risks
from fedminmax.methods.oracle_minimax import OracleMinimax
from fedminmax.training.train import train
from tests import sides
from tests.complaints import complaint_of
from tests.fits_by_hand import Pooled, fits_by_hand
from tests.problems import Vector, softmax_problem, to_numpy

PROBLEM = softmax_problem([[4, 0, 2], [1, 5, 0], [0, 0, 3]], seed=1)


def test_it_is_the_papers_loop_on_cumulative_risks() -> None:
    """The vector of the loop is the sum of all risks so far; weights are exp(eta times it)."""
    fits = 12
    eta = np.sqrt(np.log(3) / (2 * fits))

    def learner(total: Vector) -> Vector:
        powers = np.exp(eta * total)
        weights: Vector = powers / powers.sum()
        return weights

    models, totals = fits_by_hand(
        Pooled(PROBLEM),
        np.zeros(3),
        learner,
        lambda total, risks, _: total + risks,
        fits=fits,
        eta=0.5,
        steps=4,
    )
    rounds = list(
        train(PROBLEM.federation(), OracleMinimax(fits, 0.5, fit_rounds=4), rounds=fits * 5)
    )
    np.testing.assert_allclose(to_numpy(rounds[-1].members), models, rtol=0, atol=1e-10)
    for done in rounds:
        np.testing.assert_allclose(
            to_numpy(done.weights), learner(totals[done.number // 5]), rtol=0, atol=1e-10
        )


def exact_worst_risk(fits: int) -> float:
    """The mixture's worst risk with a perfect oracle, by the synthetic data's closed form."""
    eta = math.sqrt(math.log(2) / (2 * fits))
    log_odds, total = 0.0, 0.0
    for _ in range(fits):
        risks = optimal_risks(1 / (1 + math.exp(log_odds)))
        total += risks.group_0
        log_odds += eta * (risks.group_0 - risks.group_1)
    return total / fits


@pytest.mark.parametrize("fits", [10, 100, 1000, 5000])
def test_the_bound_of_the_paper_in_closed_form(fits: int) -> None:
    """Regret of multiplicative weights: log A / (eta T) + eta R^2 / 8 above the minimax value."""
    eta = math.sqrt(math.log(2) / (2 * fits))
    excess = exact_worst_risk(fits) - MINIMAX_RISKS.worst
    assert 0 < excess <= math.log(2) / (eta * fits) + eta * 4 / 8
    if fits == 5000:
        assert excess < 0.003


def test_the_library_follows_the_closed_form() -> None:
    fits = 40
    risks = sides.mixture_risks(sides.after(OracleMinimax(fits, 4.0, fit_rounds=6), fits).members)
    assert max(risks) == pytest.approx(exact_worst_risk(fits), abs=2e-4)
    assert max(risks) > MINIMAX_RISKS.worst + 0.01


def test_the_mixture_approaches_the_exact_minimax() -> None:
    """The rate is made for losses up to 1; 40 times the loss does in 60 fits what 1600 times
    as many would do."""

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return 40.0 * brier_loss(outputs, targets)

    members = sides.after(OracleMinimax(60, 0.1, fit_rounds=5), 60, loss=loss).members
    assert max(sides.mixture_risks(members)) == pytest.approx(MINIMAX_RISKS.worst, abs=0.003)


def test_what_makes_no_sense_is_refused() -> None:
    message = complaint_of(lambda: OracleMinimax(fits=0))
    assert "fits = 0; give a whole number of at least 1" in message
