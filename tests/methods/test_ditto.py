"""Ditto (Li et al. 2021): FedAvg for all, and personal models between their own and its optimum."""

import numpy as np
import pytest
import torch
from torch import nn

from fedminmax.core.losses import brier_loss, squared_error_loss
from fedminmax.core.messages import RoundKey
from fedminmax.methods.ditto import Ditto
from fedminmax.methods.fedavg import FedAvg
from fedminmax.training.progress import initial_progress
from fedminmax.training.simulation import Simulation
from fedminmax.training.train import train
from tests.complaints import complaint_of
from tests.oracles import brier_gradient, fedavg_by_hand
from tests.problems import (
    Problem,
    Rows,
    Vector,
    image_rows,
    mean_gradient,
    points,
    quadratic_federation,
    small_cnn,
    softmax_problem,
    start_vector,
    to_numpy,
)

PROBLEM = softmax_problem([[4, 0, 2], [1, 5, 0], [0, 0, 3], [2, 2, 2]], seed=1)


@pytest.mark.parametrize("pull", [0.0, 0.5, 3.0])
@pytest.mark.parametrize("batch_size", [None, 2])
def test_the_server_sees_fedavg_to_the_last_bit(pull: float, batch_size: int | None) -> None:
    """Whatever the pull: neither the model nor any field of the replies knows personal models."""
    ditto = Ditto(pull, learning_rate=0.3, personal_rate=0.1, epochs=3, batch_size=batch_size)
    fedavg = FedAvg(0.3, epochs=3, batch_size=batch_size)
    both = zip(
        train(PROBLEM.federation(), ditto, rounds=6, seed=3, participation=0.75),
        train(PROBLEM.federation(), fedavg, rounds=6, seed=3, participation=0.75),
        strict=True,
    )
    for one, other in both:
        assert torch.equal(one.parameters(), other.parameters())
        for name in ("step", "group_loss", "group_count", "site_loss", "statistics"):
            assert torch.equal(getattr(one.total, name), getattr(other.total, name))
        assert (one.total.scale, one.total.curvature) == (other.total.scale, other.total.curvature)
        evaluations = one.progress.gradient_evaluations
        assert evaluations == 2 * other.progress.gradient_evaluations


def test_personal_training_does_not_disturb_a_model_that_draws_random_numbers() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 8), nn.Dropout(0.5), nn.Linear(8, 3)).double()
    one, other = (
        list(train(Simulation(model, brier_loss, PROBLEM.sites), method, rounds=3))
        for method in (Ditto(1.0, learning_rate=0.3, epochs=2), FedAvg(0.3, epochs=2))
    )
    assert torch.equal(one[-1].parameters(), other[-1].parameters())


@pytest.mark.parametrize(("pull", "rate"), [(0.0, None), (0.0, 0.1), (0.7, None), (2.0, 0.2)])
def test_personal_models_by_hand(pull: float, rate: float | None) -> None:
    """Full batches in numpy; without a pull each is local training on its own rows alone."""
    method = Ditto(pull, learning_rate=0.3, personal_rate=rate, epochs=3, batch_size=None)
    thetas = fedavg_by_hand(PROBLEM, rounds=5, eta=0.3, epochs=3)
    personal = [PROBLEM.start] * 4
    for done in train(PROBLEM.federation(), method, rounds=5):
        theta = thetas[done.number - 1]
        personal = [
            _personal_steps(PROBLEM, site, v, theta, pull, rate or 0.3, steps=3)
            for site, v in enumerate(personal)
        ]
        np.testing.assert_allclose(to_numpy(done.progress.kept), personal, atol=1e-12)
        if pull == 0:
            alone = [
                _personal_steps(PROBLEM, k, PROBLEM.start, theta, 0.0, rate or 0.3, 3 * done.number)
                for k in range(4)
            ]
            np.testing.assert_allclose(personal, alone, atol=1e-12)


def _personal_steps(
    problem: Problem, site: int, v: Vector, theta: Vector, pull: float, eta: float, steps: int
) -> Vector:
    x, y, _ = problem.numpy_rows()[site]
    for _ in range(steps):
        gradient = brier_gradient(problem, v, x, y, np.full(len(y), 1.0 / len(y)))
        v = v - eta * (gradient + pull * (v - theta))
    return v


def test_both_models_take_the_same_batches() -> None:
    """A single site without a pull: its personal model is the model for all."""
    problem = softmax_problem([[6, 5]], seed=2)
    method = Ditto(0.0, learning_rate=0.3, epochs=3, batch_size=2)
    for done in train(problem.federation(), method, rounds=4):
        torch.testing.assert_close(done.progress.kept[0], done.parameters(), rtol=0, atol=1e-12)
    first = next(train(problem.federation(), method, rounds=1, seed=1))
    again = next(train(problem.federation(), method, rounds=1, seed=2))
    assert float((first.progress.kept - again.progress.kept).norm()) > 1e-4


@pytest.mark.parametrize("pull", [0.0, 0.3, 1.0, 5.0])
def test_a_personal_model_ends_at_its_regularised_optimum(pull: float) -> None:
    """Linear regression with theta frozen: v* = (H + lambda I)^-1 (H c_k + lambda theta).

    F_k = mean (x v - y)^2 has H = 2 X'X / n and H c_k = 2 X'y / n.
    """
    sites = _regression_rows()
    model = nn.Linear(2, 1, bias=False, dtype=torch.float64)
    nn.init.constant_(model.weight, 0.5)
    federation = Simulation(model, squared_error_loss, sites)
    method = Ditto(pull, learning_rate=0.2, epochs=50, batch_size=None)
    start = initial_progress(federation, method)
    order, kept = method.order(start.state, RoundKey(0, 1)), start.kept
    for _ in range(8):
        kept = federation.ask(method, order, [0, 1, 2], kept).kept
    theta = np.full(2, 0.5)
    for own, (x, y, _) in zip(to_numpy(kept), sites, strict=True):
        features, targets = to_numpy(x), to_numpy(y)
        hessian = 2.0 * features.T @ features / len(targets)
        pulled = 2.0 * features.T @ targets / len(targets) + pull * theta
        expected = np.linalg.solve(hessian + pull * np.eye(2), pulled)
        np.testing.assert_allclose(own, expected, atol=1e-10)


def _regression_rows() -> list[Rows]:
    rng = np.random.default_rng(0)
    rows = []
    for number in range(3):
        x = rng.normal(size=(8, 2)) * np.array([1.0, 0.7])
        y = x @ rng.normal(size=2) + 0.1 * rng.normal(size=8)
        group = torch.full((8,), number % 2)
        rows.append((torch.from_numpy(x), torch.from_numpy(y), group))
    return rows


@pytest.mark.parametrize("pull", [0.25, 1.0, 4.0])
def test_with_the_model_for_all_converged_too(pull: float) -> None:
    """H = 1: theta is the mean of all rows, v_k = (c_k + lambda theta) / (1 + lambda)."""
    sites = [points([[[0.0]], [[1.0]]]), points([[[5.0]], [[6.0]]]), points([[[2.0]] * 4])]
    federation = quadratic_federation([9.0], sites)
    method = Ditto(pull, learning_rate=0.2, epochs=1, batch_size=None)
    done = list(train(federation, method, rounds=130))[-1]
    theta, centres = 20.0 / 8.0, np.array([0.5, 5.5, 2.0])
    np.testing.assert_allclose(to_numpy(done.parameters()), [theta], atol=1e-11)
    expected = (centres + pull * theta) / (1.0 + pull)
    np.testing.assert_allclose(to_numpy(done.progress.kept)[:, 0], expected, atol=1e-9)


def test_a_site_that_does_not_take_part_keeps_its_model() -> None:
    federation, method = PROBLEM.federation(), Ditto(1.0, learning_rate=0.3, epochs=2, batch_size=2)
    kept = initial_progress(federation, method).kept
    assert torch.equal(kept, torch.from_numpy(PROBLEM.start).repeat(4, 1))
    for done in train(federation, method, rounds=8, participation=0.5):
        for site in range(4):
            same = torch.equal(done.progress.kept[site], kept[site])
            assert same == (site not in done.participants)
        kept = done.progress.kept


def test_the_pull_on_a_cnn_is_taken_weight_by_weight() -> None:
    """Against autograd on the plain model: its convolutions are stored in another order."""
    sites = [image_rows(7, seed=0), image_rows(5, seed=1)]
    federation = Simulation(small_cnn(), brier_loss, sites)
    method = Ditto(2.0, learning_rate=0.3, personal_rate=0.1, epochs=3, batch_size=None)
    theta = start_vector(small_cnn())
    personal = [theta, theta]
    for done in train(federation, method, rounds=3):
        for site, rows in enumerate(sites):
            for _ in range(3):
                v = personal[site]
                personal[site] = v - 0.1 * (mean_gradient(v, rows) + 2.0 * (v - theta))
        expected = torch.stack(personal)
        torch.testing.assert_close(done.progress.kept, expected, rtol=0, atol=1e-12)
        theta = done.parameters()


def test_settings_that_make_no_sense_are_refused() -> None:
    assert "pull = -1; give zero or a positive number" in complaint_of(lambda: Ditto(-1.0))
    message = complaint_of(lambda: Ditto(personal_rate=0.0))
    assert "personal_rate = 0; give a positive number" in message
    assert "learning_rate = 0" in complaint_of(lambda: Ditto(learning_rate=0.0))
    assert "epochs = 0" in complaint_of(lambda: Ditto(epochs=0))
    assert "batch_size = 0" in complaint_of(lambda: Ditto(batch_size=0))
