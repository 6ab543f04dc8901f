"""FedMinMaxFast with groups that are too small to play for: another solver, a proof, limits."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedminmax.core.losses import brier_loss, cross_entropy_loss, squared_error_loss
from fedminmax.core.small_groups import SmallGroupRule
from fedminmax.methods.look_ahead import FedMinMaxFast
from fedminmax.training.simulation import Simulation
from fedminmax.training.train import Round, train
from tests.oracles import lowest_maximum
from tests.problems import Rows, Vector

RIDGE = 0.05
COUNTS = [60, 45, 40, 4, 2]
SHARES = np.array(COUNTS) / sum(COUNTS)


def rows(*, small: int = 6) -> Rows:
    """Three groups with patterns of their own, and two small ones with labels turned round."""
    rng = np.random.default_rng(4)
    group = np.repeat(np.arange(5), COUNTS)
    x = rng.normal(size=(len(group), 3))
    patterns = np.array([1.5, -1.0, 1.0]) + 0.5 * rng.normal(size=(5, 3))
    patterns[3:] *= -3.0
    y = (np.einsum("nf,nf->n", x, patterns[group]) + rng.logistic(size=len(group))) > 0
    kept = len(group) - 6 + small
    return (
        torch.from_numpy(x)[:kept],
        torch.from_numpy(y.astype(np.int64))[:kept],
        torch.from_numpy(group)[:kept],
    )


def last(
    sites: list[Rows],
    rounds: int,
    loss: Any = cross_entropy_loss,
    ridge: float = RIDGE,
    keep_share: float = 0.0,
    **rule: Any,
) -> Round[Any]:
    model = nn.Linear(3, 2, dtype=torch.float64)
    with torch.no_grad():
        model.weight.zero_()
        model.bias.zero_()
    federation = Simulation(model, loss, sites, ridge=ridge, **rule)
    *_, done = train(federation, FedMinMaxFast(keep_share=keep_share), rounds=rounds)
    return done


def group_risks(theta: Vector, own: Rows) -> tuple[Vector, Vector]:
    """Cross-entropy with the penalty, and its slopes, by group, written anew."""
    x, y, group = (part.numpy() for part in own)
    matrix = theta.reshape(2, 4)
    inputs = np.c_[x, np.ones(len(x))]
    scores = inputs @ matrix.T
    p = np.exp(scores - np.logaddexp.reduce(scores, axis=1, keepdims=True))
    losses, pulls = -np.log(p[np.arange(len(y)), y]), p - np.eye(2)[y]
    penalty = 0.5 * RIDGE * float((theta**2).sum())
    values = [losses[group == a].mean() + penalty for a in np.unique(group)]
    slopes = [
        (pulls[group == a].T @ inputs[group == a] / (group == a).sum() + RIDGE * matrix).ravel()
        for a in np.unique(group)
    ]
    return np.array(values), np.array(slopes)


def kept_weights(keep_share: float) -> Vector:
    """The first three groups play, 6 of 151 rows do not."""
    weights: Vector = np.r_[keep_share * SHARES[:3], SHARES[3:]]
    return weights


def mixing(keep_share: float = 0.0) -> Vector:
    """M by hand."""
    kept = kept_weights(keep_share)
    matrix: Vector = (1 - kept.sum()) * np.eye(5)[:3] + kept
    return matrix


def as_matrix(done: Round[Any]) -> Vector:
    """The answer in the order of ``group_risks``: each output's weights, then its bias."""
    flat = done.members[0].numpy()
    theta: Vector = np.c_[flat[:6].reshape(2, 3), flat[6:]].ravel()
    return theta


@pytest.mark.parametrize("keep_share", [0.0, 0.3])
def test_the_value_is_another_solvers(keep_share: float) -> None:
    kept = kept_weights(keep_share)

    def mixed(theta: Vector) -> tuple[Vector, Vector]:
        values, slopes = group_risks(theta, rows())
        return mixing(keep_share) @ values, mixing(keep_share) @ slopes

    expected = lowest_maximum(mixed, np.zeros(8))
    done = last([rows()], 12, minimum_group=30, keep_share=keep_share)
    assert mixed(as_matrix(done))[0].max() == pytest.approx(expected, abs=1e-8)
    state = done.progress.state
    assert state.lower <= expected <= state.upper + 1e-12
    assert state.upper - state.lower < 1e-6
    assert done.weights[3:].tolist() == SHARES[3:].tolist()
    assert bool((done.weights.numpy() >= kept).all())
    assert float(done.weights.sum()) == pytest.approx(1.0, abs=1e-12)
    # The gradient of mu . r vanishes: both players are where they want to be.
    slope = done.weights.numpy() @ group_risks(as_matrix(done), rows())[1]
    assert np.abs(slope).max() < 1e-5


def test_six_rows_move_the_model_by_no_more_than_their_share() -> None:
    """F = G + Q with Q = sum_b rho_b r_b of the small groups, and F strongly convex with m.

    At the minimum t of G, some subgradient of F is grad Q(t), so the minimum of F is within
    |grad Q(t)| / m of t.
    """
    # (1 - s) max r + penalty has the minimum of max r + penalty / (1 - s).
    without = last([rows(small=0)], 15, ridge=RIDGE / (1 - 6 / 151))
    shared, played = last([rows()], 15, minimum_group=30), last([rows()], 15)
    _, slopes = group_risks(as_matrix(without), rows())
    bare = slopes - RIDGE * as_matrix(without)
    reach = np.linalg.norm(SHARES[3:] @ bare[3:]) / RIDGE
    assert np.linalg.norm(as_matrix(shared) - as_matrix(without)) <= reach + 1e-5
    # With their share, the six rows cost the others little; if they play, much.
    worst = [
        group_risks(as_matrix(done), rows())[0][:3].max() for done in (without, shared, played)
    ]
    assert worst[1] - worst[0] < 0.2 * (worst[2] - worst[0])


@pytest.mark.parametrize("loss", [cross_entropy_loss, brier_loss])
def test_without_small_groups_nothing_changes(loss: Any) -> None:
    plain, same = last([rows()], 6, loss), last([rows()], 6, loss, minimum_group=2)
    playing = last([rows()], 6, loss, minimum_group=30, small=SmallGroupRule.INCLUDE)
    for done in (same, playing):
        assert torch.equal(done.members, plain.members)
        assert torch.equal(done.weights, plain.weights)


def test_who_holds_the_rows_does_not_matter() -> None:
    x, y, group = rows()
    parts = [(x[k::3], y[k::3], group[k::3]) for k in range(3)]
    together, apart = (last(own, 8, minimum_group=30) for own in ([rows()], parts))
    torch.testing.assert_close(together.members, apart.members, atol=1e-9, rtol=0.0)


def test_squared_error_is_still_solved_by_one_round() -> None:
    x, _, group = rows()
    y = x @ torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64) * (1.0 + group)
    inputs, targets, number = np.c_[x.numpy(), np.ones(len(x))], y.numpy(), group.numpy()

    def mixed(theta: Vector) -> tuple[Vector, Vector]:
        errors = inputs @ theta - targets
        own = [number == a for a in range(5)]
        values = np.array([(errors[rows] ** 2).mean() for rows in own])
        slopes = np.array([2.0 * errors[rows] @ inputs[rows] / rows.sum() for rows in own])
        return mixing() @ values, mixing() @ slopes

    federation = Simulation(
        nn.Linear(3, 1, dtype=torch.float64), squared_error_loss, [(x, y, group)], minimum_group=30
    )
    first = next(train(federation, FedMinMaxFast(), rounds=5))
    expected = lowest_maximum(mixed, np.zeros(4))
    assert mixed(first.members[0].numpy())[0].max() == pytest.approx(expected, rel=1e-8)


def test_networks_too_have_fixed_shares() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).double()
    federation = Simulation(model, cross_entropy_loss, [rows()], minimum_group=30)
    *_, done = train(federation, FedMinMaxFast(), rounds=60)
    assert done.weights[3:].tolist() == SHARES[3:].tolist()
    assert float(done.weights.sum()) == pytest.approx(1.0, abs=1e-9)
    everyone = Simulation(model, cross_entropy_loss, [rows()])
    *_, played = train(everyone, FedMinMaxFast(), rounds=60)
    assert done.worst_risk < float(played.risks[:3].max())
