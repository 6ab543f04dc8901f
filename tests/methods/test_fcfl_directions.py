"""FCFL's linear programmes: what must not rise does not rise, and no mixture does better."""

from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedminmax.methods.fcfl import smoothed_maximum, stage_one_direction, stage_two_direction
from tests.problems import Vector, to_numpy

SITES = 3

gradients_of_all = st.tuples(st.integers(0, 2**32), st.sampled_from([1, 2, 3, 10])).map(
    lambda drawn: np.random.default_rng(drawn[0]).normal(size=(SITES + 1, drawn[1])) + 0.4
)


def stage_two(gradients: Vector) -> Vector:
    both = torch.from_numpy(gradients)
    return to_numpy(stage_two_direction(both[:-1], both[-1]))


def stage_one(loss: Vector, disparity: Vector, *, within_budget: bool) -> Vector:
    return to_numpy(
        stage_one_direction(
            torch.from_numpy(loss), torch.from_numpy(disparity), within_budget=within_budget
        )
    )


def best_corner(gradients: Vector, target: Vector, guarded: Vector) -> float:
    """Try every corner of {beta >= 0, sum beta = 1, <d, v> >= 0} for the largest <d, target>."""
    count = len(gradients)
    limits = np.vstack([np.eye(count), guarded @ gradients.T])
    best = -np.inf
    for chosen in combinations(range(len(limits)), count - 1):
        system = np.vstack([np.ones(count), limits[list(chosen)]])
        if np.linalg.cond(system) > 1e10:
            continue
        beta = np.linalg.solve(system, np.eye(count)[0])
        if (limits @ beta >= -1e-9).all():
            best = max(best, float(beta @ gradients @ target))
    return best


@given(gradients_of_all)
def test_in_stage_two_nothing_rises(gradients: Vector) -> None:
    assert (gradients @ stage_two(gradients) >= -1e-8).all()


@given(gradients_of_all)
def test_stage_two_lowers_the_mean_loss_the_most(gradients: Vector) -> None:
    target = gradients[:-1].mean(axis=0)
    best = best_corner(gradients, target, gradients)
    assert float(stage_two(gradients) @ target) == pytest.approx(best, abs=1e-7)


@given(gradients_of_all)
def test_stage_one_has_a_closed_form(gradients: Vector) -> None:
    """In d = b d_l + (1 - b) d_g everything is linear in b."""
    loss, disparity = gradients[:2]
    faster = loss if loss @ loss >= disparity @ loss else disparity
    assert stage_one(loss, disparity, within_budget=True) == pytest.approx(faster)
    above = stage_one(loss, disparity, within_budget=False)
    least = 0.0
    if disparity @ loss < 0:
        least = -(disparity @ loss) / (loss @ loss - disparity @ loss)
    share = 1.0 if loss @ disparity > disparity @ disparity else least
    assert above == pytest.approx(share * loss + (1.0 - share) * disparity, abs=1e-7)
    assert above @ loss >= -1e-8


def test_opposite_gradients_leave_no_direction() -> None:
    """0 = 2 v_1 + v_2 with positive weights: any direction that raises nothing is zero."""
    gradients = np.array([[1.0, 2.0], [-2.0, -4.0], [1.0, 2.0], [0.0, 0.0]])
    assert stage_two(gradients) == pytest.approx(np.zeros(2), abs=1e-9)
    assert stage_two(np.zeros((4, 2))).tolist() == [0.0, 0.0]


def test_a_sharp_maximum_is_the_worst_sites_gradient() -> None:
    values = torch.tensor([0.3, 0.7, 0.6], dtype=torch.float64)
    sharp = smoothed_maximum(values, torch.eye(3, dtype=torch.float64), 1e-4)
    assert sharp.tolist() == pytest.approx([0.0, 1.0, 0.0], abs=1e-12)
    powers = np.exp(to_numpy(values) / 0.5)
    smooth = smoothed_maximum(values, torch.eye(3, dtype=torch.float64), 0.5)
    assert to_numpy(smooth) == pytest.approx(powers / powers.sum())


def test_a_solver_that_gives_up_is_replaced_by_the_shortest_mixture(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("scipy.optimize.linprog", lambda *_, **__: SimpleNamespace(status=2))
    gradients = np.diag([1.0, 1.0, 2.0, 2.0])
    shares = np.array([1.0, 1.0, 0.25, 0.25]) / 2.5
    assert stage_two(gradients) == pytest.approx(shares @ gradients)
