"""Clipped sums against each row's own gradient by plain autograd, one row at a time.

The noise against the Gaussian mechanism's exact formula, which knows nothing of the accountant.

With sensitivity 1 and deviation s, the privacy loss of the Gaussian mechanism is normal with mean
1 / (2 s^2) and deviation 1 / s, on one side, and with the opposite mean on the other. So the least
delta is P(L > epsilon) - exp(epsilon) P(L' > epsilon) (Balle, Wang: Improving the Gaussian
mechanism for differential privacy, ICML 2018, Theorem 8). k releases are one of a vector that
changes by sqrt(k).
"""

import math
from statistics import NormalDist

import pytest
import torch
from torch import Tensor, nn

from fedminmax.core.errors import InputError
from fedminmax.core.examples import Examples
from fedminmax.core.losses import Loss, brier_loss, cross_entropy_loss, squared_error_loss
from fedminmax.core.models import linear, mlp
from fedminmax.core.noise import ClippedRows
from fedminmax.core.one_step import gradients_by_part, weighted_gradient
from fedminmax.core.privacy.mechanism import Releases, epsilon_of, noise_multiplier
from fedminmax.core.task import Task
from fedminmax.core.workspace import Workspace
from tests.problems import image_rows, small_cnn

LIMITS = ClippedRows(gradient=1.2, loss=0.6)


def rows_of(loss: Loss, rows: int = 23) -> Examples:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(rows, 4, generator=generator, dtype=torch.float64)
    x *= torch.linspace(0.1, 4.0, rows, dtype=torch.float64)[:, None]
    y = torch.randint(3, (rows,), generator=generator)
    group = torch.arange(rows) % 3
    return Examples(x, y.double() if loss is squared_error_loss else y, group)


def tanh_model(outputs: int) -> nn.Module:
    """No stack of ReLU layers: its rows are differentiated one by one."""
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, outputs))


def by_hand(task: Task, rows: Examples) -> tuple[Tensor, Tensor]:
    """Return each row's clipped gradient [n, p] and limited loss [n]."""
    gradients, losses = [], []
    for number in range(len(rows)):
        task.model.zero_grad()
        loss = task.loss(task.model(rows.x[number : number + 1]), rows.y[number : number + 1])
        torch.autograd.backward(loss.sum())
        flat = torch.cat([own.grad.reshape(-1) for own in task.model.parameters()])  # type: ignore[union-attr]
        length = float(flat.norm())
        gradients.append(flat * (LIMITS.gradient / length if length > LIMITS.gradient else 1.0))
        losses.append(min(loss.item(), LIMITS.loss))
    return torch.stack(gradients), torch.tensor(losses, dtype=torch.float64)


def model_of(kind: str, loss: Loss) -> nn.Module:
    outputs = 1 if loss is squared_error_loss else 3
    torch.manual_seed(5)
    made = {
        "linear": linear(4, outputs),
        "mlp": mlp(4, outputs, (6, 5)),
        "tanh": tanh_model(outputs),
    }
    return made[kind].double()


@pytest.mark.parametrize("loss", [brier_loss, cross_entropy_loss, squared_error_loss])
@pytest.mark.parametrize("kind", ["linear", "mlp", "tanh"])
def test_sums_by_group_are_those_of_rows_clipped_one_by_one(kind: str, loss: Loss) -> None:
    task, rows = Task(model_of(kind, loss), loss), rows_of(loss)
    gradients, losses = by_hand(task, rows)
    lengths = gradients.norm(dim=1)
    # Some rows are clipped and some are not.
    assert 0 < int((lengths < LIMITS.gradient - 1e-9).sum()) < len(rows)
    assert 0 < int((losses < LIMITS.loss).sum()) < len(rows)
    workspaces = [Workspace(task, LIMITS), Workspace(task, LIMITS)]
    found_losses, found = gradients_by_part(workspaces, rows, rows.group, 3, rows_per_chunk=4)
    for group in range(3):
        expected = gradients[rows.group == group].sum(dim=0)
        torch.testing.assert_close(found[group], expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(found_losses, losses, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", ["linear", "mlp", "tanh"])
def test_weights_come_after_clipping_and_the_ridge_is_no_rows(kind: str) -> None:
    ridge = 0.5 if kind == "linear" else 0.0
    task, rows = Task(model_of(kind, brier_loss), brier_loss, ridge), rows_of(brier_loss)
    gradients, _ = by_hand(task, rows)
    weights = torch.linspace(0.0, 3.0, len(rows), dtype=torch.float64)
    found, _ = weighted_gradient([Workspace(task, LIMITS)], rows, weights, 7)
    torch.testing.assert_close(found, weights @ gradients, rtol=1e-9, atol=1e-9)


def test_a_convolutions_gradient_is_in_the_models_order() -> None:
    x, y, group = image_rows(5)
    task, rows = Task(small_cnn(), brier_loss), Examples(x, y, group)
    gradients, _ = by_hand(task, rows)
    workspace = Workspace(task, LIMITS)
    found, _ = weighted_gradient([workspace], rows, torch.ones(5, dtype=torch.float64), 3)
    torch.testing.assert_close(found, gradients.sum(dim=0), rtol=1e-9, atol=1e-9)


def test_a_row_without_gradient_stays_without() -> None:
    limits = ClippedRows(1.0, 1.0)
    factors = limits.factors(torch.tensor([0.0, 0.25, 4.0]))
    assert factors.tolist() == [1.0, 1.0, 0.5]
    assert not math.isnan(float((factors * 0.0).sum()))


def slow_relu_model() -> nn.Module:
    """The same function as ``mlp``, differentiated row by row."""
    layers = [nn.Linear(4, 6), nn.LeakyReLU(0.0), nn.Linear(6, 5), nn.LeakyReLU(0.0)]
    return nn.Sequential(*layers, nn.Linear(5, 1)).double()


@pytest.mark.parametrize("explicit", [True, False])
def test_rows_whose_gradient_overflows_add_none_and_leave_the_others_as_they_are(
    *,
    explicit: bool,
) -> None:
    """Which rows do a server can choose by its model: a sum that is not finite would tell of them.

    Weights of 1e160 and a ReLU: rows with a positive number are infinite, the others 0.
    """
    model = model_of("mlp", squared_error_loss) if explicit else slow_relu_model()
    for parameter in model.parameters():
        nn.init.constant_(parameter, 1e160 if parameter.dim() > 1 else 0.0)
    task, rows = Task(model, squared_error_loss), rows_of(squared_error_loss)
    far = torch.zeros(len(rows), dtype=torch.bool)
    far[[2, 11]] = True
    x = torch.where(far[:, None], 1.0, -rows.x.abs())
    workspace = Workspace(task, LIMITS)
    assert (workspace.explicit_layers is not None) == explicit
    weights = torch.linspace(0.5, 2.0, len(rows), dtype=torch.float64)
    workspace.load(task.initial_parameters)
    gradient, losses = weighted_gradient([workspace], Examples(x, rows.y, rows.group), weights, 7)
    found = gradient.clone()
    assert losses[far].tolist() == [LIMITS.loss] * 2
    near = Examples(x[~far], rows.y[~far], rows.group[~far])
    gradient, others = weighted_gradient([workspace], near, weights[~far], 7)
    assert gradient.norm() > 0.1
    torch.testing.assert_close(found, gradient)
    torch.testing.assert_close(losses[~far], others)


NORMAL = NormalDist()


def delta_of(epsilon: float, deviation: float) -> float:
    half, far = 0.5 / deviation, epsilon * deviation
    return NORMAL.cdf(half - far) - math.exp(epsilon) * NORMAL.cdf(-half - far)


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 8.0])
@pytest.mark.parametrize("delta", [1e-6, 1e-3])
def test_one_release_has_the_noise_of_the_exact_formula(epsilon: float, delta: float) -> None:
    noise = noise_multiplier(epsilon, delta, 1)
    assert delta_of(epsilon, noise) <= delta
    # No more than a fifth of a percent above the least.
    assert delta_of(epsilon, noise / 1.002) > delta


@pytest.mark.parametrize("number", [4, 31])
def test_many_releases_are_one_with_less_noise(number: int) -> None:
    many, one = noise_multiplier(1.0, 1e-5, number), noise_multiplier(1.0, 1e-5, 1)
    assert many == pytest.approx(math.sqrt(number) * one, rel=1e-3)
    assert delta_of(1.0, many / math.sqrt(number)) <= 1e-5


def test_what_was_promised_adds_up_over_releases_of_different_noise() -> None:
    """Gaussians compose to the one whose inverse square is the sum of theirs."""
    together = epsilon_of([Releases(3, 5.0), Releases(1, 2.0)], 1e-5)
    same = 1.0 / math.sqrt(3 / 25 + 1 / 4)
    assert delta_of(together, same) <= 1e-5 < delta_of(0.998 * together, same)
    assert epsilon_of([], 1e-5) == 0.0


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 1e-5), (-1.0, 1e-5), (math.nan, 1e-5)])
def test_no_promise_without_a_positive_epsilon(epsilon: float, delta: float) -> None:
    with pytest.raises(InputError, match=r"epsilon = .*; give a positive number"):
        noise_multiplier(epsilon, delta, 1)


@pytest.mark.parametrize("delta", [0.0, -1e-9, 1.0])
def test_no_promise_without_a_delta_between_0_and_1(delta: float) -> None:
    with pytest.raises(InputError, match=r"delta = .*; give a number above 0"):
        noise_multiplier(1.0, delta, 1)
