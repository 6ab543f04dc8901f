"""q-FedAvg (Li et al. 2020) against its plain formulas, and their symmetries.

Scaling all losses by c and L = 1/eta by c multiplies v_k by c, Delta_k and h_k by c^{q+1}: the
step does not change. The library divides F_k by a reference, which must cancel, and adds 1e-10
to F_k, a relative change of q 1e-10 / F_k; hence the tolerances.
"""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import Tensor

from fedminmax.core.iterates import Iterate
from fedminmax.core.losses import brier_loss
from fedminmax.methods.qfedavg import QFedAvg, SiteWeighting
from fedminmax.training.train import train
from tests.complaints import complaint_of
from tests.oracles import fedavg_by_hand, qfedavg_by_hand
from tests.problems import points, quadratic_federation, softmax_problem, to_numpy

PROBLEM = softmax_problem([[4, 0, 2], [1, 5, 0], [0, 0, 3]], seed=1)


@pytest.mark.parametrize("q", [0.0, 0.2, 1.0, 5.0])
@pytest.mark.parametrize("weighting", list(SiteWeighting))
def test_plain_formulas(q: float, weighting: SiteWeighting) -> None:
    method = QFedAvg(q, learning_rate=0.3, epochs=3, batch_size=None, weighting=weighting)
    by_rows = weighting is SiteWeighting.ROWS
    thetas = qfedavg_by_hand(PROBLEM, q=q, rounds=20, eta=0.3, epochs=3, by_rows=by_rows)
    moved = np.linalg.norm(thetas[-1] - thetas[0])
    for done in train(PROBLEM.federation(), method, rounds=20):
        error = to_numpy(done.parameters(Iterate.LAST)) - thetas[done.number]
        assert np.linalg.norm(error) < 1e-8 * moved


def test_q_zero_is_fedavg() -> None:
    method = QFedAvg(0.0, learning_rate=0.3, epochs=3, batch_size=None)
    thetas = fedavg_by_hand(PROBLEM, rounds=20, eta=0.3, epochs=3)
    done = list(train(PROBLEM.federation(), method, rounds=20))[-1]
    np.testing.assert_allclose(to_numpy(done.parameters()), thetas[-1], atol=1e-12)
    assert done.progress.state.step_factor == 1.0


@pytest.mark.parametrize("q", [0.2, 1.0, 5.0])
@pytest.mark.parametrize("c", [1e-3, 40.0])
def test_scaling_losses_and_curvature_together_changes_nothing(q: float, c: float) -> None:
    def scaled(outputs: Tensor, targets: Tensor) -> Tensor:
        return c * brier_loss(outputs, targets)

    thetas = qfedavg_by_hand(PROBLEM, q=q, rounds=10, eta=0.3, epochs=2, by_rows=True)
    method = QFedAvg(q, learning_rate=0.3 / c, epochs=2, batch_size=None)
    done = list(train(PROBLEM.federation(loss=scaled), method, rounds=10))[-1]
    np.testing.assert_allclose(to_numpy(done.parameters()), thetas[-1], rtol=0, atol=1e-6)


def one_content_one_not(q: float, epochs: int = 1) -> Tensor:
    """theta = 0; site 0 wants 0 and has it (F = 0, v = 0), site 1 wants 2 (F = 2, v = -2)."""
    federation = quadratic_federation([0.0], [points([[[0.0]]]), points([[[2.0]]])])
    method = QFedAvg(q, learning_rate=0.5, epochs=epochs, batch_size=None)
    return next(train(federation, method, rounds=1)).parameters()


@pytest.mark.parametrize("q", [1.0, 5.0])
def test_a_site_without_loss_has_no_say(q: float) -> None:
    """Delta_0 = h_0 = 0; Delta_1 / h_1 = F v / (q v^2 + L F) = -4 / (4 q + 4) with L = 2."""
    assert float(one_content_one_not(q)) == pytest.approx(1.0 / (q + 1.0), rel=1e-7)


@pytest.mark.parametrize("q", [0.0, 0.1, 0.2, 0.9, 1.0, 5.0, 12.0])
def test_zero_loss_is_safe_and_the_other_site_still_pulls(q: float) -> None:
    theta = float(one_content_one_not(q, epochs=3))
    assert 0.0 < theta < 2.0


@pytest.mark.parametrize("q", [0.0, 0.2, 1.0, 5.0])
def test_a_perfect_model_stays(q: float) -> None:
    federation = quadratic_federation([1.0], [points([[[1.0]]]), points([[[1.0]]])])
    done = list(train(federation, QFedAvg(q, batch_size=None), rounds=3))[-1]
    assert done.parameters().tolist() == [1.0]


@pytest.mark.parametrize("target", [1e4, 1e-2])
def test_a_large_q_neither_overflows_nor_vanishes(target: float) -> None:
    """One site: F cancels from Delta / h = v / (q v^2 / F + L), with F = v^2 / 2: v/(2 q + L)."""
    q, eta = 100.0, 0.5
    federation = quadratic_federation([0.0], [points([[[target]]])])
    method = QFedAvg(q, learning_rate=eta, epochs=1, batch_size=None)
    theta = next(train(federation, method, rounds=1)).parameters()
    assert float(theta) == pytest.approx(target / (2 * q + 1 / eta), rel=1e-4)


def in_fractions(targets: list[float], q: int, eta: float) -> float:
    """From 0 one step to v_k = -t_k, F_k = t_k^2 / 2: mean of t_k by F_k^q, over 2 q + 1 / eta."""
    exact = [Fraction(target) for target in targets]
    powers = [(target * target / 2) ** q for target in exact]
    pulls = sum((p * target for p, target in zip(powers, exact, strict=True)), Fraction(0))
    return float(pulls / sum(powers, Fraction(0)) / (2 * q + 1 / Fraction(eta)))


@pytest.mark.parametrize("unit", [1e4, 1.0, 1e-3])
@pytest.mark.parametrize("q", [5, 60, 150])
def test_powers_beyond_all_floats_still_weigh_exactly(q: int, unit: float) -> None:
    """At q = 150 and losses of 1e8, F^q is 1e1200: neither cut off nor tied."""
    targets, eta = [1.0 * unit, 2.0 * unit, 2.01 * unit, 0.5 * unit], 0.5
    federation = quadratic_federation([0.0], [points([[[target]]]) for target in targets])
    method = QFedAvg(q, learning_rate=eta, epochs=1, batch_size=None)
    theta = next(train(federation, method, rounds=1)).parameters()
    # 1e-10 is added to every loss.
    room = q * 1e-10 / (0.5 * (0.5 * unit) ** 2)
    assert float(theta) == pytest.approx(in_fractions(targets, q, eta), rel=1e-9 + 10 * room)


def test_one_site_in_a_thousand_may_have_all_the_loss() -> None:
    """Its power is 1000^q of the mean's: half on either side of 1, and refused where too large."""
    sites = [points([[[0.0]] * 999]), points([[[2.0]]])]
    federation = quadratic_federation([0.0], sites)
    method = QFedAvg(80.0, learning_rate=0.5, epochs=1, batch_size=None)
    before = 0.0
    for done in train(federation, method, rounds=2):
        theta = float(done.parameters())
        # One site alone counts: (2 - theta) / (2 q + L).
        assert theta - before == pytest.approx((2.0 - before) / (160 + 2), rel=1e-9)
        before = theta
    told = complaint_of(lambda: list(train(federation, replace(method, q=200.0), rounds=2)))
    assert "to the power of 200" in told
    assert "use a smaller q" in told


def test_a_usual_round_has_one_question() -> None:
    done = list(train(PROBLEM.federation(), QFedAvg(5.0, epochs=1), rounds=3))[-1]
    rows = sum(len(y) for _, y, _ in PROBLEM.numpy_rows())
    assert done.progress.gradient_evaluations == 3 * rows


def test_step_factor_is_the_step_relative_to_plain_averaging() -> None:
    """One site, F = v^2 / 2, L = 1/eta = 2: 1 / (1 + q v^2 / (L F)) = 1 / (1 + q)."""
    federation = quadratic_federation([0.0], [points([[[2.0]]])])
    method = QFedAvg(5.0, learning_rate=0.5, epochs=1, batch_size=None)
    done = next(train(federation, method, rounds=1))
    assert done.progress.state.step_factor == pytest.approx(1 / 6, rel=1e-8)
    plain = torch.tensor([1.0], dtype=torch.float64)
    torch.testing.assert_close(done.parameters(), plain / 6, rtol=1e-8, atol=0)


def test_the_next_reference_is_the_mean_loss_over_all_rows() -> None:
    """Any reference cancels in exact arithmetic; near the losses it keeps powers near 1."""
    rows = PROBLEM.numpy_rows()
    theta = PROBLEM.start
    method = QFedAvg(1.0, learning_rate=0.3, epochs=1, batch_size=None)
    for done in train(PROBLEM.federation(), method, rounds=3):
        losses = np.concatenate([PROBLEM.brier_losses(theta, x, y) for x, y, _ in rows])
        assert done.progress.state.reference_loss == pytest.approx(losses.mean(), rel=1e-9)
        theta = to_numpy(done.parameters(Iterate.LAST))
