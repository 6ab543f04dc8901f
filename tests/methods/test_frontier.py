"""The frontier: another solver's optimum at every point, none below the boundary, few rounds."""

from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from fedminmax.core.losses import Loss, brier_loss, cross_entropy_loss, squared_error_loss
from fedminmax.findings.frontier import corners
from fedminmax.methods.look_ahead import FedAvgFast, FedMinMaxFast
from fedminmax.methods.shared.frontier_server import (
    CLOSE,
    KEEP_SHARES,
    MAX_INCOMPLETE,
    MAX_ROUNDS,
    FrontierPoint,
    FrontierState,
)
from fedminmax.methods.shared.servers import boundary_of
from fedminmax.training.checkpoint import load_checkpoint, train_resumably
from fedminmax.training.progress import initial_progress
from fedminmax.training.simulation import Simulation
from fedminmax.training.train import fit, train
from tests.complaints import complaint_of
from tests.methods.look_ahead_problems import Rows, by_group, classes, network, worst_by_scipy

RIDGE = 1e-2
ALL = FedMinMaxFast(keep_share=0.3, frontier=True)


def federation_of(rows: Rows, kinds: int = 2, minimum_group: int = 0) -> Simulation:
    torch.manual_seed(0)
    model = nn.Linear(rows[0].shape[1], kinds).double()
    return Simulation(model, cross_entropy_loss, [rows], ridge=RIDGE, minimum_group=minimum_group)


def found_in(federation: Simulation, method: FedMinMaxFast = ALL) -> tuple[FrontierState, int]:
    """The complete frontier, and its rounds."""
    last = fit(federation, method, rounds=200)
    state = last.progress.state
    assert isinstance(state, FrontierState)
    assert state.is_complete
    return state, last.number


def mix(point: FrontierPoint) -> float:
    return point.keep_share * point.mean + (1.0 - point.keep_share) * point.worst


@pytest.mark.parametrize("seed", range(6))
def test_every_point_is_that_of_another_solver(seed: int) -> None:
    kinds, groups = 2 + seed % 2, 2 + seed % 4
    rows = classes(seed, groups, 3, kinds)
    state, _ = found_in(federation_of(rows, kinds))
    assert [point.keep_share for point in state.points] == list(KEEP_SHARES)
    for point in state.points:
        value = worst_by_scipy(rows, kinds, RIDGE, point.keep_share)
        proved = point.certificate
        assert proved.lower - 1e-7 <= value <= proved.upper + 1e-7
        assert mix(point) == pytest.approx(value, rel=2e-3)
        assert mix(point) <= proved.upper + 1e-6
        assert proved.gap < 5e-3
    gaps = [point.certificate.gap for point in state.points]
    assert sum(gap <= CLOSE for gap in gaps) >= len(gaps) - 3


@pytest.mark.parametrize("seed", range(6))
def test_the_curve_is_monotone_and_no_model_is_below_the_boundary(seed: int) -> None:
    rows = classes(seed, 4, 3, 2)
    federation = federation_of(rows)
    state, _ = found_in(federation)
    for before, after in pairwise(state.points):
        room = 2.0 * max(before.certificate.gap, after.certificate.gap) * after.worst + 1e-9
        assert after.worst <= before.worst + room / max(1.0 - after.keep_share, 0.02)
        assert after.mean >= before.mean - room / max(before.keep_share, 0.01)
    lines = [(point.keep_share, point.certificate.lower) for point in state.points]
    edge = corners(lines)
    x, y, group = rows
    rng = torch.Generator().manual_seed(seed)
    models = [*state.models, *(0.3 * torch.randn(200, 8, generator=rng).double())]
    for number, base in enumerate(state.models):
        noise = 10.0 ** -(1 + number % 4) * torch.randn(20, 8, generator=rng).double()
        models += list(base + noise * base.abs())
    for parameters in models:
        weight, bias = parameters[:6].reshape(2, 3), parameters[6:]
        with torch.no_grad():
            losses = cross_entropy_loss(x @ weight.T + bias, y)
        penalty = 0.5 * RIDGE * float(parameters @ parameters)
        risks = [float(losses[group == a].mean()) + penalty for a in range(4)]
        mean, worst = float(losses.mean()) + penalty, max(risks)
        for keep, lower in lines:
            assert keep * mean + (1.0 - keep) * worst >= lower - 1e-9
    for (mean, worst), (keep, lower) in zip(edge[:1], lines[:1], strict=True):
        assert keep * mean + (1.0 - keep) * worst == pytest.approx(lower, rel=1e-6)


def test_corners_are_those_of_the_lowest_points_of_all_lines() -> None:
    """The boundary as a function: for a given mean, the lowest worst risk that all lines allow."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        keeps = np.sort(rng.uniform(0.0, 1.0, 7))[::-1]
        lines = [(1.0, 0.2), *((float(k), float(rng.uniform(0.2, 0.6))) for k in keeps), (0.0, 0.3)]
        edge = corners(lines)
        assert all(after[0] >= before[0] - 1e-12 for before, after in pairwise(edge))
        for mean in np.linspace(edge[0][0] + 1e-9, edge[-1][0], 30):
            lowest = max((low - k * mean) / (1.0 - k) for k, low in lines if k < 1.0)
            drawn = np.interp(mean, [own[0] for own in edge], [own[1] for own in edge])
            assert drawn == pytest.approx(lowest, abs=1e-9)


@pytest.mark.parametrize("method", [ALL, FedMinMaxFast(tolerance=0.005, frontier=True)])
@pytest.mark.parametrize("seed", range(4))
def test_at_most_fifteen_rounds_more_than_one_run_with_its_baseline(
    seed: int, method: FedMinMaxFast
) -> None:
    """And the recommended model is as close to its optimum as that of a run for it alone."""
    federation = federation_of(classes(seed, 6, 5, 2, rows=3000))
    alone = fit(federation, replace(method, frontier=False), rounds=100)
    plain = fit(federation, FedAvgFast(), rounds=100).number
    state, rounds = found_in(federation, method)
    assert rounds <= alone.number + plain + 15
    assert state.points[state.recommended].certificate.gap <= method.optimality_gap


def test_the_answer_is_the_recommended_point() -> None:
    federation = federation_of(classes(3, 3, 3, 2))
    method = FedMinMaxFast(keep_share=0.4, frontier=True)
    last = fit(federation, method, rounds=100)
    state = last.progress.state
    assert isinstance(state, FrontierState)
    point = state.points[state.recommended]
    assert point.keep_share == 0.4
    assert len(state.points) == len(KEEP_SHARES) + 1
    assert torch.equal(last.members, state.models[state.recommended].unsqueeze(0))
    assert last.certificate == point.certificate
    alone = fit(federation, FedMinMaxFast(keep_share=0.4), rounds=100).certificate
    assert alone is not None
    assert point.certificate.upper == pytest.approx(alone.upper, rel=3e-4)


@pytest.mark.parametrize("tolerance", [1e-3, 1e-2, 0.1])
def test_with_a_tolerance_the_lowest_mean_within_it_is_recommended(tolerance: float) -> None:
    federation = federation_of(classes(4, 4, 3, 2))
    method = FedMinMaxFast(tolerance=tolerance, frontier=True)
    last = fit(federation, method, rounds=200)
    state, alone = last.progress.state, replace(method, frontier=False)
    proof = fit(federation, alone, rounds=200).certificate
    assert isinstance(state, FrontierState)
    assert proof is not None
    assert proof.limit is not None
    own = state.points[state.recommended]
    assert len(state.points) == len(KEEP_SHARES)
    assert state.spent <= MAX_ROUNDS
    assert own.worst <= proof.limit * (1 + 1e-4)
    # That of a run for this tolerance alone, whose bound of the worst risk is not the same.
    assert own.mean == pytest.approx(proof.mean, rel=2e-4)
    assert own.certificate.gap <= method.optimality_gap
    keeps = [point.keep_share for point in state.points]
    assert keeps == sorted(keeps, reverse=True)
    assert torch.equal(last.members, state.models[state.recommended].unsqueeze(0))


def test_if_the_plain_model_is_within_the_tolerance_it_is_recommended() -> None:
    federation = federation_of(classes(4, 4, 3, 2))
    state, _ = found_in(federation, FedMinMaxFast(tolerance=0.9, frontier=True))
    assert state.recommended == 0


def test_small_groups_keep_their_share_in_every_point() -> None:
    rows = classes(5, 4, 3, 2, rows=200)
    counts = torch.bincount(rows[2])
    federation = federation_of(rows, minimum_group=int(counts.min()) + 1)
    included = federation.census.included
    assert not bool(included.all())
    state, _ = found_in(federation)
    shares = counts.double() / counts.sum()
    for point in state.points:
        risks = torch.tensor(point.risks, dtype=torch.float64)
        worst = float(shares[included].sum() * risks[included].max())
        worst += float(shares[~included] @ risks[~included])
        assert point.worst == pytest.approx(worst, rel=1e-12)
        assert mix(point) == pytest.approx(point.certificate.upper, rel=1e-6)


def test_squared_errors_take_one_round_per_point() -> None:
    rng = np.random.default_rng(0)
    group = torch.from_numpy(rng.integers(0, 3, 90))
    x = torch.from_numpy(rng.normal(size=(90, 4)))
    y = torch.from_numpy(rng.normal(size=90)) + x[:, 0] * group
    model = nn.Linear(4, 1).double()
    federation = Simulation(model, squared_error_loss, [(x, y, group)], ridge=RIDGE)
    state, rounds = found_in(federation)
    assert rounds <= len(KEEP_SHARES) + 2
    assert max(point.certificate.gap for point in state.points) <= 1e-4


@pytest.mark.parametrize("method", [ALL, FedMinMaxFast(tolerance=0.01, frontier=True)])
def test_a_stopped_run_ends_with_the_same_points(method: FedMinMaxFast, tmp_path: Path) -> None:
    federation = federation_of(classes(1, 3, 3, 2))
    whole, rounds = found_in(federation, method)
    for stop in (1, 4, rounds - 5, rounds - 1, rounds):
        for _ in train_resumably(tmp_path, federation, method, rounds=stop):
            pass
    restored = load_checkpoint(tmp_path, initial_progress(federation, method))
    assert restored is not None
    state = restored.progress.state
    assert restored.progress.round == rounds
    assert isinstance(state, FrontierState)
    assert torch.equal(state.models, whole.models)
    assert state.points == whole.points


def test_a_round_without_all_sites_is_repeated_and_in_the_end_refused() -> None:
    x, y, group = classes(2, 3, 3, 2, rows=300)
    parts = [(x[place::3], y[place::3], group[place::3]) for place in range(3)]
    federation = Simulation(nn.Linear(3, 2).double(), cross_entropy_loss, parts, ridge=RIDGE)
    rounds = train(federation, ALL, rounds=60, participation=0.5)
    states = [done.progress.state for done in islice(rounds, MAX_INCOMPLETE)]
    assert all(torch.equal(own.parameters, states[0].parameters) for own in states)
    assert "a frontier needs all sites" in complaint_of(lambda: next(rounds))


@pytest.mark.parametrize("tolerance", [0.0, 0.01])
def test_the_rounds_of_any_run_prove_a_boundary(tolerance: float) -> None:
    rows = classes(2, 3, 3, 2)
    federation = federation_of(rows)
    last = fit(federation, FedMinMaxFast(tolerance=tolerance), rounds=100)
    found = boundary_of(last.progress.state)
    assert found is not None
    assert found.worst is not None
    for keep, lower in found.lines:
        assert lower <= worst_by_scipy(rows, 2, RIDGE, keep) + 1e-7
        assert lower <= keep * found.mean + (1.0 - keep) * found.worst + 1e-9
    least = dict(found.lines)[0.0]
    assert least == pytest.approx(worst_by_scipy(rows, 2, RIDGE), rel=max(1e-4, tolerance))
    plain = boundary_of(fit(federation, FedAvgFast(), rounds=100).progress.state)
    assert plain is not None
    assert (plain.worst, plain.lines) == (None, ())
    assert plain.mean == pytest.approx(worst_by_scipy(rows, 2, RIDGE, 1.0), rel=1e-4)
    assert boundary_of(fit(federation, ALL, rounds=100).progress.state) is None


def refusal(
    method: FedMinMaxFast, model: nn.Module, loss: Loss = cross_entropy_loss, ridge: float = RIDGE
) -> str:
    federation = Simulation(model, loss, by_group(classes(0, 2, 3, 2)), ridge=ridge)
    return complaint_of(lambda: fit(federation, method, rounds=1))


def test_what_has_no_certified_frontier_is_refused() -> None:
    linear = nn.Linear(3, 2).double()
    assert "a network's risk is not convex" in refusal(ALL, network(0), ridge=0.0)
    assert "Brier" in refusal(ALL, linear, brier_loss)
    assert "without a ridge" in refusal(ALL, linear, ridge=0.0)
    assert "drop min_weight" in refusal(FedMinMaxFast(0.1, frontier=True), linear)
    assert "curvature = true" in refusal(FedMinMaxFast(curvature=False, frontier=True), linear)
