"""Local epochs with a further vector: taken before the step, added to the gradient.

Training on losses plus scored slopes: plain training without slopes, and its gradient.
"""

import pytest
import torch
from torch import nn

from fedminmax.core.examples import Examples
from fedminmax.core.local_epochs import (
    LocalEpochs,
    train_locally,
    train_on_scores,
    train_with_extra_gradient,
)
from fedminmax.core.losses import brier_loss
from fedminmax.core.models import cnn, mlp
from fedminmax.core.task import Task
from fedminmax.core.workspace import Workspace
from tests.problems import image_rows, mean_gradient, small_cnn, start_vector


def test_each_step_of_a_cnn_adds_the_vector_at_the_parameters_before_it() -> None:
    rows = image_rows(9)
    theta = start_vector(small_cnn())
    centre = torch.linspace(-1.0, 1.0, theta.numel(), dtype=torch.float64)
    workspace = Workspace(Task(small_cnn(), brier_loss))
    stored = workspace.in_storage_order(centre)
    trained = train_with_extra_gradient(
        workspace,
        Examples(*rows),
        LocalEpochs(4, None, 0.3),
        torch.Generator(),
        extra=lambda present: 0.5 * (present - stored),
    )
    for _ in range(4):
        theta = theta - 0.3 * (mean_gradient(theta, rows) + 0.5 * (theta - centre))
    torch.testing.assert_close(trained, theta, rtol=0, atol=1e-13)


@pytest.mark.parametrize("batch_size", [None, 4])
def test_nothing_added_is_plain_local_training(batch_size: int | None) -> None:
    generator = torch.Generator().manual_seed(3)
    rows = Examples(
        torch.randn(11, 3, generator=generator),
        torch.randint(2, (11,), generator=generator),
        torch.zeros(11, dtype=torch.int64),
    )
    model, weights = mlp(3, 2, (5,)), torch.rand(11, generator=generator)
    plan = LocalEpochs(3, batch_size, 0.2)
    plain, other = (Workspace(Task(model, brier_loss)) for _ in range(2))
    expected = train_locally(plain, rows, plan, torch.Generator().manual_seed(1), weights)
    trained = train_with_extra_gradient(
        other,
        rows,
        plan,
        torch.Generator().manual_seed(1),
        extra=torch.zeros_like,
        row_weights=weights,
    )
    assert torch.equal(trained, expected)
    assert not torch.equal(trained, start_vector(model))


ROWS = 11


def task(kind: str) -> tuple[Task, Examples]:
    generator = torch.Generator().manual_seed(0)
    shape = (1, 8, 8) if kind == "cnn" else (5,)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model: nn.Module = cnn((1, 8, 8), 2, (3, 4)) if kind == "cnn" else mlp(5, 2, (7,))
    x = torch.randn(ROWS, *shape, generator=generator, dtype=torch.float64)
    y = torch.randint(2, (ROWS,), generator=generator)
    return Task(model.double(), brier_loss), Examples(x, y, torch.zeros(ROWS, dtype=torch.int64))


@pytest.mark.parametrize("kind", ["mlp", "cnn"])
@pytest.mark.parametrize("batch_size", [None, 4])
def test_without_slopes_it_is_plain_training(kind: str, batch_size: int | None) -> None:
    own, examples = task(kind)
    plan = LocalEpochs(3, batch_size, 0.2)
    plain = train_locally(Workspace(own), examples, plan, torch.Generator().manual_seed(3))
    scored = train_on_scores(
        Workspace(own),
        examples,
        plan,
        torch.Generator().manual_seed(3),
        torch.zeros(ROWS, dtype=torch.float64),
    )
    torch.testing.assert_close(scored, plain, rtol=0, atol=1e-12)
    assert float((plain - own.initial_parameters).norm()) > 1e-3


@pytest.mark.parametrize("kind", ["mlp", "cnn"])
def test_one_step_descends_loss_plus_scored_slopes(kind: str) -> None:
    own, examples = task(kind)
    slopes = torch.linspace(-2.0, 3.0, ROWS, dtype=torch.float64)
    plan = LocalEpochs(1, None, 0.2)
    trained = train_on_scores(Workspace(own), examples, plan, torch.Generator(), slopes)
    outputs = own.model(examples.x)
    likelihood = 1.0 / (1.0 + torch.exp(outputs[:, 0] - outputs[:, 1]))
    objective = (brier_loss(outputs, examples.y) + slopes * likelihood).sum() / ROWS
    gradients = torch.autograd.grad(objective, list(own.model.parameters()))
    step = torch.cat([gradient.reshape(-1) for gradient in gradients])
    expected = own.initial_parameters - 0.2 * step
    torch.testing.assert_close(trained, expected, rtol=0, atol=1e-12)
