"""Models and losses that no federation can train as if rows were pooled are refused."""

import pytest
import torch
from torch import Tensor, nn

from fedminmax.core.examples import check_examples
from fedminmax.core.losses import brier_loss, squared_error_loss
from fedminmax.core.task import Task, check_fit, check_task
from tests.complaints import complaint_of

ROWS = check_examples(
    torch.zeros(4, 2), torch.tensor([0, 1, 2, 1]), torch.tensor([0, 0, 1, 1]), "holder 0"
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
    check_fit(Task(model, brier_loss), ROWS, "holder 0")


def test_a_model_that_cannot_learn_is_refused() -> None:
    frozen = nn.Linear(2, 3).requires_grad_(requires_grad=False)
    assert "no trainable parameter" in complaint_of(lambda: check_task(Task(frozen, brier_loss)))


def test_mixed_precision_is_refused() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 3).double())
    assert "mixes dtypes" in complaint_of(lambda: check_task(Task(model, brier_loss)))


@pytest.mark.parametrize("loss", [mean_loss, column_loss])
def test_a_loss_must_give_one_number_per_row(loss: object) -> None:
    assert callable(loss)
    message = complaint_of(lambda: check_fit(Task(nn.Linear(2, 3), loss), ROWS, "holder 0"))
    assert "one number per row" in message
    assert "reduction='none'" in message


@pytest.mark.parametrize(("label", "row"), [(3, 1), (-1, 2)])
def test_a_label_outside_the_outputs_is_named(label: int, row: int) -> None:
    y = torch.tensor([0, 1, 2, 1])
    y[row] = label
    rows = check_examples(ROWS.x, y, ROWS.group, "holder 4")
    message = complaint_of(lambda: check_fit(Task(nn.Linear(2, 3), brier_loss), rows, "holder 4"))
    assert message.startswith(f"holder 4: label {label} in row {row}")
    assert "labels must be 0 to 2" in message


def test_features_that_do_not_fit_the_model_are_told_in_one_line() -> None:
    task = Task(nn.Linear(7, 3), brier_loss)
    message = complaint_of(lambda: check_fit(task, ROWS, "holder 4"))
    assert message.startswith("holder 4: model and loss do not fit x of shape (2, 2)")


def test_quantities_where_classes_are_needed_are_refused() -> None:
    rows = check_examples(ROWS.x, torch.zeros(4), ROWS.group, "holder 4")
    task = Task(nn.Linear(2, 3), brier_loss)
    assert "torch.float32" in complaint_of(lambda: check_fit(task, rows, "holder 4"))


def test_quantities_fit_a_regression() -> None:
    rows = check_examples(ROWS.x, torch.tensor([5.0, -3.0, 0.5, 9.0]), ROWS.group, "holder 0")
    check_fit(Task(nn.Linear(2, 1), squared_error_loss), rows, "holder 0")


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
