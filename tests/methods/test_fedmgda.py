"""FedMGDA+ (Hu et al. 2022): nobody loses to first order, and lengths of updates do not matter."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import nnls

from fedminmax.core.iterates import Iterate
from fedminmax.core.messages import Sums, zero_sums
from fedminmax.methods.fedmgda import FedMGDA
from fedminmax.methods.qfedavg import SiteWeighting
from fedminmax.training.train import train
from tests.complaints import complaint_of
from tests.oracles import brier_gradient
from tests.problems import Vector, points, pooled, quadratic_federation, softmax_problem, to_numpy

PROBLEM = softmax_problem([[4, 0, 2], [1, 5, 0], [0, 0, 3]], seed=1)
FREE = FedMGDA(max_weight_shift=1.0)
ROWS = [6.0, 3.0, 1.0, 8.0]


def replies(updates: Vector) -> list[Sums]:
    """What sites with these updates and some numbers of rows send."""
    return [
        replace(zero_sums(0, 1, 0), step=torch.from_numpy(update), scale=rows)
        for update, rows in zip(updates, ROWS, strict=False)
    ]


def direction(method: FedMGDA, updates: Vector) -> Vector:
    return to_numpy(method.common_direction(replies(updates)))


updates_of_four = st.tuples(st.integers(0, 2**32), st.sampled_from([2, 3, 10])).map(
    lambda drawn: np.random.default_rng(drawn[0]).normal(size=(4, drawn[1])) + 0.3
)


@given(updates_of_four)
def test_without_a_box_no_site_loses_to_first_order(updates: Vector) -> None:
    common = direction(FREE, updates)
    units = updates / np.linalg.norm(updates, axis=1, keepdims=True)
    assert (units @ common >= common @ common - 1e-9).all()


@given(updates_of_four, st.sampled_from(list(SiteWeighting)))
def test_a_box_without_room_gives_the_mean_of_unit_updates(
    updates: Vector, weighting: SiteWeighting
) -> None:
    shares = np.array(ROWS) / sum(ROWS) if weighting is SiteWeighting.ROWS else np.full(4, 0.25)
    units = updates / np.linalg.norm(updates, axis=1, keepdims=True)
    common = direction(FedMGDA(max_weight_shift=0.0, weighting=weighting), updates)
    assert common == pytest.approx(shares @ units, abs=1e-12)


@given(updates_of_four, st.integers(0, 3), st.floats(1e-6, 1e6))
def test_the_length_of_an_update_does_not_matter(updates: Vector, site: int, factor: float) -> None:
    scaled = updates.copy()
    scaled[site] *= factor
    for method in (FREE, FedMGDA(max_weight_shift=0.1)):
        assert direction(method, scaled) == pytest.approx(direction(method, updates), abs=1e-9)


@given(updates_of_four)
def test_two_sites_without_a_box_count_the_same(updates: Vector) -> None:
    units = updates[:2] / np.linalg.norm(updates[:2], axis=1, keepdims=True)
    assert direction(FREE, updates[:2]) == pytest.approx(units.mean(axis=0), abs=1e-9)


def test_whoever_did_not_move_is_left_out() -> None:
    updates = np.array([[3.0, 4.0], [0.0, 0.0], [0.0, 2.0]])
    common = direction(FedMGDA(max_weight_shift=0.0), updates)
    assert common == pytest.approx(6 / 7 * np.array([0.6, 0.8]) + 1 / 7 * np.array([0.0, 1.0]))
    assert direction(FREE, np.zeros((3, 2))).tolist() == [0.0, 0.0]


def test_nothing_happens_where_every_site_is_content() -> None:
    federation = quadratic_federation([1.0, 2.0], [points([[[1.0, 2.0]]]), points([[[1.0, 2.0]]])])
    done = list(train(federation, FREE, rounds=2))[-1]
    assert done.parameters().tolist() == [1.0, 2.0]


@pytest.mark.parametrize(("start", "expected"), [(0.3, 0.3), (1.5, 1.4), (-0.5, -0.4)])
def test_between_two_targets_no_direction_is_good_for_both(start: float, expected: float) -> None:
    """On the segment between the sites' optima every point is Pareto stationary."""
    federation = quadratic_federation([start], [points([[[0.0]] * 5]), points([[[1.0]]])])
    method = replace(FREE, server_rate=0.1, epochs=1, batch_size=None)
    done = next(iter(train(federation, method, rounds=1)))
    assert float(done.parameters()[0]) == pytest.approx(expected, abs=1e-12)


def test_steps_shorten_by_the_decay() -> None:
    """With one site each step has the length of the server's rate."""
    method = FedMGDA(server_rate=0.5, server_decay=0.8, epochs=2, batch_size=None)
    federation = PROBLEM.federation(sites=[pooled(PROBLEM.sites)])
    before = PROBLEM.start
    for done in train(federation, method, rounds=6):
        after = to_numpy(done.parameters())
        assert np.linalg.norm(after - before) == pytest.approx(0.5 * 0.8 ** (done.number - 1))
        before = after


def test_the_paper_by_hand() -> None:
    """Full batches; the shortest mixture by non-negative least squares."""
    method = FedMGDA(1.0, 0.3, server_decay=0.9, learning_rate=0.2, epochs=3, batch_size=None)
    theta, rate = PROBLEM.start, 0.3
    for done in train(PROBLEM.federation(), method, rounds=10):
        units = []
        for x, y, _ in PROBLEM.numpy_rows():
            own = theta
            for _ in range(3):
                own = own - 0.2 * brier_gradient(PROBLEM, own, x, y, np.full(len(y), 1 / len(y)))
            units.append((theta - own) / np.linalg.norm(theta - own))
        rows = np.vstack([np.stack(units).T, np.ones(len(units))])
        multiple = nnls(rows, np.append(np.zeros_like(theta), 1.0))[0]
        theta = theta - rate * (multiple / multiple.sum() @ np.stack(units))
        rate *= 0.9
        assert to_numpy(done.parameters(Iterate.LAST)) == pytest.approx(theta, abs=1e-9)
    assert np.linalg.norm(theta - PROBLEM.start) > 0.1


@pytest.mark.parametrize("decay", [0.0, -0.5, 1.1, float("nan")])
def test_the_server_rate_may_not_grow(decay: float) -> None:
    message = complaint_of(lambda: FedMGDA(server_decay=decay))
    assert f"server_decay = {decay:g}; give a number above 0, at most 1" in message


def test_other_hyperparameters_are_checked() -> None:
    assert "max_weight_shift = -1" in complaint_of(lambda: FedMGDA(max_weight_shift=-1.0))
    assert "server_rate = 0" in complaint_of(lambda: FedMGDA(server_rate=0.0))
    assert "learning_rate = 0" in complaint_of(lambda: FedMGDA(learning_rate=0.0))
    assert "epochs = 0" in complaint_of(lambda: FedMGDA(epochs=0))
