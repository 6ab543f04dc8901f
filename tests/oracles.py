"""The methods' papers as plain numpy loops, written without the library.

Softmax regression under the Brier score: with p = softmax(z), e the one-hot target and
g = 2 (p - e) = d loss / d p, the softmax Jacobian gives d loss / d z_j = p_j (g_j - <p, g>).
Theta is the weight matrix row by row, then the bias.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import LinearConstraint, NonlinearConstraint, minimize

from tests.problems import Problem, Vector

Labels = NDArray[np.int64]
Functions = Callable[[Vector], tuple[Vector, Vector]]
"""Maps a point to all functions' values [A] and slopes [A, f]."""


def brier_gradient(
    problem: Problem, theta: Vector, x: Vector, y: Labels, row_weights: Vector
) -> Vector:
    """Return sum_i row_weights[i] * grad loss_i."""
    p, e = problem.probabilities(theta, x), np.eye(problem.classes)[y]
    g = 2.0 * (p - e)
    dz = p * (g - (p * g).sum(axis=1, keepdims=True)) * row_weights[:, None]
    return np.concatenate([(dz.T @ x).reshape(-1), dz.sum(axis=0)])


def project_by_bisection(vector: Vector, *, floor: float = 0.0, total: float = 1.0) -> Vector:
    """Solve sum_i max(v_i - tau, floor) = total for tau: the KKT conditions of the projection.

    The left side falls from above ``total`` to ``floor * size`` as tau goes through the bracket.
    """
    low = float(vector.min()) - total - 1.0
    high = float(vector.max())
    for _ in range(200):
        middle = 0.5 * (low + high)
        if np.maximum(vector - middle, floor).sum() > total:
            low = middle
        else:
            high = middle
    projected: Vector = np.maximum(vector - 0.5 * (low + high), floor)
    return projected


@dataclass(frozen=True)
class Trace:
    """thetas[t], weights[t] after round t (entry 0: the start); risks[t-1] used in round t."""

    thetas: list[Vector]
    weights: list[Vector]
    risks: list[Vector]

    @property
    def average(self) -> Vector:
        """(1/T) sum_{t=1..T} theta^t."""
        mean: Vector = np.mean(self.thetas[1:], axis=0)
        return mean


def fedminmax_by_hand(
    problem: Problem, *, rounds: int, eta: float, eta_mu: float, epsilon: float = 0.0
) -> Trace:
    """Algorithm 1 of Papadaki et al. 2021, client by client."""
    rows = problem.numpy_rows()
    n_a = np.zeros(problem.groups)
    for _, _, group in rows:
        n_a += np.bincount(group, minlength=problem.groups)
    n = n_a.sum()
    rho = n_a / n
    start = rho if epsilon == 0.0 else project_by_bisection(rho, floor=epsilon)
    trace = Trace([problem.start], [start], [])
    for _ in range(rounds):
        theta, mu = trace.thetas[-1], trace.weights[-1]
        average, loss = np.zeros_like(theta), np.zeros(problem.groups)
        for x, y, group in rows:
            n_k = len(y)
            gradient = brier_gradient(problem, theta, x, y, (mu / rho)[group]) / n_k
            average += n_k / n * (theta - eta * gradient)
            loss += np.bincount(group, problem.brier_losses(theta, x, y), problem.groups)
        risks = loss / n_a
        trace.thetas.append(average)
        trace.risks.append(risks)
        trace.weights.append(project_by_bisection(mu + eta_mu * risks, floor=epsilon))
    return trace


def centralized_by_hand(problem: Problem, *, rounds: int, eta: float, eta_mu: float) -> Trace:
    """Algorithm 2: pooled rows, gradient sum_a mu_a grad r_a."""
    rows = problem.numpy_rows()
    x = np.concatenate([own for own, _, _ in rows])
    y = np.concatenate([own for _, own, _ in rows])
    group = np.concatenate([own for _, _, own in rows])
    mine = [group == a for a in range(problem.groups)]
    trace = Trace([problem.start], [np.array([own.mean() for own in mine])], [])
    for _ in range(rounds):
        theta, mu = trace.thetas[-1], trace.weights[-1]
        gradient = np.zeros_like(theta)
        for weight, own in zip(mu, mine, strict=True):
            each = np.full(own.sum(), weight / own.sum())
            gradient += brier_gradient(problem, theta, x[own], y[own], each)
        losses = problem.brier_losses(theta, x, y)
        trace.risks.append(np.array([losses[own].mean() for own in mine]))
        trace.thetas.append(theta - eta * gradient)
        trace.weights.append(project_by_bisection(mu + eta_mu * trace.risks[-1]))
    return trace


def afl_by_hand(
    problem: Problem, *, rounds: int, eta: float, eta_lambda: float, start: Vector
) -> Trace:
    """AFL, non-stochastic: theta^t = sum_k lambda_k theta_k, lambda ascends on site risks."""
    rows = problem.numpy_rows()
    trace = Trace([problem.start], [start], [])
    for _ in range(rounds):
        theta, weights = trace.thetas[-1], trace.weights[-1]
        own = [theta - eta * _mean_gradient(problem, theta, x, y) for x, y, _ in rows]
        risks = np.array([problem.brier_losses(theta, x, y).mean() for x, y, _ in rows])
        trace.thetas.append(np.sum([w * t for w, t in zip(weights, own, strict=True)], axis=0))
        trace.risks.append(risks)
        trace.weights.append(project_by_bisection(weights + eta_lambda * risks))
    return trace


def fedavg_by_hand(problem: Problem, *, rounds: int, eta: float, epochs: int) -> list[Vector]:
    """FedAvg with full batches: mean of the sites' models, weighted by rows."""
    rows = problem.numpy_rows()
    n = sum(len(y) for _, y, _ in rows)
    thetas = [problem.start]
    for _ in range(rounds):
        mean = np.zeros_like(problem.start)
        for x, y, _ in rows:
            mean += len(y) / n * _descend_locally(problem, thetas[-1], x, y, eta, epochs)
        thetas.append(mean)
    return thetas


def qfedavg_by_hand(
    problem: Problem, *, q: float, rounds: int, eta: float, epochs: int, by_rows: bool
) -> list[Vector]:
    """q-FedAvg from the plain formulas Delta_k = F^q v, h_k = q F^{q-1} |v|^2 + L F^q."""
    rows = problem.numpy_rows()
    n = sum(len(y) for _, y, _ in rows)
    lipschitz = 1.0 / eta
    thetas = [problem.start]
    for _ in range(rounds):
        theta = thetas[-1]
        numerator, denominator = np.zeros_like(theta), 0.0
        for x, y, _ in rows:
            p = len(y) / n if by_rows else 1.0 / len(rows)
            loss = float(problem.brier_losses(theta, x, y).mean())
            v = lipschitz * (theta - _descend_locally(problem, theta, x, y, eta, epochs))
            numerator += p * loss**q * v
            denominator += p * (q * loss ** (q - 1.0) * float(v @ v) + lipschitz * loss**q)
        thetas.append(theta - numerator / denominator)
    return thetas


def _mean_gradient(problem: Problem, theta: Vector, x: Vector, y: Labels) -> Vector:
    return brier_gradient(problem, theta, x, y, np.full(len(y), 1.0 / len(y)))


def _descend_locally(
    problem: Problem, theta: Vector, x: Vector, y: Labels, eta: float, epochs: int
) -> Vector:
    for _ in range(epochs):
        theta = theta - eta * _mean_gradient(problem, theta, x, y)
    return theta


def lowest_maximum(functions: Functions, start: Vector, cone: Vector | None = None) -> float:
    """Minimise t with q_a(x) <= t, an ordinary smooth programme, by SLSQP.

    With a ``cone``, cone x >= 0 holds, too, at the start as well.
    """

    def room(both: Vector) -> Vector:
        return np.asarray(both[-1] - functions(both[:-1])[0])

    def slope_of_room(both: Vector) -> Vector:
        values, slopes = functions(both[:-1])
        both_slopes: Vector = np.c_[-slopes, np.ones(len(values))]
        return both_slopes

    def height(both: Vector) -> float:
        return float(both[-1])

    def slope_of_height(both: Vector) -> Vector:
        slope: Vector = np.r_[np.zeros(len(both) - 1), 1.0]
        return slope

    constraints: list[NonlinearConstraint | LinearConstraint]
    constraints = [NonlinearConstraint(room, 0.0, np.inf, jac=slope_of_room)]
    if cone is not None:
        lines = np.c_[cone, np.zeros(len(cone))]
        constraints.append(LinearConstraint(lines, 0.0, np.inf))
    found = minimize(
        height,
        np.r_[start, functions(start)[0].max()],
        jac=slope_of_height,
        constraints=constraints,
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 2000},
    )
    return float(functions(np.asarray(found.x[:-1]))[0].max())
