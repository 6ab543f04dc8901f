"""Workspaces store convolutions in another order; nobody outside may notice."""

import pytest
import torch
from torch import nn

from fedminmax.core.examples import Examples
from fedminmax.core.local_epochs import LocalEpochs, train_locally
from fedminmax.core.losses import brier_loss
from fedminmax.core.models import cnn
from fedminmax.core.one_step import losses_of, weighted_gradient
from fedminmax.core.task import Task
from fedminmax.core.workspace import Workspace


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
