"""MinimaxFair (Diana et al. 2021): the paper's loop by hand, the minimax, no-regret bounds."""

import numpy as np
import pytest
import torch

from fedminmax.data.synthetic import MINIMAX_RISKS
from fedminmax.methods.minimax_fair import MinimaxFair
from fedminmax.methods.shared.fits import exponentiate
from fedminmax.training.train import train
from tests import sides
from tests.complaints import complaint_of
from tests.fits_by_hand import Pooled, fits_by_hand
from tests.problems import Vector, softmax_problem, to_numpy

PROBLEM = softmax_problem([[4, 0, 2], [1, 5, 0], [0, 0, 3]], seed=1)


@pytest.mark.parametrize("warm", [True, False])
def test_it_is_the_papers_loop(*, warm: bool) -> None:
    def move(mu: Vector, risks: Vector, t: int) -> Vector:
        powers = mu * np.exp(2.0 / np.sqrt(t) * risks)
        moved: Vector = powers / powers.sum()
        return moved

    pooled = Pooled(PROBLEM)
    models, weights = fits_by_hand(
        pooled, pooled.rho, lambda mu: mu, move, fits=12, eta=0.5, steps=4, warm=warm
    )
    method = MinimaxFair(0.5, 2.0, fit_rounds=4, warm_start=warm)
    rounds = list(train(PROBLEM.federation(), method, rounds=12 * 5))
    np.testing.assert_allclose(to_numpy(rounds[-1].members), models, rtol=0, atol=1e-10)
    for done in rounds:
        np.testing.assert_allclose(
            to_numpy(done.weights), weights[done.number // 5], rtol=0, atol=1e-10
        )


def test_the_mixture_approaches_the_exact_minimax() -> None:
    members = sides.after(MinimaxFair(4.0, 4.0, fit_rounds=4), 60).members
    assert len(members) == 60
    risks = sides.mixture_risks(members)
    assert risks == pytest.approx([MINIMAX_RISKS.group_0, MINIMAX_RISKS.group_1], abs=0.01)
    assert risks[0] == pytest.approx(MINIMAX_RISKS.worst, abs=0.003)


def test_the_weights_have_no_regret() -> None:
    """sum_t eta_t (r_a - <mu, r>) <= log(1 / rho_a) + sum_t eta_t^2 (max r - min r)^2 / 8.

    This is Hoeffding's lemma, summed up. Each <mu, r> is at most the minimax value where the model
    is the minimum, so no group's risk can stay above that value.
    """
    fits, rate = 40, 4.0
    rounds = list(train(sides.federation(), MinimaxFair(4.0, rate, fit_rounds=4), rounds=fits * 5))
    risks = sides.member_risks(rounds[-1].members)
    weights = torch.stack(
        [torch.full((2,), 0.5, dtype=torch.float64)] + [done.weights for done in rounds[4:-1:5]]
    )
    paid = (weights * risks).sum(dim=1)
    assert float(paid.max()) < MINIMAX_RISKS.worst + 1e-3
    rates = rate / torch.arange(1, fits + 1, dtype=torch.float64).sqrt()
    regret = rates @ (risks - paid.unsqueeze(1))
    spread = risks.amax(dim=1) - risks.amin(dim=1)
    bound = np.log(2) + float((rates * spread).square().sum()) / 8
    assert 0.5 * bound < float(regret.max()) <= bound


def test_without_an_adversary_every_fit_is_to_the_mean_risk() -> None:
    method = MinimaxFair(4.0, 0.0, fit_rounds=10)
    done = sides.after(method, 3)
    assert done.weights.tolist() == [0.5, 0.5]
    assert sides.mixture_risks(done.members[-1:]) == pytest.approx([0.4825, 0.2125], abs=1e-4)


def test_weights_without_mass_stay_instead_of_becoming_nan() -> None:
    weights = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    risks = torch.tensor([float("nan"), 0.5, 0.2], dtype=torch.float64)
    assert torch.equal(exponentiate(weights, risks, ~risks.isnan(), 1.0), weights)


def test_what_makes_no_sense_is_refused() -> None:
    message = complaint_of(lambda: MinimaxFair(adversary_rate=-1.0))
    assert "adversary_rate = -1; give zero or a positive number" in message
    message = complaint_of(lambda: MinimaxFair(fit_rounds=0))
    assert "fit_rounds = 0; give a whole number of at least 1" in message
