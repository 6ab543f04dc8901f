"""A limit on harm besides the tolerance: both claims, and the nearest pair if no model has both."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedminmax.core.certificate import Certificate
from fedminmax.core.errors import InputError
from fedminmax.methods.look_ahead import FedMinMaxFast, Objective
from fedminmax.training.checkpoint import train_resumably
from fedminmax.training.train import fit
from tests.methods.test_near_minimax import (
    FEATURES,
    Risks,
    lowest_mean,
    near,
    risks_by_hand,
    rows_of,
    simulation,
)
from tests.oracles import lowest_maximum
from tests.problems import Rows, Vector

START = np.zeros(FEATURES + 1)


def large_groups(seed: int, *, classes: bool) -> Rows:
    x, y, group = rows_of(seed, classes=classes)
    kept = torch.bincount(group)[group] >= 30
    return x[kept], y[kept], group[kept]


def plain_risks(risks: Risks, shares: Vector) -> Vector:
    """Those of the lowest mean, by Newton's steps with differences of slopes."""
    u, step = START, 1e-5
    for _ in range(50):
        slope = shares @ risks(u)[1]
        moved = [(shares @ risks(u + step * own)[1] - slope) / step for own in np.eye(len(u))]
        u = u - np.linalg.solve(np.array(moved), slope)
    assert np.abs(shares @ risks(u)[1]).max() < 1e-9
    values: Vector = risks(u)[0]
    return values


FEW = 12


@pytest.mark.parametrize(
    "seed",
    [*range(FEW), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(FEW, 60))],
)
def test_both_claims_bracket_another_solvers_optimum(seed: int) -> None:
    classes = seed % 3 > 0
    tolerance, harm = (0.005, 0.02, 0.1)[seed % 4 % 3], (0.0, 0.01, 0.05, 0.2)[seed % 5 % 4]
    rows = large_groups(seed, classes=classes)
    risks, counts = risks_by_hand(rows, classes=classes), np.bincount(rows[2].numpy())
    shares = counts / counts.sum()
    done = near(rows, FedMinMaxFast(tolerance=tolerance, max_harm=harm), classes=classes, rounds=80)
    proof = done.certificate
    assert proof is not None
    optimum = lowest_maximum(risks, START)
    assert proof.lower <= optimum * (1 + 1e-7)
    assert proof.lower >= optimum * (1 - 0.26 * tolerance)
    # Whether both limits can be kept to, by another solver.
    plain = plain_risks(risks, shares)
    limits = np.minimum((1.0 + tolerance) * optimum, plain + harm)
    above = lowest_maximum(lambda u: (risks(u)[0] - limits, risks(u)[1]), START)
    assert proof.harm_raised is not None
    assert proof.max_harm is not None
    assert proof.max_harm == pytest.approx(harm + proof.harm_raised)
    assert proof.limit is not None
    if above < -1e-4 * optimum:
        assert proof.harm_raised == 0.0
    if above > 0.3 * tolerance * optimum:
        # Both are raised by what another solver says, and by a little to choose in.
        assert above * (1 - 1e-6) - 0.26 * tolerance * optimum <= proof.harm_raised
        assert proof.harm_raised <= above + 0.55 * tolerance * (optimum + plain.max() + harm)
    # The returned model keeps to what is said, and has nearly the lowest mean of those that do.
    flat = done.members[0].numpy()
    u = np.r_[flat[FEATURES : 2 * FEATURES], flat[-1]] if classes else flat
    values = risks(u)[0]
    size = optimum + plain.max() + harm
    assert values.max() <= proof.limit + 1e-7 * size
    assert (values - plain).max() <= proof.max_harm + 1e-5 * size
    kept = np.minimum(proof.limit, plain + proof.max_harm)
    best = lowest_mean(risks, np.eye(len(plain)), shares, kept + 1e-6 * size)
    assert proof.mean is not None
    assert proof.min_mean is not None
    assert proof.min_mean <= best + 1e-4 * size
    assert best * (1 - 1e-4) <= proof.mean
    assert float(shares @ values) <= proof.mean * (1 + 1e-9)
    assert proof.gap <= 1.001e-4


def test_it_goes_on_where_it_was_stopped_and_serves_the_excess(tmp_path: Path) -> None:
    rows = large_groups(4, classes=True)
    for objective in Objective:
        method = FedMinMaxFast(tolerance=0.01, max_harm=0.02, objective=objective)
        federation = simulation(rows, classes=True, parts=2)
        whole = fit(federation, method, rounds=60)
        for stop in (1, 3, whole.number - 1):
            folder = tmp_path / f"{objective.value} {stop}"
            list(train_resumably(folder, federation, method, rounds=stop))
            *_, last = train_resumably(folder, federation, method, rounds=60)
            assert torch.equal(last.members, whole.members)
            assert last.certificate == whole.certificate
        proof = whole.certificate
        assert isinstance(proof, Certificate)
        assert (proof.highest_own is not None) == (objective is Objective.EXCESS)
        assert proof.max_harm is not None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_harm": -0.1, "tolerance": 0.01}, "max_harm = -0.1"),
        ({"max_harm": 0.1}, "needs a tolerance"),
        ({"max_harm": 0.1, "tolerance": 0.01, "frontier": True}, "frontier"),
        ({"max_harm": 0.1, "tolerance": 0.01, "curvature": False}, "second derivatives"),
    ],
)
def test_what_cannot_be_limited_is_refused_before_the_first_round(
    options: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words) as refused:
        fit(
            simulation(large_groups(0, classes=True), classes=True),
            FedMinMaxFast(**options),
            rounds=3,
        )
    assert "\n" not in str(refused.value)


def test_groups_too_small_to_be_trained_for_are_refused() -> None:
    rows = rows_of(1, classes=True)
    with pytest.raises(InputError, match="too small"):
        near(rows, FedMinMaxFast(tolerance=0.01, max_harm=0.1), classes=True)
