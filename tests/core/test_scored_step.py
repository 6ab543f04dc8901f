"""Training on losses plus scored slopes: plain training without slopes, and its gradient."""

import pytest
import torch
from torch import nn

from fedminmax.core.examples import Examples
from fedminmax.core.local_epochs import LocalEpochs, train_locally, train_on_scores
from fedminmax.core.losses import brier_loss
from fedminmax.core.models import cnn, mlp
from fedminmax.core.task import Task
from fedminmax.core.workspace import Workspace

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
