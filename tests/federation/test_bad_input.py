"""Mistakes in the holders' data are refused when the federation is built, not in some round."""

import math
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

from fedminmax.core.losses import brier_loss, squared_error_loss
from fedminmax.federation.inprocess import InProcessFederation
from fedminmax.federation.train import train
from fedminmax.methods.fedminmax import FedMinMax
from fedminmax.methods.qfedavg import QFedAvg
from tests.complaints import complaint_of
from tests.problems import Rows


def rows(groups: list[int]) -> Rows:
    n = len(groups)
    return torch.arange(2.0 * n).view(n, 2), torch.arange(n) % 3, torch.tensor(groups).long()


def federation(holders: list[Rows], names: list[str] | None = None) -> InProcessFederation:
    return InProcessFederation(nn.Linear(2, 3), brier_loss, holders, group_names=names)


GOOD = rows([0, 1, 0])


def test_the_holder_at_fault_is_named() -> None:
    x, y, group = rows([1, 1])
    x[1, 0] = math.nan
    message = complaint_of(lambda: federation([GOOD, (x, y, group)]))
    assert message.startswith("holder 1: x is NaN or infinite in row 1")


def test_a_group_number_that_nobody_has_is_named() -> None:
    assert "group 1 has no rows at any holder" in complaint_of(
        lambda: federation([rows([0, 2]), rows([2])])
    )


def test_a_group_name_that_nobody_has_is_named() -> None:
    message = complaint_of(lambda: federation([GOOD], ["red", "green", "blue"]))
    assert "group 'blue' (number 2) has no rows at any holder" in message


def test_every_group_needs_a_name_if_any_has_one() -> None:
    message = complaint_of(lambda: federation([rows([0, 1, 2])], ["red", "green"]))
    assert "group 2 occurs in the data, but only 2 group names" in message


@pytest.mark.parametrize("holders", [[], [rows([])], [rows([]), rows([])]])
def test_no_rows_at_all_is_refused(holders: list[Rows]) -> None:
    assert "no holder has a row" in complaint_of(lambda: federation(holders))


def test_a_label_at_a_later_holder_is_found() -> None:
    x, _, group = rows([0, 1])
    message = complaint_of(lambda: federation([GOOD, (x, torch.tensor([0, 3]), group)]))
    assert message.startswith("holder 1: label 3 in row 1")


def test_a_model_with_batch_normalisation_is_refused() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    message = complaint_of(lambda: InProcessFederation(model, brier_loss, [GOOD]))
    assert "GroupNorm" in message


def test_a_loss_that_averages_is_refused() -> None:
    def mean(outputs: Tensor, targets: Tensor) -> Tensor:
        return brier_loss(outputs, targets).mean()

    message = complaint_of(lambda: InProcessFederation(nn.Linear(2, 3), mean, [GOOD]))
    assert "one number per row" in message


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("empty_labels", [torch.zeros(0).long(), torch.zeros(0)], ids=str)
def test_an_empty_holder_is_warned_about_and_left_out(*, fused: bool, empty_labels: Tensor) -> None:
    """Its rows are none, so neither their number nor their kind can matter to anyone."""
    model = nn.Linear(2, 3)
    nobody = (torch.zeros(0, 2), empty_labels, torch.zeros(0).long())
    other = rows([1, 1])
    with pytest.warns(UserWarning, match="holder 1 has no rows and is left out"):
        three = InProcessFederation(model, brier_loss, [GOOD, nobody, other], fused=fused)
    two = InProcessFederation(model, brier_loss, [GOOD, other], fused=fused)
    with_it = list(train(three, FedMinMax(), rounds=3))[-1]
    without = list(train(two, FedMinMax(), rounds=3))[-1]
    assert with_it.participants == (0, 2)
    torch.testing.assert_close(with_it.parameters(), without.parameters())
    torch.testing.assert_close(with_it.weights, without.weights)


def test_the_users_model_is_not_trained_in_place() -> None:
    model = nn.Linear(2, 3)
    before = model.weight.detach().clone()
    list(train(InProcessFederation(model, brier_loss, [GOOD]), FedMinMax(), rounds=3))
    assert torch.equal(model.weight, before)


def test_features_that_overflow_in_the_models_precision_are_refused() -> None:
    x, y, group = rows([0, 1])
    huge = x.double()
    huge[1, 1] = 1e300
    message = complaint_of(lambda: federation([(huge, y, group)]))
    assert message.startswith("holder 0: x is NaN or infinite in row 1")


def test_class_labels_for_a_model_with_one_output_are_explained() -> None:
    x, y, group = GOOD
    message = complaint_of(
        lambda: InProcessFederation(nn.Linear(2, 1), squared_error_loss, [(x, y, group)])
    )
    assert "floating point for regression" in message


def test_arrays_and_pairs_are_refused_with_what_to_give() -> None:
    pair: list[Any] = [(GOOD[0], GOOD[1])]
    arrays: list[Any] = [tuple(tensor.numpy() for tensor in GOOD)]
    assert "three torch tensors" in complaint_of(lambda: federation(pair))
    assert "(ndarray, ndarray, ndarray)" in complaint_of(lambda: federation(arrays))


def test_a_model_that_keeps_score_of_its_calls_is_refused() -> None:
    model = nn.Sequential(spectral_norm(nn.Linear(2, 3)))
    message = complaint_of(lambda: InProcessFederation(model, brier_loss, [GOOD]))
    assert "changes its own buffers" in message


def test_lazy_layers_are_refused() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that lazy modules are under development
        model = nn.LazyLinear(3)
    message = complaint_of(lambda: InProcessFederation(model, brier_loss, [GOOD]))
    assert "lazy" in message


def test_a_loss_without_gradient_is_refused() -> None:
    def mistakes(outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs.argmax(dim=1) != targets).float()

    message = complaint_of(lambda: InProcessFederation(nn.Linear(2, 3), mistakes, [GOOD]))
    assert "no gradient" in message


def test_a_loss_of_another_precision_is_refused() -> None:
    def double(outputs: Tensor, targets: Tensor) -> Tensor:
        return brier_loss(outputs.double(), targets)

    message = complaint_of(lambda: InProcessFederation(nn.Linear(2, 3), double, [GOOD]))
    assert "torch.float64" in message


def test_the_users_model_may_change_without_moving_the_start() -> None:
    model = nn.Linear(2, 3)
    built = InProcessFederation(model, brier_loss, [GOOD])
    before = built.initial_parameters
    nn.init.zeros_(model.weight)
    assert torch.equal(built.initial_parameters, before)


def test_q_fedavg_refuses_negative_losses() -> None:
    def negative(outputs: Tensor, _: Tensor) -> Tensor:
        return -outputs.square().sum(dim=1) - 1

    built = InProcessFederation(nn.Linear(2, 3), negative, [GOOD])
    message = complaint_of(lambda: list(train(built, QFedAvg(1.0), rounds=1)))
    assert "never negative" in message
