"""The lowest mean among models whose worst group is nearly as well off as it can be."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import NonlinearConstraint, minimize
from torch import nn

from fedminmax.core.certificate import Certificate
from fedminmax.core.errors import InputError
from fedminmax.core.losses import cross_entropy_loss, squared_error_loss
from fedminmax.methods.look_ahead import AFLFast, FedMinMaxFast
from fedminmax.methods.shared.second_order_step import with_allowed, worst_risk
from fedminmax.training.checkpoint import train_resumably
from fedminmax.training.simulation import Simulation
from fedminmax.training.train import Round, fit
from tests.methods.test_second_order_absences import EVERYBODY, WITHOUT_HARD, state_after
from tests.oracles import lowest_maximum
from tests.problems import Rows, Vector

RIDGE, FEATURES, LARGE = 0.02, 3, 30
Risks = Callable[[Vector], tuple[Vector, Vector]]


def rows_of(seed: int, *, classes: bool) -> Rows:
    """Two to six groups with patterns of their own; with an odd seed, two small ones beside."""
    rng = np.random.default_rng(seed)
    groups = 2 + seed % 5
    sizes = [*rng.integers(LARGE, 90, groups), *([3, 2] if seed % 2 else [])]
    group = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    x = rng.normal(size=(len(group), FEATURES))
    patterns = rng.normal(size=FEATURES) + 0.8 * rng.normal(size=(len(sizes), FEATURES))
    score = np.einsum("nf,nf->n", x, patterns[group]) + (0.5 + 0.3 * group) * rng.normal(
        size=len(group)
    )
    y = (score > 0).astype(np.int64) if classes else score
    return torch.from_numpy(x), torch.from_numpy(y), torch.from_numpy(group)


def risks_by_hand(rows: Rows, *, classes: bool) -> Risks:
    """Penalised risks and slopes of all groups; two outputs are (-u, u), of norm sqrt(2) |u|."""
    x, y, group = (part.numpy() for part in rows)
    inputs = np.c_[x, np.ones(len(x))]
    own = [group == a for a in range(group.max() + 1)]

    def risks(u: Vector) -> tuple[Vector, Vector]:
        scores, times = inputs @ u, 2.0 if classes else 1.0
        if classes:
            sides = np.where(y == 1, 1.0, -1.0)
            losses = np.logaddexp(0.0, -2.0 * sides * scores)
            pulls = -2.0 * sides / (1.0 + np.exp(2.0 * sides * scores))
        else:
            losses, pulls = (scores - y) ** 2, 2.0 * (scores - y)
        penalty = 0.5 * RIDGE * times * float(u @ u)
        values = np.array([losses[part].mean() + penalty for part in own])
        slopes = [pulls[part] @ inputs[part] / part.sum() + RIDGE * times * u for part in own]
        return values, np.array(slopes)

    return risks


def mixture(rows: Rows) -> Vector:
    """What the adversary chooses from: large groups, each with the small ones' shares beside."""
    counts = np.bincount(rows[2].numpy())
    shares, large = counts / counts.sum(), counts >= LARGE
    small: Vector = np.where(large, 0.0, shares)
    matrix: Vector = (1.0 - small.sum()) * np.eye(len(counts))[large] + small
    return matrix


def lowest_mean(risks: Risks, game: Vector, shares: Vector, limit: float | Vector) -> float:
    """Minimise the mean subject to the limit, by SLSQP, from several starts."""

    def mean(u: Vector) -> float:
        return float(shares @ risks(u)[0])

    def slope_of_mean(u: Vector) -> Vector:
        slope: Vector = shares @ risks(u)[1]
        return slope

    def own_risks(u: Vector) -> Vector:
        values: Vector = game @ risks(u)[0]
        return values

    def own_slopes(u: Vector) -> Vector:
        slopes: Vector = game @ risks(u)[1]
        return slopes

    found = [
        minimize(
            mean,
            start,
            jac=slope_of_mean,
            constraints=[NonlinearConstraint(own_risks, -np.inf, limit, jac=own_slopes)],
            method="SLSQP",
            options={"maxiter": 500, "ftol": 1e-13},
        )
        for start in (np.zeros(FEATURES + 1), np.full(FEATURES + 1, 0.1))
    ]
    allowed = [own.fun for own in found if (own_risks(own.x) <= limit + 1e-8).all()]
    return float(min(allowed))


def near(rows: Rows, method: Any, *, classes: bool, parts: int = 1, rounds: int = 40) -> Round[Any]:
    return fit(simulation(rows, classes=classes, parts=parts), method, rounds=rounds)


def simulation(rows: Rows, *, classes: bool, parts: int = 1) -> Simulation:
    x, y, group = rows
    model = nn.Linear(FEATURES, 2 if classes else 1, dtype=torch.float64)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    sites = [(x[part::parts], y[part::parts], group[part::parts]) for part in range(parts)]
    loss = cross_entropy_loss if classes else squared_error_loss
    return Simulation(model, loss, sites, ridge=RIDGE, minimum_group=LARGE)


def proof_of(done: Round[Any]) -> tuple[Certificate, float, float, float]:
    """The certificate, and its limit, mean and bound on the mean."""
    proof = done.certificate
    assert proof is not None
    assert proof.limit is not None
    assert proof.mean is not None
    assert proof.min_mean is not None
    return proof, proof.limit, proof.mean, proof.min_mean


@pytest.mark.parametrize("seed", range(60))
def test_both_claims_bracket_another_solvers_optimum(seed: int) -> None:
    classes, tolerance = seed % 3 > 0, (0.001, 0.005, 0.02, 0.1)[seed % 4]
    rows = rows_of(seed, classes=classes)
    risks, game = risks_by_hand(rows, classes=classes), mixture(rows)
    shares = np.bincount(rows[2].numpy()) / len(rows[0])
    done = near(rows, FedMinMaxFast(tolerance=tolerance), classes=classes)
    proof, limit, mean, min_mean = proof_of(done)
    optimum = lowest_maximum(
        lambda u: (game @ risks(u)[0], game @ risks(u)[1]), np.zeros(FEATURES + 1)
    )
    assert proof.lower <= optimum * (1 + 1e-7)
    assert optimum * (1 - 1e-7) <= proof.upper <= limit
    # The first phase leaves a quarter of the tolerance open.
    assert 1.0 + 0.7 * tolerance <= limit / optimum <= (1.0 + tolerance) * (1 + 1e-7)
    best = lowest_mean(risks, game, shares, limit)
    assert min_mean <= best * (1 + 1e-7)
    assert best * (1 - 1e-6) <= mean
    assert proof.gap <= 1e-4
    # The returned model has these risks.
    flat = done.members[0].numpy()
    width = 2 * FEATURES if classes else FEATURES
    u = np.r_[flat[width - FEATURES : width], flat[-1]]
    values = risks(u)[0]
    assert (game @ values).max() == pytest.approx(proof.upper, rel=1e-9)
    assert shares @ values == pytest.approx(mean, rel=1e-9)


def test_a_model_above_the_limit_is_not_kept_however_low_its_mean() -> None:
    state = near(rows_of(3, classes=True), FedMinMaxFast(tolerance=0.02), classes=True)
    server = state.progress.state
    other, limit = server.allowed.model + 1.0, server.allowed.limit
    for worst, is_kept in ((limit * (1 + 1e-4), False), (limit * (1 - 1e-4), True)):
        risks = torch.full_like(server.allowed.risks, 0.5 * server.allowed.mean)
        risks[int(server.fixed.included.nonzero()[0])] += worst - worst_risk(server, risks, 0.0)
        excess = worst - worst_risk(server, risks, 0.0)
        risks[int(server.fixed.included.nonzero()[0])] += excess / server.fixed.free
        after = with_allowed(server, other, risks, 0.0).allowed
        assert torch.equal(after.model, other) == is_kept


@pytest.mark.parametrize("seed", [0, 3, 6, 11])
def test_a_tiny_ridge_does_not_end_a_run_before_both_claims_are_close(seed: int) -> None:
    """The less a ridge bends, the closer to the optimum a model must be to prove the bound."""
    model = nn.Linear(FEATURES, 2).double()
    for own in model.parameters():
        nn.init.zeros_(own)
    federation = Simulation(model, cross_entropy_loss, [rows_of(seed, classes=True)], ridge=1e-7)
    proof, *_ = proof_of(fit(federation, FedMinMaxFast(tolerance=0.005), rounds=40))
    assert proof.gap <= 1e-4


@pytest.mark.parametrize("classes", [True, False])
def test_a_larger_tolerance_has_a_lower_mean_and_none_is_exact_minimax(*, classes: bool) -> None:
    rows = rows_of(3, classes=classes)
    exact = near(rows, FedMinMaxFast(optimality_gap=1e-7), classes=classes).certificate
    assert exact is not None
    assert exact.limit is None
    tolerances = (1e-5, 1e-4, 1e-3, 1e-2, 0.1, 0.5)
    found = [
        proof_of(near(rows, FedMinMaxFast(tolerance=own, optimality_gap=1e-6), classes=classes))
        for own in tolerances
    ]
    means = [mean for _, _, mean, _ in found]
    assert means == sorted(means, reverse=True)
    assert found[0][0].upper == pytest.approx(exact.upper, rel=2e-5)
    # With room for it, the plain model is the answer, and the worst risk is below the limit.
    risks, counts = risks_by_hand(rows, classes=classes), np.bincount(rows[2].numpy())
    shares = counts[None, :] / counts.sum()
    plain = lowest_maximum(
        lambda u: (shares @ risks(u)[0], shares @ risks(u)[1]), np.zeros(FEATURES + 1)
    )
    assert means[-1] == pytest.approx(plain, rel=1e-5)
    assert found[-1][0].upper < found[-1][1]


@pytest.mark.parametrize("classes", [True, False])
def test_who_holds_the_records_does_not_matter(*, classes: bool) -> None:
    rows, method = rows_of(1, classes=classes), FedMinMaxFast(tolerance=0.005)
    together, apart = (near(rows, method, classes=classes, parts=own) for own in (1, 4))
    assert together.number == apart.number
    torch.testing.assert_close(together.members, apart.members, atol=1e-8, rtol=0.0)


def test_sites_as_players_have_both_claims_too() -> None:
    rows = rows_of(2, classes=True)
    parts = 3
    done = near(rows, AFLFast(tolerance=0.01), classes=True, parts=parts)
    sites = (*rows[:2], torch.arange(len(rows[0])) % parts)
    risks = risks_by_hand(sites, classes=True)
    shares = np.bincount(sites[2].numpy()) / len(rows[0])
    proof, limit, mean, min_mean = proof_of(done)
    best = lowest_mean(risks, np.eye(parts), shares, limit)
    assert proof.players == "site"
    assert min_mean <= best * (1 + 1e-7)
    assert best * (1 - 1e-6) <= mean
    assert proof.lower <= lowest_maximum(risks, np.zeros(FEATURES + 1)) * (1 + 1e-7)


def test_a_run_is_resumed_to_the_bit_in_both_phases(tmp_path: Path) -> None:
    method = FedMinMaxFast(tolerance=0.003, optimality_gap=0.0)
    federation = simulation(rows_of(5, classes=True), classes=True, parts=2)
    whole = fit(federation, method, rounds=12)
    for stop in (2, 5, 7):
        list(train_resumably(tmp_path, federation, method, rounds=stop))
    *_, resumed = train_resumably(tmp_path, federation, method, rounds=12)
    assert torch.equal(resumed.members, whole.members)
    assert resumed.certificate == whole.certificate


def test_while_sites_are_missing_the_second_phase_waits() -> None:
    """Whatever is missing, the answer keeps to the limit on the records of all sites."""
    x, y, group = rows_of(2, classes=True)
    federation = simulation((x, y, group), classes=True, parts=4)
    method = FedMinMaxFast(tolerance=0.005)
    never = state_after(federation, [EVERYBODY] * 20, method).certificate
    rounds = [EVERYBODY if number % 3 else WITHOUT_HARD for number in range(1, 40)]
    proof = state_after(federation, rounds, method).certificate
    assert never is not None
    assert proof is not None
    assert proof.limit is not None
    assert proof.upper <= proof.limit
    assert proof.mean == pytest.approx(never.mean, rel=1e-4)


@pytest.mark.parametrize("tolerance", [-0.01, 1.0, float("nan")])
def test_a_tolerance_is_a_share(tolerance: float) -> None:
    with pytest.raises(InputError, match="from 0"):
        FedMinMaxFast(tolerance=tolerance)


def test_one_of_two_forms_is_given() -> None:
    with pytest.raises(InputError, match="give one of them"):
        FedMinMaxFast(tolerance=0.01, keep_share=0.3)


def test_a_network_has_no_tolerance() -> None:
    rows = rows_of(0, classes=True)
    model = nn.Sequential(nn.Linear(FEATURES, 4), nn.ReLU(), nn.Linear(4, 2)).double()
    federation = Simulation(model, cross_entropy_loss, [rows])
    with pytest.raises(InputError, match="keep_share instead"):
        fit(federation, FedMinMaxFast(tolerance=0.01), rounds=2)
