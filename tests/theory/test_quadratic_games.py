"""Quadratic games with known saddle points, derived below.

r_a = |theta - c_a|^2 / 2 + b_a; targets c_a +- s give b_a = s^2 / 2. The dual is
g(mu) = sum_a mu_a b_a + sum_a mu_a |c_a - c_mu|^2 / 2 with theta = c_mu = sum_a mu_a c_a.

Two groups at c = 0, 1 with b_0 = b, b_1 = 0: g(m) = (1 - m) b + m (1 - m) / 2 for m = mu_1, so
m* = theta* = 1/2 - b, clipped to [0, 1]. As long as no weight is cut off, a round is linear: with
r_1 - r_0 = 1/2 - theta - b and the projection halving the difference,

    d_t = (theta - theta*, m - m*),   d_{t+1} = A d_t,   A = [[1 - eta, eta], [-eta_mu/2, 1]].

det A = 1 - eta + eta eta_mu / 2 = .625 for eta = eta_mu = .5, and the eigenvalues are complex:
their modulus is sqrt(.625) < .8, so after 200 rounds d is below 1e-19. Summing the geometric
series, the average iterate is off by exactly (I - A)^{-1} (A - A^{T+1}) d_0 / T.
"""

import numpy as np
import pytest

from fedminmax.core.iterates import Iterate
from fedminmax.methods.fedminmax import FedMinMax, FedMinMaxState
from fedminmax.training.train import Round, train
from tests.problems import Rows, Vector, points, quadratic_federation, to_numpy

ETA = 0.5
SYSTEM = np.array([[1.0 - ETA, ETA], [-ETA / 2, 1.0]])


def two_groups(offset: float) -> Rows:
    """c = 0 (with variance 2 * offset) and c = 1, two rows each: rho = (1/2, 1/2)."""
    spread = float(np.sqrt(2.0 * offset))
    return points([[[-spread], [spread]], [[1.0], [1.0]]])


def run(
    start: list[float], rows: Rows, rounds: int, eta: float = ETA, eta_mu: float = ETA
) -> list[Round[FedMinMaxState]]:
    method = FedMinMax(learning_rate=eta, adversary_rate=eta_mu)
    return list(train(quadratic_federation(start, [rows]), method, rounds=rounds))


def risks_at(theta: Vector, rows: Rows) -> list[float]:
    targets, group = to_numpy(rows[1]), to_numpy(rows[2])
    losses = 0.5 * ((targets - theta) ** 2).sum(axis=1)
    return [float(losses[group == a].mean()) for a in range(int(group.max()) + 1)]


@pytest.mark.parametrize(
    ("offset", "theta", "risk"), [(0.0, 0.5, 0.125), (0.25, 0.25, 0.28125), (0.1, 0.4, 0.18)]
)
def test_interior_saddle(offset: float, theta: float, risk: float) -> None:
    rows = two_groups(offset)
    last = run([0.3], rows, 200)[-1]
    found = to_numpy(last.parameters(Iterate.LAST))
    np.testing.assert_allclose(found, [theta], atol=1e-13)
    np.testing.assert_allclose(to_numpy(last.weights), [1.0 - theta, theta], atol=1e-13)
    np.testing.assert_allclose(risks_at(found, rows), [risk, risk], atol=1e-13)


@pytest.mark.parametrize("rounds", [1, 10, 200])
def test_the_average_iterate_is_off_by_the_geometric_series(rounds: int) -> None:
    offset, saddle = 0.1, np.array([0.4, 0.4])
    done = run([0.3], two_groups(offset), rounds)
    assert all(float(one.weights.min()) > 0.0 for one in done)
    before = np.array([0.3, 0.5]) - saddle
    power = np.linalg.matrix_power(SYSTEM, rounds)
    total = np.linalg.solve(np.eye(2) - SYSTEM, (np.eye(2) - power) @ SYSTEM @ before)
    average = to_numpy(done[-1].parameters(Iterate.AVERAGE))
    np.testing.assert_allclose(average, saddle[:1] + total[:1] / rounds, atol=1e-14)


@pytest.mark.parametrize("offset", [0.5, 0.75, 2.0])
def test_corner_with_unequal_risks(offset: float) -> None:
    """b >= 1/2: nothing helps group 0 but its own optimum; mu* = (1, 0), theta* = 0.

    At b = 1/2 itself the weight only fades out like 1/t, so allow that.
    """
    rows = two_groups(offset)
    last = run([0.3], rows, 400)[-1]
    found = to_numpy(last.parameters(Iterate.LAST))
    tolerance = 1e-13 if offset > 0.5 else 4.0 / 400
    np.testing.assert_allclose(to_numpy(last.weights), [1.0, 0.0], atol=tolerance)
    np.testing.assert_allclose(found, [0.0], atol=tolerance)
    np.testing.assert_allclose(risks_at(found, rows), [offset, 0.5], atol=tolerance)


def test_obtuse_triangle_leaves_the_third_group_without_weight() -> None:
    """c = (0,0), (4,0), (2,.5): the first two alone decide; theta* = (2, 0), mu* = (1/2, 1/2, 0).

    Along the first axis A = [[1 - eta, 4 eta], [-2 eta_mu, 1]]; eta = .5 and eta_mu = .05 give
    det A = .7, so the modulus is .84 and 300 rounds leave 1e-22.
    """
    rows = points([[[0.0, 0.0]], [[4.0, 0.0]], [[2.0, 0.5]]])
    last = run([1.0, 1.0], rows, 300, eta=0.5, eta_mu=0.05)[-1]
    found = to_numpy(last.parameters(Iterate.LAST))
    np.testing.assert_allclose(found, [2.0, 0.0], atol=1e-12)
    np.testing.assert_allclose(to_numpy(last.weights), [0.5, 0.5, 0.0], atol=1e-12)
    np.testing.assert_allclose(risks_at(found, rows), [2.0, 2.0, 0.125], atol=1e-12)


def test_at_the_saddle_a_round_is_the_identity() -> None:
    done = run([0.5], two_groups(0.0), 5)[-1]
    assert done.parameters(Iterate.LAST).tolist() == [0.5]
    assert done.weights.tolist() == [0.5, 0.5]


def test_a_group_whose_weight_became_zero_comes_back() -> None:
    """From theta = 5 the risks are (12.5, 8): group 1 loses all weight in the first round.

    Its risk is still counted, so when theta nears c_0 = 0 and r_1 exceeds r_0, it re-enters, and
    the game ends at its saddle (1/2, 1/2).
    """
    done = run([5.0], two_groups(0.0), 400)
    assert done[0].weights.tolist() == [1.0, 0.0]
    assert float(done[0].risks[1]) == 8.0
    back = next(one.number for one in done if float(one.weights[1]) > 0.0)
    assert back > 2
    assert all(one.weights.tolist() == [1.0, 0.0] for one in done[: back - 1])
    assert float(done[back - 1].risks[1]) > float(done[back - 1].risks[0])
    np.testing.assert_allclose(to_numpy(done[-1].weights), [0.5, 0.5], atol=1e-12)
    np.testing.assert_allclose(to_numpy(done[-1].parameters(Iterate.LAST)), [0.5], atol=1e-12)


def test_a_floor_moves_the_corner_inside() -> None:
    """mu* = (1 - epsilon, epsilon) and theta* = c_mu = epsilon."""
    method = FedMinMax(learning_rate=ETA, adversary_rate=ETA, min_weight=0.05)
    federation = quadratic_federation([0.3], [two_groups(0.75)])
    last = list(train(federation, method, rounds=200))[-1]
    np.testing.assert_allclose(to_numpy(last.weights), [0.95, 0.05], atol=1e-13)
    np.testing.assert_allclose(to_numpy(last.parameters(Iterate.LAST)), [0.05], atol=1e-13)
