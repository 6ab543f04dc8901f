"""A run does not go on with other values in as many rows, and never proves a false bound there."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedminmax.core.certificate import Certificate
from fedminmax.core.errors import InputError
from fedminmax.core.losses import Loss, cross_entropy_loss, squared_error_loss
from fedminmax.methods.fedminmax import FedMinMax
from fedminmax.methods.look_ahead import FedMinMaxFast
from fedminmax.training.checkpoint import load_checkpoint, save_checkpoint
from fedminmax.training.progress import Progress, initial_progress
from fedminmax.training.simulation import Simulation
from fedminmax.training.train import train
from tests.complaints import complaint_of
from tests.problems import Vector

FAST = FedMinMaxFast(optimality_gap=0.0)
Table = tuple[Vector, Vector, Vector]


def table(seed: int, signal: float, loss: Loss = cross_entropy_loss) -> Table:
    """Three groups of a hundred rows; without signal, features tell nothing of targets."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(300, 4))
    target = signal * x @ np.array([3.0, -2.0, 1.0, 0.0]) + rng.logistic(size=300)
    y = target if loss is squared_error_loss else (target > 0).astype(np.int64)
    return x, y, np.repeat(np.arange(3), 100)


def federation_of(rows: Table, loss: Loss = cross_entropy_loss, ridge: float = 1e-3) -> Simulation:
    model = nn.Linear(4, 1 if loss is squared_error_loss else 2).double()
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    return Simulation(model, loss, [rows], ridge=ridge)


def other_labels(rows: Table) -> Table:
    x, y, group = rows
    changed = y.copy()
    changed[0] = 1 - changed[0]
    return x, changed, group


def other_features(rows: Table) -> Table:
    x, y, group = rows
    return x * np.array([1.0, -1.0, 1.0, 1.0]), y, group


def swapped_labels(rows: Table) -> Table:
    """As many of each label in every group, at other rows."""
    x, y, group = rows
    return x, np.concatenate([y[group == number][::-1] for number in range(3)]), group


@pytest.mark.parametrize("method", [FAST, FedMinMax(0.1)], ids=lambda own: own.name)
@pytest.mark.parametrize("change", [other_labels, other_features, swapped_labels])
def test_other_values_are_refused(change: Any, method: Any, tmp_path: Any) -> None:
    x, y, group = table(0, 1.0)
    # One column in a large unit must not hide another.
    rows = (x * np.array([1e6, 1.0, 1.0, 1.0]), y, group)
    other = federation_of(change(rows))
    (done,) = train(federation_of(rows), method, rounds=1)
    message = complaint_of(lambda: train(other, method, rounds=2, resume=done.progress))
    assert "the rows had other values" in message
    save_checkpoint(tmp_path, done.progress)
    template = initial_progress(other, method)
    assert "other values" in complaint_of(lambda: load_checkpoint(tmp_path, template))


def test_the_same_rows_in_another_order_with_other_last_bits_go_on(tmp_path: Any) -> None:
    x, y, group = rows = table(0, 1.0)
    (done,) = train(federation_of(rows), FAST, rounds=1)
    save_checkpoint(tmp_path, done.progress)
    order = np.random.default_rng(1).permutation(len(y))
    same = federation_of(((x * (1.0 + 1e-15))[order], y[order], group[order]))
    restored = load_checkpoint(tmp_path, initial_progress(same, FAST))
    assert restored is not None
    (again,) = train(same, FAST, rounds=2, resume=restored.progress)
    (meant,) = train(federation_of(rows), FAST, rounds=2, resume=done.progress)
    torch.testing.assert_close(again.members, meant.members, rtol=1e-9, atol=1e-9)


def unseen(progress: Progress[Any]) -> Progress[Any]:
    """As a server has it that does not see rows."""
    return replace(progress, identity=replace(progress.identity, values=""))


@pytest.mark.parametrize("loss", [cross_entropy_loss, squared_error_loss])
@pytest.mark.parametrize(("before", "after"), [(0.0, 1.0), (1.0, 0.0), (1.0, 1.0)])
def test_a_server_that_sees_no_rows_proves_nothing_false(
    loss: Loss, before: float, after: float
) -> None:
    """Its sums contradict each other, or else the bound is right for the rows that are there."""
    refused = 0
    for seed in range(3):
        old = federation_of(table(2 * seed, before, loss), loss)
        new = federation_of(table(2 * seed + 1, after, loss), loss)
        *_, best = train(new, FedMinMaxFast(optimality_gap=1e-9), rounds=40)
        assert best.certificate is not None
        for rounds in (1, 3, 5):
            *_, half = train(old, FAST, rounds=rounds)
            try:
                going_on = train(new, FAST, rounds=rounds + 10, resume=unseen(half.progress))
                *_, end = going_on
            except InputError:
                refused += 1
                continue
            assert end.certificate is not None
            assert end.certificate.lower <= best.certificate.upper
    assert refused >= 6


def test_a_lower_bound_above_the_upper_one_is_an_error() -> None:
    message = complaint_of(lambda: Certificate(upper=0.37, lower=0.68, penalty=0.0, ridge=1e-4))
    assert "lower bound 0.68" in message
    assert "0.37" in message
