"""Local epochs with a further vector: taken before the step, added to the gradient."""

import pytest
import torch

from fedminmax.core.examples import Examples
from fedminmax.core.local_epochs import LocalEpochs, train_locally, train_with_extra_gradient
from fedminmax.core.losses import brier_loss
from fedminmax.core.models import mlp
from fedminmax.core.task import Task
from fedminmax.core.workspace import Workspace
from tests.cnn_problem import image_rows, mean_gradient, small_cnn, start_vector


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
