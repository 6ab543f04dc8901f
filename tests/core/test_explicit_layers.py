"""The explicit backward pass against autograd, and the models that it must leave alone."""

from functools import wraps
from itertools import pairwise
from types import MethodType

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook
from torch.nn.utils import parametrizations

from fedminmax.core.examples import Examples
from fedminmax.core.explicit_layers import find_explicit_layers
from fedminmax.core.local_epochs import LocalEpochs, train_locally
from fedminmax.core.losses import Loss, brier_loss, cross_entropy_loss, squared_error_loss
from fedminmax.core.models import cnn, linear, mlp
from fedminmax.core.one_step import weighted_gradient
from fedminmax.core.task import Task
from fedminmax.core.workspace import Workspace


def stack(widths: list[int], *, bias: bool) -> nn.Sequential:
    modules: list[nn.Module] = []
    for features, outputs in pairwise(widths):
        modules += [nn.Linear(features, outputs, bias=bias, dtype=torch.float64), nn.ReLU()]
    return nn.Sequential(*modules[:-1])


def own_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """A user's loss, whose gradient nobody has written down."""
    return (outputs.sum(dim=1) - targets).abs() ** 1.5


@given(
    hidden=st.lists(st.integers(1, 6), max_size=3),
    bias=st.booleans(),
    weighted=st.booleans(),
    loss=st.sampled_from([brier_loss, cross_entropy_loss, squared_error_loss, own_loss]),
    batch_size=st.sampled_from([None, 1, 4]),
    seed=st.integers(0, 50),
)
def test_training_equals_torchs_own_optimiser(
    *,
    hidden: list[int],
    bias: bool,
    weighted: bool,
    loss: Loss,
    batch_size: int | None,
    seed: int,
) -> None:
    """Oracle: autograd with torch.optim.SGD over the same batches."""
    generator = torch.Generator().manual_seed(seed)
    outputs = 1 if loss is squared_error_loss else 3
    model = stack([2, *hidden, outputs], bias=bias)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    x = torch.randn(7, 2, generator=generator, dtype=torch.float64)
    y = torch.randint(0, 3, (7,), generator=generator)
    target = y.double() if outputs == 1 else y
    weights = torch.rand(7, generator=generator, dtype=torch.float64) if weighted else None
    workspace = Workspace(Task(model, loss))
    assert workspace.explicit_layers is not None
    trained = train_locally(
        workspace,
        Examples(x, target, y),
        LocalEpochs(epochs=3, batch_size=batch_size, learning_rate=0.2),
        torch.Generator().manual_seed(1),
        weights,
    ).clone()

    shuffles = torch.Generator().manual_seed(1)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.2)
    for _ in range(3):
        order = torch.arange(7) if batch_size is None else torch.randperm(7, generator=shuffles)
        for batch in torch.split(order, batch_size or 7):
            losses = loss(model(x[batch]), target[batch])
            scaled = losses if weights is None else losses * weights[batch]
            optimiser.zero_grad()
            torch.autograd.backward(scaled.mean())
            optimiser.step()
    expected = torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])
    assert torch.allclose(trained, expected, rtol=1e-11, atol=1e-13)


@given(
    hidden=st.lists(st.integers(1, 6), max_size=3),
    bias=st.booleans(),
    loss=st.sampled_from([brier_loss, cross_entropy_loss, squared_error_loss, own_loss]),
    rows_per_chunk=st.integers(1, 8),
    seed=st.integers(0, 50),
)
def test_a_pass_over_all_rows_has_autograds_gradient(
    *, hidden: list[int], bias: bool, loss: Loss, rows_per_chunk: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    outputs = 1 if loss is squared_error_loss else 3
    model = stack([2, *hidden, outputs], bias=bias)
    x = torch.randn(7, 2, generator=generator, dtype=torch.float64)
    y = torch.randint(0, 3, (7,), generator=generator)
    target = y.double() if outputs == 1 else y
    weights = torch.rand(7, generator=generator, dtype=torch.float64)
    workspace = Workspace(Task(model, loss))
    rows = Examples(x, target, y)
    # Twice: the second pass must not see what the first one left behind.
    weighted_gradient([workspace], rows, 3 * weights, rows_per_chunk)
    gradient, losses = weighted_gradient([workspace], rows, weights, rows_per_chunk)
    expected = loss(model(x), target)
    torch.autograd.backward(torch.dot(expected, weights))
    own = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    flat = torch.cat([part.reshape(-1) for part in own])
    assert torch.allclose(gradient, flat, rtol=1e-11, atol=1e-13)
    assert torch.allclose(losses, expected.detach(), rtol=1e-13, atol=1e-15)


def test_our_own_fully_connected_models_are_recognised() -> None:
    assert find_explicit_layers(mlp(3, 2)) is not None
    assert find_explicit_layers(mlp(3, 2, hidden=())) is not None
    assert find_explicit_layers(linear(3, 2)) is not None


class Doubling(nn.Linear):
    def forward(self, inputs: Tensor) -> Tensor:
        return 2 * torch.nn.functional.linear(inputs, self.weight, self.bias)


def shared() -> nn.Module:
    layer = nn.Linear(2, 2)
    return nn.Sequential(layer, nn.ReLU(), layer)


def hooked() -> nn.Module:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    model[0].register_forward_hook(lambda _module, _inputs, output: output + 1)
    return model


def partly_frozen() -> nn.Module:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    model[0].requires_grad_(requires_grad=False)
    return model


def two_layers() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))


def patched(where: int) -> nn.Module:
    """The forward of an instance, of the stack itself (-1), of a layer or of a ReLU."""
    model = two_layers()
    module = model if where == -1 else model[where]
    module.forward = MethodType(lambda self, x: 2 * type(self).forward(self, x), module)
    return model


def with_parameter_of_its_own(where: int) -> nn.Module:
    model = two_layers()
    (model if where == -1 else model[where]).extra = nn.Parameter(torch.ones(2))
    return model


def with_bias_before_weight() -> nn.Module:
    """Parameters are listed in the order in which they were set."""
    model = nn.Linear(2, 2)
    weight = model.weight
    del model.weight
    model.weight = weight
    return model


def with_a_constant_for_a_weight() -> nn.Module:
    model = two_layers()
    del model[0].weight
    model[0].weight = torch.ones(2, 2)
    return model


@pytest.mark.parametrize(
    "model",
    [
        cnn(),
        patched(-1),
        patched(0),
        patched(1),
        with_parameter_of_its_own(-1),
        with_parameter_of_its_own(1),
        with_parameter_of_its_own(2),
        with_bias_before_weight(),
        with_a_constant_for_a_weight(),
        parametrizations.weight_norm(nn.Linear(2, 2)),
        nn.Sequential(nn.Linear(2, 2), nn.ReLU()),
        nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2)),
        nn.Sequential(nn.ReLU(), nn.Linear(2, 2)),
        nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Dropout(0.5)),
        nn.Sequential(Doubling(2, 2)),
        nn.Sequential(),
        shared(),
        hooked(),
        partly_frozen(),
    ],
)
def test_any_other_model_is_left_to_autograd(model: nn.Module) -> None:
    assert find_explicit_layers(model) is None


def test_a_patched_class_is_left_to_autograd(monkeypatch: pytest.MonkeyPatch) -> None:
    own = nn.Linear.forward

    @wraps(own)
    def doubled(self: nn.Linear, x: Tensor) -> Tensor:
        return 2 * own(self, x)

    monkeypatch.setattr(nn.Linear, "forward", doubled)
    assert find_explicit_layers(nn.Linear(2, 2)) is None


def one_step(workspace: Workspace, rows: Examples) -> tuple[Tensor, Tensor]:
    """Return what both ways of training do with a model: a gradient, and a local step."""
    gradient, _ = weighted_gradient([workspace], rows, torch.ones(len(rows)), len(rows))
    gradient = gradient.clone()
    plan = LocalEpochs(1, None, 1.0)
    return gradient, train_locally(workspace, rows, plan, torch.Generator()).clone()


def test_hooks_on_all_modules_count_as_long_as_they_are_set() -> None:
    """Doubling the output of the one layer doubles the derivative of outputs in parameters."""
    torch.manual_seed(0)
    model = nn.Linear(2, 1)
    rows = Examples(torch.randn(5, 2), torch.randn(5), torch.zeros(5).long())

    def by_hand(factor: float) -> Tensor:
        outputs = (rows.x @ model.weight.detach().T + model.bias.detach()).squeeze(1)
        pull = 2 * (factor * outputs - rows.y) * factor
        return torch.cat([pull @ rows.x, pull.sum().reshape(1)])

    workspace = Workspace(Task(model, squared_error_loss))
    start = workspace.flat.clone()
    for factor in (1.0, 2.0, 1.0):
        workspace.load(start)
        hook = register_module_forward_hook(lambda _module, _x, out, by=factor: by * out)
        if factor == 1.0:
            hook.remove()
        gradient, trained = one_step(workspace, rows)
        hook.remove()
        torch.testing.assert_close(gradient, by_hand(factor))
        torch.testing.assert_close(trained, start - by_hand(factor) / len(rows))


def test_a_batch_of_more_than_two_dimensions_is_left_to_autograd() -> None:
    """A linear layer may be applied along a sequence; the loss then sees [n, steps, outputs]."""
    model = nn.Linear(2, 1, dtype=torch.float64)
    x = torch.randn(5, 3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    workspace = Workspace(Task(model, lambda out, y: (out.mean(dim=(1, 2)) - y) ** 2))
    plan = LocalEpochs(1, None, 0.1)
    rows = Examples(x, torch.zeros(5, dtype=torch.float64), torch.zeros(5, dtype=torch.int64))
    trained = train_locally(workspace, rows, plan, torch.Generator())
    flat = x.mean(dim=1)
    residual = flat @ model.weight.detach()[0] + model.bias.detach()
    gradient = 2 * (residual.unsqueeze(1) * flat).mean(dim=0)
    assert torch.allclose(trained[:2], model.weight.detach()[0] - 0.1 * gradient)
