"""Workspaces store convolutions in another order; nobody outside may notice.

Work at once: every share is done, in order, with one core each, and nothing is left behind.

Chunks and workers from the weight of a row, counted by hand.
"""

import threading

import pytest
import torch
from torch import nn

from fedminmax.core.examples import Examples
from fedminmax.core.local_epochs import LocalEpochs, train_locally
from fedminmax.core.losses import brier_loss
from fedminmax.core.models import cnn, mlp
from fedminmax.core.one_step import losses_of, weighted_gradient
from fedminmax.core.task import Task
from fedminmax.core.workspace import (
    ACTIVATION_BYTES_ON_CPU,
    Workspace,
    choose_rows_per_chunk,
    multiplications_per_row,
    run_in_parallel,
)


def images(rows: int, seed: int = 0) -> Examples:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 2, 8, 12, generator=generator, dtype=torch.float64)
    y = torch.randint(0, 3, (rows,), generator=generator)
    return Examples(x, y, y)


def small_cnn(seed: int = 1) -> nn.Sequential:
    torch.manual_seed(seed)
    model = cnn((2, 8, 12), 3, (4, 5)).double()
    assert isinstance(model, nn.Sequential)
    return model


def flattened(tensors: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def plain_gradient(model: nn.Module, rows: Examples, weights: torch.Tensor) -> torch.Tensor:
    objective = (brier_loss(model(rows.x), rows.y) * weights).sum()
    return flattened(list(torch.autograd.grad(objective, list(model.parameters()))))


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("rows_per_chunk", [1, 4, 100])
def test_the_weighted_gradient_of_a_cnn_is_autograds(workers: int, rows_per_chunk: int) -> None:
    model, rows = small_cnn(), images(11)
    weights = torch.rand(11, dtype=torch.float64)
    workspaces = [Workspace(Task(model, brier_loss)) for _ in range(workers)]
    gradient, losses = weighted_gradient(workspaces, rows, weights, rows_per_chunk)
    torch.testing.assert_close(gradient, plain_gradient(model, rows, weights))
    torch.testing.assert_close(losses, brier_loss(model(rows.x), rows.y).detach())


def test_more_workers_than_rows_is_no_problem() -> None:
    model, rows = small_cnn(), images(2)
    weights = torch.ones(2, dtype=torch.float64)
    workspaces = [Workspace(Task(model, brier_loss)) for _ in range(4)]
    gradient, losses = weighted_gradient(workspaces, rows, weights, 100)
    assert len(losses) == 2
    torch.testing.assert_close(gradient, plain_gradient(model, rows, weights))


def test_loaded_parameters_are_the_models_in_its_own_order() -> None:
    """Load another model's vector: the losses must be that model's."""
    workspace = Workspace(Task(small_cnn(1), brier_loss))
    other, rows = small_cnn(2), images(7)
    vector = flattened([p.detach() for p in other.parameters()])
    workspace.load(vector)
    torch.testing.assert_close(
        losses_of(workspace, rows, 3), brier_loss(other(rows.x), rows.y).detach()
    )
    assert torch.equal(workspace.in_model_order(workspace.flat), vector)


def test_storage_order_is_the_order_of_the_buffers_and_can_be_undone() -> None:
    vector = flattened([p.detach() for p in small_cnn(2).parameters()])
    workspace = Workspace(Task(small_cnn(1), brier_loss))
    stored = workspace.in_storage_order(vector)
    assert not torch.equal(stored, vector)
    assert torch.equal(workspace.in_model_order(stored), vector)
    workspace.load(vector)
    assert torch.equal(workspace.flat, stored)
    straight = Workspace(Task(nn.Linear(3, 2), brier_loss))
    assert torch.equal(straight.in_storage_order(straight.flat), straight.flat)


def test_local_training_of_a_cnn_is_plain_gradient_descent() -> None:
    model, rows = small_cnn(), images(9)
    workspace = Workspace(Task(model, brier_loss))
    trained = train_locally(workspace, rows, LocalEpochs(3, None, 0.5), torch.Generator())
    for _ in range(3):
        gradient = plain_gradient(model, rows, torch.full((9,), 1 / 9, dtype=torch.float64))
        pieces = torch.split(gradient, [p.numel() for p in model.parameters()])
        with torch.no_grad():
            for parameter, piece in zip(model.parameters(), pieces, strict=True):
                parameter.sub_(0.5 * piece.view_as(parameter))
    torch.testing.assert_close(trained, flattened([p.detach() for p in model.parameters()]))


def test_pooling_before_relu_is_the_same_function() -> None:
    """The paper's order with the activation first, against ours, values and gradients."""
    ours = small_cnn()
    first, pool, relu, second, *_, head = list(ours)
    theirs = nn.Sequential(first, relu, pool, second, relu, pool, nn.Flatten(), head)
    rows = images(6)
    torch.testing.assert_close(ours(rows.x), theirs(rows.x))
    weights = torch.ones(6, dtype=torch.float64)
    expected = torch.autograd.grad(
        brier_loss(theirs(rows.x), rows.y).sum(), list(ours.parameters())
    )
    torch.testing.assert_close(plain_gradient(ours, rows, weights), flattened(list(expected)))


def test_results_come_in_the_order_of_the_workers() -> None:
    together = threading.Barrier(3, timeout=10)

    def work(worker: int) -> tuple[int, int]:
        together.wait()  # passes only if all three run at the same time
        return worker, torch.get_num_threads()

    assert run_in_parallel(3, work) == [(0, 1), (1, 1), (2, 1)]


def test_the_number_of_threads_is_put_back_also_after_a_failure() -> None:
    before = torch.get_num_threads()

    def fail(worker: int) -> None:
        raise ValueError(f"worker {worker}")

    with pytest.raises(ValueError, match="worker 0"):
        run_in_parallel(2, fail)
    assert torch.get_num_threads() == before
    seen: list[int] = []
    thread = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert seen == [before]


def test_a_single_worker_is_this_thread() -> None:
    assert run_in_parallel(1, lambda _: threading.get_ident()) == [threading.get_ident()]


def rows(*shape: int) -> Examples:
    labels = torch.zeros(5, dtype=torch.int64)
    return Examples(torch.zeros(5, *shape), labels, labels)


def test_multiplications_of_a_fully_connected_network() -> None:
    task = Task(mlp(3, 2, (7, 5)), brier_loss)
    assert multiplications_per_row(task, rows(3)) == 3 * 7 + 7 * 5 + 5 * 2


def test_multiplications_of_the_papers_cnn() -> None:
    """Each output pixel of a 3x3 convolution takes nine multiplications per pair of channels."""
    task = Task(cnn((1, 28, 28), 10, (16, 32)), brier_loss)
    expected = 28 * 28 * 9 * 16 + 14 * 14 * 9 * 16 * 32 + 7 * 7 * 32 * 10
    assert multiplications_per_row(task, rows(1, 28, 28)) == expected


def test_a_chunk_of_the_papers_cnn_fits_its_room() -> None:
    """At least both convolutions' outputs are kept for the backward pass."""
    task = Task(cnn((1, 28, 28), 10, (16, 32)), brier_loss)
    least = 4 * (28 * 28 * 16 + 14 * 14 * 32)
    chunk = choose_rows_per_chunk(task, rows(1, 28, 28))
    assert 20 < chunk <= ACTIVATION_BYTES_ON_CPU // least


def test_light_rows_come_in_large_chunks() -> None:
    assert choose_rows_per_chunk(Task(mlp(1, 2, ()), brier_loss), rows(1)) > 10_000
