"""MinimaxFair, relaxed (Diana et al. 2021): loop by hand, analytic optima, unreachable gamma."""

import numpy as np
import pytest
import torch

from fedminmax.core.errors import DivergedError
from fedminmax.data.synthetic import MEAN_RISKS, MINIMAX_RISKS
from fedminmax.methods.minimax_fair import RelaxedMinimaxFair
from fedminmax.training.train import train
from tests import sides
from tests.complaints import complaint_of
from tests.fits_by_hand import Pooled, fits_by_hand
from tests.problems import Vector, softmax_problem, to_numpy

PROBLEM = softmax_problem([[4, 0, 2], [1, 5, 0], [0, 0, 3]], seed=1)


@pytest.mark.parametrize("warm", [True, False])
def test_it_is_the_papers_loop(*, warm: bool) -> None:
    """With steps of length eta / (1 + sum nu), which keep the minimum."""
    gamma, pooled = 0.5, Pooled(PROBLEM)

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
        gamma, 0.5, adversary_rate=3.0, fit_rounds=4, discard=5, warm_start=warm
    )
    rounds = list(train(PROBLEM.federation(), method, rounds=12 * 5))
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
    method = RelaxedMinimaxFair(gamma, 4.0, adversary_rate=60.0, fit_rounds=4, discard=40)
    done = sides.after(method, 60)
    assert len(done.members) == 20
    assert sides.mixture_risks(done.members) == pytest.approx(expected, abs=1e-4)
    assert done.progress.state.multipliers.tolist() == pytest.approx([0.5 / m - 1, 0.0], abs=0.01)


@pytest.mark.parametrize("gamma", [0.4826, 0.6])
def test_a_loose_gamma_is_plain_risk_minimisation(gamma: float) -> None:
    done = sides.after(
        RelaxedMinimaxFair(gamma, 4.0, adversary_rate=60.0, fit_rounds=8, discard=4), 8
    )
    assert done.progress.state.multipliers.tolist() == [0.0, 0.0]
    expected = [MEAN_RISKS.group_0, MEAN_RISKS.group_1]
    assert sides.mixture_risks(done.members) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("warm", [True, False])
@pytest.mark.parametrize("gamma", [0.3, 0.44])
def test_a_gamma_that_no_model_reaches_is_told(gamma: float, *, warm: bool) -> None:
    method = RelaxedMinimaxFair(
        gamma, 4.0, adversary_rate=60.0, fit_rounds=8, fit_patience=5, warm_start=warm
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
        MINIMAX_RISKS.worst, 4.0, adversary_rate=60.0, fit_rounds=4, fit_patience=2
    )
    state = sides.after(method, 60).progress.state
    assert state.stalled_fits == 0
    assert float(state.multipliers.sum()) > 2.0


def test_slow_fits_are_not_taken_for_an_unreachable_gamma() -> None:
    """The first fits are far above gamma, but each step still gains: .47 can be reached."""
    method = RelaxedMinimaxFair(0.47, 0.004, adversary_rate=1.0, fit_rounds=2, fit_patience=3)
    for done in train(sides.federation(), method, rounds=60):
        assert min(done.risks.tolist()) > 0.47
        assert done.progress.state.stalled_fits == 0


def test_before_the_first_fit_that_is_kept_the_answer_is_the_present_model() -> None:
    method = RelaxedMinimaxFair(0.5, 0.5, fit_rounds=1, discard=2)
    for done in train(PROBLEM.federation(), method, rounds=10):
        kept = max(0, done.number // 2 - 2)
        assert len(done.progress.state.members) == kept
        assert len(done.members) == max(1, kept)
        if kept == 0:
            assert torch.equal(done.members[0], done.progress.state.parameters)


def test_a_group_not_seen_keeps_its_multiplier() -> None:
    problem = softmax_problem([[6, 0], [0, 6]], seed=3)
    method = RelaxedMinimaxFair(0.1, 0.3, fit_rounds=1, fit_patience=1)
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


def test_what_makes_no_sense_is_refused() -> None:
    message = complaint_of(lambda: RelaxedMinimaxFair(-0.1))
    assert "gamma = -0.1; give zero or a positive number" in message
    message = complaint_of(lambda: RelaxedMinimaxFair(0.5, adversary_rate=0.0))
    assert "adversary_rate = 0; give a positive number" in message
    message = complaint_of(lambda: RelaxedMinimaxFair(0.5, discard=-1))
    assert "discard = -1; give a whole number of at least 0" in message
    message = complaint_of(lambda: RelaxedMinimaxFair(0.5, fit_patience=0))
    assert "fit_patience = 0; give a whole number of at least 1" in message
