"""MinimaxFair (Diana et al. 2021): the paper's loop by hand, the minimax, no-regret bounds.

MinimaxFair, relaxed (Diana et al. 2021): loop by hand, analytic optima, unreachable gamma.
"""

import numpy as np
import pytest
import torch

from fedminmax.core.errors import DivergedError
from fedminmax.data.synthetic import MEAN_RISKS, MINIMAX_RISKS
from fedminmax.methods.minimax_fair import MinimaxFair, RelaxedMinimaxFair
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
    assert torch.equal(exponentiate(weights, risks, ~risks.isnan(), 1.0, 0.0 * weights), weights)


def test_what_makes_no_sense_is_refused() -> None:
    message = complaint_of(lambda: MinimaxFair(adversary_rate=-1.0))
    assert "adversary_rate = -1; give zero or a positive number" in message
    message = complaint_of(lambda: MinimaxFair(fit_rounds=0))
    assert "fit_rounds = 0; give a whole number of at least 1" in message


RELAXED_PROBLEM = softmax_problem([[4, 0, 2], [1, 5, 0], [0, 0, 3]], seed=1)


@pytest.mark.parametrize("warm", [True, False])
def test_relaxed_it_is_the_papers_loop(*, warm: bool) -> None:
    """With steps of length eta / (1 + sum nu), which keep the minimum."""
    gamma, pooled = 0.5, Pooled(RELAXED_PROBLEM)

    def move(nu: Vector, risks: Vector, t: int) -> Vector:
        moved: Vector = np.maximum(0.0, nu + 3.0 / np.sqrt(t) * (risks - gamma))
        return moved

    models, multipliers = fits_by_hand(
        pooled,
        np.zeros(3),
        lambda nu: (pooled.rho + nu) / (1.0 + nu.sum()),
        move,
        fits=12,
        eta=0.5,
        steps=4,
        warm=warm,
    )
    method = RelaxedMinimaxFair(
        gamma, learning_rate=0.5, adversary_rate=3.0, fit_rounds=4, discard=5, warm_start=warm
    )
    rounds = list(train(RELAXED_PROBLEM.federation(), method, rounds=12 * 5))
    np.testing.assert_allclose(to_numpy(rounds[-1].members), models[5:], rtol=0, atol=1e-10)
    for done in rounds:
        nu = multipliers[done.number // 5]
        np.testing.assert_allclose(
            to_numpy(done.progress.state.multipliers), nu, rtol=0, atol=1e-10
        )
        np.testing.assert_allclose(to_numpy(done.weights), pooled.rho + nu, rtol=0, atol=1e-10)


@pytest.mark.parametrize(("gamma", "expected"), [(0.46, (0.46, 0.2479)), (0.47, (0.47, 0.2280))])
def test_the_constraint_binds_at_the_analytic_optimum(
    gamma: float, expected: tuple[float, float]
) -> None:
    """r_0 = .45 + .13 m^2 = gamma gives m, and weights in proportion 1 - m to m give nu."""
    m = ((gamma - MINIMAX_RISKS.worst) / 0.13) ** 0.5
    method = RelaxedMinimaxFair(
        gamma, learning_rate=4.0, adversary_rate=60.0, fit_rounds=4, discard=40
    )
    done = sides.after(method, 60)
    assert len(done.members) == 20
    assert sides.mixture_risks(done.members) == pytest.approx(expected, abs=1e-4)
    assert done.progress.state.multipliers.tolist() == pytest.approx([0.5 / m - 1, 0.0], abs=0.01)


@pytest.mark.parametrize("gamma", [0.4826, 0.6])
def test_a_loose_gamma_is_plain_risk_minimisation(gamma: float) -> None:
    done = sides.after(
        RelaxedMinimaxFair(gamma, learning_rate=4.0, adversary_rate=60.0, fit_rounds=8, discard=4),
        8,
    )
    assert done.progress.state.multipliers.tolist() == [0.0, 0.0]
    expected = [MEAN_RISKS.group_0, MEAN_RISKS.group_1]
    assert sides.mixture_risks(done.members) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("warm", [True, False])
@pytest.mark.parametrize("gamma", [0.3, 0.44])
def test_a_gamma_that_no_model_reaches_is_told(gamma: float, *, warm: bool) -> None:
    method = RelaxedMinimaxFair(
        gamma, learning_rate=4.0, adversary_rate=60.0, fit_rounds=8, fit_patience=5, warm_start=warm
    )
    with pytest.raises(DivergedError) as caught:
        sides.after(method, 60)
    message = str(caught.value)
    assert f"no model with all group risks at most {gamma:g} was found" in message
    assert "give a larger gamma" in message
    assert "\n" not in message


def test_a_gamma_that_a_model_just_reaches_is_not_refused() -> None:
    """At the minimax value itself the multipliers grow without end, but no bound is broken."""
    method = RelaxedMinimaxFair(
        MINIMAX_RISKS.worst, learning_rate=4.0, adversary_rate=60.0, fit_rounds=4, fit_patience=2
    )
    state = sides.after(method, 60).progress.state
    assert state.stalled_fits == 0
    assert float(state.multipliers.sum()) > 2.0


def test_slow_fits_are_not_taken_for_an_unreachable_gamma() -> None:
    """The first fits are far above gamma, but each step still gains: .47 can be reached."""
    method = RelaxedMinimaxFair(
        0.47, learning_rate=0.004, adversary_rate=1.0, fit_rounds=2, fit_patience=3
    )
    for done in train(sides.federation(), method, rounds=60):
        assert min(done.risks.tolist()) > 0.47
        assert done.progress.state.stalled_fits == 0


def test_before_the_first_fit_that_is_kept_the_answer_is_the_present_model() -> None:
    method = RelaxedMinimaxFair(0.5, learning_rate=0.5, fit_rounds=1, discard=2)
    for done in train(RELAXED_PROBLEM.federation(), method, rounds=10):
        kept = max(0, done.number // 2 - 2)
        assert len(done.progress.state.members) == kept
        assert len(done.members) == max(1, kept)
        if kept == 0:
            assert torch.equal(done.members[0], done.progress.state.parameters)


def test_a_group_not_seen_keeps_its_multiplier() -> None:
    problem = softmax_problem([[6, 0], [0, 6]], seed=3)
    method = RelaxedMinimaxFair(0.1, learning_rate=0.3, fit_rounds=1, fit_patience=1)
    before = [0.0, 0.0]
    changes = 0
    for done in train(problem.federation(), method, rounds=20, participation=0.5):
        state = done.progress.state
        absent = 1 - done.participants[0]
        now = state.multipliers.tolist()
        assert now[absent] == before[absent]
        assert state.stalled_fits == 0
        changes += now != before
        before = now
    assert changes == 10


def test_what_makes_no_sense_relaxed_is_refused() -> None:
    message = complaint_of(lambda: RelaxedMinimaxFair(-0.1))
    assert "gamma = -0.1; give zero or a positive number" in message
    message = complaint_of(lambda: RelaxedMinimaxFair(0.5, adversary_rate=0.0))
    assert "adversary_rate = 0; give a positive number" in message
    message = complaint_of(lambda: RelaxedMinimaxFair(0.5, discard=-1))
    assert "discard = -1; give a whole number of at least 0" in message
    message = complaint_of(lambda: RelaxedMinimaxFair(0.5, fit_patience=0))
    assert "fit_patience = 0; give a whole number of at least 1" in message
