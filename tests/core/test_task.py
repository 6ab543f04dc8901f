"""Models and losses that no federation can train as if rows were pooled are refused."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune

from fedminmax.core.examples import Examples, check_examples
from fedminmax.core.iterates import Iterate
from fedminmax.core.losses import Loss, brier_loss, cross_entropy_loss, squared_error_loss
from fedminmax.core.task import Task, check_fit, check_task
from fedminmax.methods.fedavg import FedAvg
from fedminmax.methods.fedminmax import FedMinMax
from fedminmax.methods.method import AnyMethod
from fedminmax.training.simulation import Simulation
from fedminmax.training.train import train
from tests.complaints import complaint_of

ROWS = check_examples(
    torch.zeros(4, 2), torch.tensor([0, 1, 2, 1]), torch.tensor([0, 0, 1, 1]), "site 0"
)


def mean_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return brier_loss(outputs, targets).mean()


def column_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return brier_loss(outputs, targets).unsqueeze(1)


@pytest.mark.parametrize(
    "norm", [nn.BatchNorm1d(3), nn.BatchNorm2d(3), nn.SyncBatchNorm(3), nn.LazyBatchNorm1d()]
)
def test_batch_normalisation_is_refused_with_a_way_out(norm: nn.Module) -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Sequential(norm, nn.ReLU()))
    message = complaint_of(lambda: check_task(Task(model, brier_loss)))
    assert "'1.0'" in message
    assert "statistics of batches" in message
    assert "GroupNorm" in message


def test_group_normalisation_is_welcome() -> None:
    model = nn.Sequential(nn.Linear(2, 4), nn.GroupNorm(2, 4))
    check_task(Task(model, brier_loss))
    check_fit(Task(model, brier_loss), ROWS, "site 0")


def two_views(first: Tensor, second: Tensor) -> nn.Sequential:
    model = nn.Sequential(nn.Linear(2, 3, bias=False), nn.Linear(2, 3, bias=False))
    model[0].weight, model[1].weight = nn.Parameter(first), nn.Parameter(second)
    return model


def test_views_of_the_same_numbers_are_refused() -> None:
    numbers = torch.arange(12.0)
    model = two_views(numbers[:6].view(3, 2), numbers[5:11].view(3, 2))
    message = complaint_of(lambda: check_task(Task(model, brier_loss)))
    assert "'0.weight' and '1.weight' are views of the same memory" in message
    # What moves the one moves the other.
    numbers[5] = 100.0
    one, other = model.parameters()
    assert one.tolist()[2][1] == other.tolist()[0][0] == 100.0


def test_an_expanded_parameter_is_refused() -> None:
    model = nn.Linear(2, 3)
    model.weight = nn.Parameter(torch.zeros(1, 2).expand(3, 2))
    message = complaint_of(lambda: Simulation(model, brier_loss, [(ROWS.x,) * 3]))
    assert "'weight' has several entries at one memory address" in message


def test_parameters_of_one_tensor_that_do_not_meet_are_welcome() -> None:
    """As after a flattening of weights, side by side or interleaved; and one under two names."""
    numbers = torch.arange(12.0)
    check_task(Task(two_views(numbers[:6].view(3, 2), numbers[6:].view(3, 2)), brier_loss))
    both = numbers.view(3, 4)
    check_task(Task(two_views(both[:, ::2], both[:, 1::2]), brier_loss))
    model = two_views(numbers[:6].view(3, 2), numbers[6:].view(3, 2))
    model[1].weight = model[0].weight
    check_task(Task(model, brier_loss))


def test_a_model_that_cannot_learn_is_refused() -> None:
    frozen = nn.Linear(2, 3).requires_grad_(requires_grad=False)
    assert "no trainable parameter" in complaint_of(lambda: check_task(Task(frozen, brier_loss)))


def test_mixed_precision_is_refused() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 3).double())
    assert "mixes dtypes" in complaint_of(lambda: check_task(Task(model, brier_loss)))


@pytest.mark.parametrize("loss", [mean_loss, column_loss])
def test_a_loss_must_give_one_number_per_row(loss: object) -> None:
    assert callable(loss)
    message = complaint_of(lambda: check_fit(Task(nn.Linear(2, 3), loss), ROWS, "site 0"))
    assert "one number per row" in message
    assert "reduction='none'" in message


@pytest.mark.parametrize(("label", "row"), [(3, 1), (-1, 2)])
def test_a_label_outside_the_outputs_is_named(label: int, row: int) -> None:
    y = torch.tensor([0, 1, 2, 1])
    y[row] = label
    rows = check_examples(ROWS.x, y, ROWS.group, "site 4")
    message = complaint_of(lambda: check_fit(Task(nn.Linear(2, 3), brier_loss), rows, "site 4"))
    assert message.startswith(f"site 4: label {label} in row {row}")
    assert "labels must be 0 to 2" in message


def test_features_that_do_not_fit_the_model_are_told_in_one_line() -> None:
    task = Task(nn.Linear(7, 3), brier_loss)
    message = complaint_of(lambda: check_fit(task, ROWS, "site 4"))
    assert message.startswith("site 4: model and loss do not fit x of shape (2, 2)")


def test_quantities_where_classes_are_needed_are_refused() -> None:
    rows = check_examples(ROWS.x, torch.zeros(4), ROWS.group, "site 4")
    task = Task(nn.Linear(2, 3), brier_loss)
    assert "torch.float32" in complaint_of(lambda: check_fit(task, rows, "site 4"))


def test_quantities_fit_a_regression() -> None:
    rows = check_examples(ROWS.x, torch.tensor([5.0, -3.0, 0.5, 9.0]), ROWS.group, "site 0")
    check_fit(Task(nn.Linear(2, 1), squared_error_loss), rows, "site 0")


def test_theta_zero_is_the_trainable_parameters_one_after_another() -> None:
    model = nn.Sequential(nn.Linear(2, 1), nn.Linear(1, 1))
    with torch.no_grad():
        for value, parameter in enumerate(model.parameters()):
            parameter.fill_(float(value))
    assert Task(model, brier_loss).initial_parameters.tolist() == [0.0, 0.0, 1.0, 2.0, 3.0]
    model[0].weight.requires_grad = False
    assert Task(model, brier_loss).initial_parameters.tolist() == [1.0, 2.0, 3.0]


def test_running_statistics_of_instances_are_refused_too() -> None:
    tracking = nn.Sequential(nn.Linear(2, 3), nn.InstanceNorm1d(3, track_running_stats=True))
    assert "GroupNorm" in complaint_of(lambda: check_task(Task(tracking, brier_loss)))
    check_task(Task(nn.Sequential(nn.Linear(2, 3), nn.InstanceNorm1d(3)), brier_loss))


def by_sgd(model: nn.Module, loss: Loss, rows: Examples, *, rate: float, steps: int) -> nn.Module:
    """Train a model itself with torch's own optimiser on the mean loss of all rows."""
    optimiser = torch.optim.SGD(model.parameters(), lr=rate)
    for _ in range(steps):
        optimiser.zero_grad()
        torch.autograd.backward(loss(model(rows.x), rows.y).mean())
        optimiser.step()
    return model


def pruned(layer: nn.Linear) -> nn.Linear:
    prune.l1_unstructured(layer, "weight", amount=2)  # type: ignore[no-untyped-call]
    return layer


def two_layers(last: nn.Module) -> nn.Module:
    torch.manual_seed(5)
    for parameter in last.parameters():
        nn.init.normal_(parameter)
    return nn.Sequential(nn.Linear(2, 2), nn.ReLU(), last)


@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated:FutureWarning")
@pytest.mark.parametrize(
    "wrapped",
    [
        nn.utils.weight_norm,
        parametrizations.weight_norm,
        pruned,
    ],
)
@pytest.mark.parametrize("method", [FedMinMax(0.3), FedAvg(0.3, epochs=1, batch_size=None)])
def test_weights_computed_in_every_pass_are_trained(
    wrapped: Callable[[nn.Linear], nn.Linear], method: AnyMethod[Any]
) -> None:
    """With one site and one group both methods are gradient descent on the mean loss."""
    model = two_layers(wrapped(nn.Linear(2, 3)))
    x = torch.randn(6, 2, generator=torch.Generator().manual_seed(1))
    rows = Examples(x, torch.arange(6) % 3, torch.zeros(6).long())
    federation = Simulation(model, brier_loss, [(rows.x, rows.y, rows.group)])
    done = list(train(federation, method, rounds=4))[-1]
    found = federation.model(done.parameters(Iterate.LAST))
    expected = by_sgd(model, brier_loss, rows, rate=0.3, steps=4)
    torch.testing.assert_close(found(x), expected(x))


@pytest.mark.parametrize("method", [FedMinMax(0.3), FedAvg(0.3, epochs=1, batch_size=None)])
def test_labels_may_be_shares_of_classes(method: AnyMethod[Any]) -> None:
    model = nn.Linear(2, 3)
    shares = torch.tensor([[0.7, 0.2, 0.1], [0.0, 0.5, 0.5], [0.2, 0.2, 0.6]])
    rows = Examples(torch.tensor([[1.0, 2.0], [0.5, -1.0], [0.0, 1.0]]), shares, torch.zeros(3))
    site = (rows.x, rows.y, rows.group.long())
    federation = Simulation(model, cross_entropy_loss, [site])
    done = list(train(federation, method, rounds=4))[-1]
    found = federation.model(done.parameters(Iterate.LAST))
    expected = by_sgd(model, cross_entropy_loss, rows, rate=0.3, steps=4)
    torch.testing.assert_close(found(rows.x), expected(rows.x))


class HiddenInAList(nn.Module):
    """The first layer is no submodule: torch does not see it."""

    def __init__(self) -> None:
        super().__init__()
        self.first = [nn.Linear(2, 2)]
        self.last = nn.Linear(2, 3)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.last(self.first[0](x))
        return outputs


def patched_around_itself() -> nn.Module:
    model = nn.Linear(2, 3)
    own = model.forward
    model.forward = lambda x: 2 * own(x)  # type: ignore[method-assign,assignment]
    return model


def with_gradient_hook() -> nn.Module:
    model = nn.Linear(2, 3)
    model.weight.register_hook(torch.zeros_like)  # type: ignore[no-untyped-call]
    return model


class ComputedOnce(nn.Linear):
    def __init__(self) -> None:
        super().__init__(2, 3)
        self.doubled = 2 * self.weight

    def forward(self, inputs: Tensor) -> Tensor:
        return nn.functional.linear(inputs, self.doubled, self.bias)


class Pair(nn.Linear):
    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs), inputs  # type: ignore[return-value]


def not_finite() -> nn.Module:
    model = nn.Linear(2, 3)
    nn.init.constant_(model.bias, float("nan"))
    return model


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (HiddenInAList(), "shape (2, 2) that is not a parameter of the model"),
        (patched_around_itself(), "bind a patched forward to the model (types.MethodType)"),
        (with_gradient_hook(), "parameter 'weight' has a gradient hook"),
        (ComputedOnce(), "'doubled' was computed from parameters before training"),
        (Pair(2, 3), "must be Tensor, not tuple"),
        (not_finite(), "parameter 'bias' is NaN or infinite"),
        (nn.Linear(2, 3, dtype=torch.complex64), "torch.complex64"),
        (nn.Linear(2, 3, device="meta"), "on meta"),
        (nn.Linear, "the class Linear; give a torch.nn.Module"),
        ("linear", "the model is 'linear'; give a torch.nn.Module"),
    ],
)
def test_models_that_cannot_be_trained_as_they_are(model: Any, words: str) -> None:
    site = (ROWS.x, ROWS.y, ROWS.group)
    assert words in complaint_of(lambda: Simulation(model, cross_entropy_loss, [site]))


class Temperature(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return brier_loss(outputs * self.scale, targets)


def fails_without_a_word(_outputs: Tensor, _targets: Tensor) -> Tensor:
    raise AssertionError


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        ("brier", "the loss is 'brier'; give a function"),
        (Temperature(), "shape (1,) that is not a parameter of the model"),
        (lambda outputs, targets: None, "the loss gives NoneType"),  # noqa: ARG005
        (fails_without_a_word, "AssertionError"),
        (squared_error_loss, "reduction='none'"),
    ],
)
def test_losses_that_cannot_be_trained_on(loss: Any, words: str) -> None:
    site = (ROWS.x, torch.zeros(4, 3) if loss is squared_error_loss else ROWS.y, ROWS.group)
    assert words in complaint_of(lambda: Simulation(nn.Linear(2, 3), loss, [site]))


def test_a_loss_may_be_an_object_without_a_hash() -> None:
    @dataclass
    class Scaled:
        factor: float

        def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
            return self.factor * brier_loss(outputs, targets)

    model, site = nn.Linear(2, 3), (ROWS.x, ROWS.y, ROWS.group)
    scaled = Simulation(model, Scaled(2.0), [site])
    plain = Simulation(model, brier_loss, [site])
    methods: list[AnyMethod[Any]] = [FedMinMax(), FedAvg(epochs=1)]
    for method in methods:
        risks = [next(train(own, method, rounds=1)).risks for own in (scaled, plain)]
        torch.testing.assert_close(risks[0], 2 * risks[1])


def test_training_works_inside_no_grad() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 3))
    site = (ROWS.x, ROWS.y, ROWS.group)

    def trained() -> Tensor:
        federation = Simulation(model, brier_loss, [site])
        return next(train(federation, FedMinMax(), rounds=1)).parameters()

    with torch.no_grad():
        inside = trained()
    assert torch.equal(inside, trained())


def test_whole_numbers_for_a_model_with_squeezed_output_are_explained() -> None:
    def logistic(outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.softplus(outputs) - outputs * targets

    model = nn.Sequential(nn.Linear(2, 1), nn.Flatten(0))
    site = (ROWS.x, ROWS.y % 2, ROWS.group)
    message = complaint_of(lambda: Simulation(model, logistic, [site]))
    assert "the model has one output" in message
    Simulation(model, logistic, [(ROWS.x, (ROWS.y % 2).float(), ROWS.group)])


def test_a_model_that_gives_more_than_outputs_is_told_so() -> None:
    def first(outputs: Tensor, targets: Tensor) -> Tensor:
        return brier_loss(outputs[0], targets)

    message = complaint_of(lambda: check_fit(Task(Pair(2, 3), first), ROWS, "site 0"))
    assert "the model gives tuple" in message


class Shifting(nn.Linear):
    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs.clamp_(min=0.0))


def forgets_labels(outputs: Tensor, targets: Tensor) -> Tensor:
    return brier_loss(outputs, targets.mul_(0))


@pytest.mark.parametrize(
    ("model", "loss"), [(Shifting(2, 3), brier_loss), (nn.Linear(2, 3), forgets_labels)]
)
def test_who_writes_into_the_rows_is_refused(model: nn.Module, loss: Loss) -> None:
    """Also if doing it twice is doing it once: batches are copies, and a whole site is not."""
    message = complaint_of(lambda: check_fit(Task(model, loss), ROWS, "site 0"))
    assert "writes into the x or y" in message


def test_a_loss_may_write_into_the_outputs() -> None:
    def doubled(outputs: Tensor, targets: Tensor) -> Tensor:
        return brier_loss(outputs.mul_(2), targets)

    def copied(outputs: Tensor, targets: Tensor) -> Tensor:
        return brier_loss(2 * outputs, targets)

    model, site = nn.Linear(2, 3), (ROWS.x, ROWS.y, ROWS.group)
    methods: list[AnyMethod[Any]] = [FedMinMax(), FedAvg(epochs=1)]
    for method in methods:
        found, expected = (
            next(train(Simulation(model, loss, [site]), method, rounds=1)).parameters()
            for loss in (doubled, copied)
        )
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    "mode", [lambda: torch.autocast("cpu", dtype=torch.bfloat16), torch.inference_mode]
)
def test_modes_in_which_models_compute_otherwise_are_refused(mode: Callable[[], Any]) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 3))
    federation = Simulation(model, brier_loss, [(ROWS.x, ROWS.y, ROWS.group)])
    rounds = train(federation, FedMinMax(), rounds=2)
    with mode():
        assert "leave the block" in complaint_of(lambda: next(rounds))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_scripted_model_is_refused() -> None:
    scripted: nn.Module = torch.jit.script(nn.Linear(2, 3))
    message = complaint_of(lambda: check_task(Task(nn.Sequential(scripted), brier_loss)))
    assert "from before torch.jit" in message
