"""FedAvg (McMahan et al. 2017) against numpy loops, and the rules of its mini-batches."""

import numpy as np
import pytest
import torch
from torch import Tensor

from fedminmax.core.iterates import Iterate
from fedminmax.core.losses import brier_loss
from fedminmax.methods.fedavg import FedAvg
from fedminmax.training.train import train
from tests.oracles import centralized_by_hand, fedavg_by_hand
from tests.problems import points, quadratic_federation, softmax_problem, to_numpy

PROBLEM = softmax_problem([[4, 0, 2], [1, 5, 0], [0, 0, 3]], seed=1)


@pytest.mark.parametrize("epochs", [1, 2, 7])
def test_full_batches(epochs: int) -> None:
    method = FedAvg(learning_rate=0.3, epochs=epochs, batch_size=None)
    thetas = fedavg_by_hand(PROBLEM, rounds=20, eta=0.3, epochs=epochs)
    for done in train(PROBLEM.federation(), method, rounds=20):
        np.testing.assert_allclose(
            to_numpy(done.parameters(Iterate.LAST)), thetas[done.number], atol=1e-12
        )


def test_a_batch_as_large_as_any_site_is_a_full_batch() -> None:
    method = FedAvg(learning_rate=0.3, epochs=2, batch_size=6)
    thetas = fedavg_by_hand(PROBLEM, rounds=5, eta=0.3, epochs=2)
    done = list(train(PROBLEM.federation(), method, rounds=5))[-1]
    np.testing.assert_allclose(to_numpy(done.parameters()), thetas[-1], atol=1e-12)


def test_one_full_batch_is_centralized_gradient_descent() -> None:
    method = FedAvg(learning_rate=0.3, epochs=1, batch_size=None)
    trace = centralized_by_hand(PROBLEM, rounds=40, eta=0.3, eta_mu=0.0)
    done = list(train(PROBLEM.federation(), method, rounds=40))[-1]
    np.testing.assert_allclose(to_numpy(done.parameters()), trace.thetas[-1], atol=1e-12)


@pytest.mark.parametrize(("rows", "batch_size", "steps"), [(5, 2, 3), (6, 2, 3), (1, 4, 1)])
def test_the_last_smaller_batch_is_kept(rows: int, batch_size: int, steps: int) -> None:
    """All targets 1: each step on |theta - 1|^2 / 2 shrinks the distance by 1 - eta = .75."""
    federation = quadratic_federation([0.0], [points([[[1.0]] * rows])])
    method = FedAvg(learning_rate=0.25, epochs=3, batch_size=batch_size)
    done = next(train(federation, method, rounds=1))
    assert float(done.parameters()) == pytest.approx(1 - 0.75 ** (3 * steps), abs=1e-14)
    assert done.progress.gradient_evaluations == 3 * rows


def test_each_epoch_visits_every_row_once_in_a_new_order() -> None:
    problem = softmax_problem([[4, 2]])
    seen: list[list[float]] = []

    def noting(outputs: Tensor, targets: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            seen.append([round(logit, 6) for logit in outputs[:, 0].tolist()])
        return brier_loss(outputs, targets)

    federation = problem.federation(loss=noting)
    seen.clear()
    # With a vanishing step the first logit tells the row.
    list(train(federation, FedAvg(learning_rate=1e-12, epochs=4, batch_size=4), rounds=2))
    logits = problem.model()(problem.sites[0][0])[:, 0]
    assert [len(batch) for batch in seen] == [4, 2] * 8
    epochs = [first + second for first, second in zip(seen[::2], seen[1::2], strict=True)]
    expected = sorted(round(logit, 6) for logit in logits.tolist())
    assert all(sorted(epoch) == expected for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) > 4
