"""Multiplicative weights with an oracle (Chen et al. 2017): loop by hand, closed form, bound.

The fits behind the centralized minimax methods: what a round does, and where rows may lie.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedminmax.core.iterates import Iterate
from fedminmax.core.losses import brier_loss
from fedminmax.data.synthetic import MINIMAX_RISKS, optimal_risks
from fedminmax.methods.ap_star import APStar
from fedminmax.methods.fedminmax import FedMinMax
from fedminmax.methods.method import OneStepMethod
from fedminmax.methods.minimax_fair import MinimaxFair, RelaxedMinimaxFair
from fedminmax.methods.oracle_minimax import OracleMinimax
from fedminmax.training.checkpoint import load_checkpoint, save_checkpoint
from fedminmax.training.progress import initial_progress
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
        train(
            PROBLEM.federation(),
            OracleMinimax(fits, learning_rate=0.5, fit_rounds=4),
            rounds=fits * 5,
        )
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
    risks = sides.mixture_risks(
        sides.after(OracleMinimax(fits, learning_rate=4.0, fit_rounds=6), fits).members
    )
    assert max(risks) == pytest.approx(exact_worst_risk(fits), abs=2e-4)
    assert max(risks) > MINIMAX_RISKS.worst + 0.01


def test_the_mixture_approaches_the_exact_minimax() -> None:
    """The rate is made for losses up to 1; 40 times the loss does in 60 fits what 1600 times
    as many would do."""

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return 40.0 * brier_loss(outputs, targets)

    members = sides.after(OracleMinimax(60, learning_rate=0.1, fit_rounds=5), 60, loss=loss).members
    assert max(sides.mixture_risks(members)) == pytest.approx(MINIMAX_RISKS.worst, abs=0.003)


def test_what_makes_no_sense_is_refused() -> None:
    message = complaint_of(lambda: OracleMinimax(fits=0))
    assert "fits = 0; give a whole number of at least 1" in message


METHODS: list[OneStepMethod[Any]] = [
    APStar(learning_rate=2.0, fit_rounds=3),
    MinimaxFair(2.0, 4.0, fit_rounds=3),
    RelaxedMinimaxFair(0.46, learning_rate=2.0, adversary_rate=30.0, fit_rounds=3),
    OracleMinimax(10, learning_rate=2.0, fit_rounds=3),
]
every_method = pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)


@every_method
@pytest.mark.parametrize("fused", [True, False])
def test_split_rows_give_the_model_of_one_site(method: OneStepMethod[Any], *, fused: bool) -> None:
    problem = softmax_problem([[4, 0, 2], [1, 5, 0], [0, 0, 3]], seed=1)
    everything = [torch.cat(part) for part in zip(*problem.sites, strict=True)]
    alone = problem.federation(sites=[(everything[0], everything[1], everything[2])])
    pairs = [
        (sides.federation(), sides.federation(sides.split_rows())),
        (alone, problem.federation(fused=fused)),
    ]
    for one, split in pairs:
        both = zip(train(one, method, rounds=24), train(split, method, rounds=24), strict=True)
        for expected, done in both:
            torch.testing.assert_close(done.members, expected.members, rtol=0, atol=1e-10)
            torch.testing.assert_close(done.weights, expected.weights, rtol=0, atol=1e-10)


@every_method
def test_the_first_fit_is_gradient_descent_and_its_evaluation_takes_no_step(
    method: OneStepMethod[Any],
) -> None:
    """Both groups have half of the rows, so the first weights are those of the mean risk."""
    plain = list(train(sides.federation(), FedMinMax(2.0, 0.0), rounds=3))
    rounds = list(train(sides.federation(), method, rounds=5))
    for expected, done in zip(plain, rounds[:3], strict=True):
        torch.testing.assert_close(done.parameters(Iterate.LAST), expected.parameters(Iterate.LAST))
        assert done.weights.tolist() == [0.5, 0.5]
    fitted = rounds[2].parameters(Iterate.LAST)
    assert torch.equal(rounds[3].parameters(Iterate.LAST), fitted)
    assert torch.equal(rounds[3].members, fitted.unsqueeze(0))
    assert rounds[3].weights.tolist() != [0.5, 0.5]
    assert not torch.equal(rounds[4].parameters(Iterate.LAST), fitted)


@pytest.mark.parametrize(
    "method",
    [
        APStar(learning_rate=2.0, fit_rounds=3, warm_start=False),
        MinimaxFair(2.0, 4.0, fit_rounds=3, warm_start=False),
        RelaxedMinimaxFair(
            0.46, learning_rate=2.0, adversary_rate=30.0, fit_rounds=3, warm_start=False
        ),
        OracleMinimax(10, learning_rate=2.0, fit_rounds=3, warm_start=False),
    ],
    ids=lambda method: method.name,
)
def test_a_cold_start_begins_every_fit_at_the_initial_model(method: OneStepMethod[Any]) -> None:
    start = sides.federation().initial_parameters
    rounds = list(train(sides.federation(), method, rounds=12))
    for done in rounds[3::4]:
        assert torch.equal(done.parameters(Iterate.LAST), start)
    assert not torch.equal(rounds[-1].members[-1], start)


@every_method
def test_a_run_resumes_after_its_mixture_has_grown(
    method: OneStepMethod[Any], tmp_path: Path
) -> None:
    whole = list(train(sides.federation(), method, rounds=30))
    for done in whole[:18]:
        save_checkpoint(tmp_path, done.progress)
    restored = load_checkpoint(tmp_path, initial_progress(sides.federation(), method))
    assert restored is not None
    progress = restored.progress
    rest = list(train(sides.federation(), method, rounds=30, resume=progress))
    assert len(rest) == 12
    assert torch.equal(rest[-1].members, whole[-1].members)
    assert len(rest[-1].members) == (1 if isinstance(method, APStar) else 7)
