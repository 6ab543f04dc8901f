"""Mistakes in the sites' data are refused when the federation is built, not in some round.

The federation holds copies of its sites' rows, on both paths, and writes to nobody's.
"""

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm
from torch.utils.data import ConcatDataset, Dataset, TensorDataset

from fedminmax.core.iterates import Iterate
from fedminmax.core.losses import brier_loss, squared_error_loss
from fedminmax.methods.fedavg import FedAvg
from fedminmax.methods.fedminmax import FedMinMax
from fedminmax.methods.method import AnyMethod
from fedminmax.methods.qfedavg import QFedAvg
from fedminmax.training.simulation import Simulation
from fedminmax.training.train import train
from tests.complaints import complaint_of
from tests.problems import Rows, softmax_problem


def rows(groups: list[int]) -> Rows:
    n = len(groups)
    return torch.arange(2.0 * n).view(n, 2), torch.arange(n) % 3, torch.tensor(groups).long()


def federation(sites: list[Rows], names: list[str] | None = None) -> Simulation:
    return Simulation(nn.Linear(2, 3), brier_loss, sites, group_names=names)


GOOD = rows([0, 1, 0])


def test_the_site_at_fault_is_named() -> None:
    x, y, group = rows([1, 1])
    x[1, 0] = math.nan
    message = complaint_of(lambda: federation([GOOD, (x, y, group)]))
    assert message.startswith("site 1: x is NaN or infinite in row 1")


def test_a_group_number_that_nobody_has_is_named() -> None:
    assert "group 1 has no rows at any site" in complaint_of(
        lambda: federation([rows([0, 2]), rows([2])])
    )


def test_a_group_name_that_nobody_has_is_named() -> None:
    message = complaint_of(lambda: federation([GOOD], ["red", "green", "blue"]))
    assert "group 'blue' (number 2) has no rows at any site" in message


def test_every_group_needs_a_name_if_any_has_one() -> None:
    message = complaint_of(lambda: federation([rows([0, 1, 2])], ["red", "green"]))
    assert "group 2 occurs in the data, but only 2 group names" in message


@pytest.mark.parametrize("sites", [[], [rows([])], [rows([]), rows([])]])
def test_no_rows_at_all_is_refused(sites: list[Rows]) -> None:
    assert "no site has a row" in complaint_of(lambda: federation(sites))


def test_a_label_at_a_later_site_is_found() -> None:
    x, _, group = rows([0, 1])
    message = complaint_of(lambda: federation([GOOD, (x, torch.tensor([0, 3]), group)]))
    assert message.startswith("site 1: label 3 in row 1")


def test_a_model_with_batch_normalisation_is_refused() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    message = complaint_of(lambda: Simulation(model, brier_loss, [GOOD]))
    assert "GroupNorm" in message


def test_a_loss_that_averages_is_refused() -> None:
    def mean(outputs: Tensor, targets: Tensor) -> Tensor:
        return brier_loss(outputs, targets).mean()

    message = complaint_of(lambda: Simulation(nn.Linear(2, 3), mean, [GOOD]))
    assert "one number per row" in message


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("empty_labels", [torch.zeros(0).long(), torch.zeros(0)], ids=str)
def test_an_empty_site_is_warned_about_and_left_out(*, fused: bool, empty_labels: Tensor) -> None:
    """Its rows are none, so neither their number nor their kind can matter to anyone."""
    model = nn.Linear(2, 3)
    nobody = (torch.zeros(0, 2), empty_labels, torch.zeros(0).long())
    other = rows([1, 1])
    with pytest.warns(UserWarning, match="site 1 has no rows and is skipped"):
        three = Simulation(model, brier_loss, [GOOD, nobody, other], fused=fused)
    two = Simulation(model, brier_loss, [GOOD, other], fused=fused)
    with_it = list(train(three, FedMinMax(), rounds=3))[-1]
    without = list(train(two, FedMinMax(), rounds=3))[-1]
    assert with_it.participants == (0, 2)
    torch.testing.assert_close(with_it.parameters(), without.parameters())
    torch.testing.assert_close(with_it.weights, without.weights)


def test_the_users_model_is_not_trained_in_place() -> None:
    model = nn.Linear(2, 3)
    before = model.weight.detach().clone()
    list(train(Simulation(model, brier_loss, [GOOD]), FedMinMax(), rounds=3))
    assert torch.equal(model.weight, before)


def test_features_that_overflow_in_the_models_precision_are_refused() -> None:
    x, y, group = rows([0, 1])
    huge = x.double()
    huge[1, 1] = 1e300
    message = complaint_of(lambda: federation([(huge, y, group)]))
    assert message.startswith("site 0: x is NaN or infinite in row 1")


def test_class_labels_for_a_model_with_one_output_are_explained() -> None:
    x, y, group = GOOD
    message = complaint_of(lambda: Simulation(nn.Linear(2, 1), squared_error_loss, [(x, y, group)]))
    assert "floating point for regression" in message


def test_pairs_and_arrays_of_texts_are_refused_with_what_to_give() -> None:
    pair: list[Any] = [(GOOD[0], GOOD[1])]
    texts: list[Any] = [(GOOD[0].numpy(), GOOD[1].numpy(), np.array(["a", "b", "a"]))]
    assert "three torch tensors or numpy arrays" in complaint_of(lambda: federation(pair))
    assert "ndarray of <U1" in complaint_of(lambda: federation(texts))


@pytest.mark.filterwarnings("ignore:`torch.nn.utils.spectral_norm` is deprecated:FutureWarning")
@pytest.mark.parametrize("wrapped", [spectral_norm, nn.utils.spectral_norm])
def test_a_model_that_keeps_score_of_its_calls_is_refused(
    wrapped: Callable[[nn.Linear], nn.Linear],
) -> None:
    model = nn.Sequential(wrapped(nn.Linear(2, 3)))
    message = complaint_of(lambda: Simulation(model, brier_loss, [GOOD]))
    assert "changes its own buffers" in message


def test_lazy_layers_are_refused() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that lazy modules are under development
        model = nn.LazyLinear(3)
    message = complaint_of(lambda: Simulation(model, brier_loss, [GOOD]))
    assert "lazy" in message


def test_a_loss_without_gradient_is_refused() -> None:
    def mistakes(outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs.argmax(dim=1) != targets).float()

    message = complaint_of(lambda: Simulation(nn.Linear(2, 3), mistakes, [GOOD]))
    assert "no gradient" in message


def test_a_loss_of_another_precision_is_refused() -> None:
    def double(outputs: Tensor, targets: Tensor) -> Tensor:
        return brier_loss(outputs.double(), targets)

    message = complaint_of(lambda: Simulation(nn.Linear(2, 3), double, [GOOD]))
    assert "torch.float64" in message


def test_the_users_model_may_change_without_moving_the_start() -> None:
    model = nn.Linear(2, 3)
    built = Simulation(model, brier_loss, [GOOD])
    before = built.initial_parameters
    nn.init.zeros_(model.weight)
    assert torch.equal(built.initial_parameters, before)


def test_q_fedavg_refuses_negative_losses() -> None:
    def negative(outputs: Tensor, _: Tensor) -> Tensor:
        return -outputs.square().sum(dim=1) - 1

    built = Simulation(nn.Linear(2, 3), negative, [GOOD])
    message = complaint_of(lambda: list(train(built, QFedAvg(1.0), rounds=1)))
    assert "never negative" in message


class RowByRow(Dataset[tuple[Tensor, int, int]]):
    """A data set that knows its rows only one at a time."""

    def __len__(self) -> int:
        return len(GOOD[0])

    def __getitem__(self, row: int) -> tuple[Tensor, int, int]:
        return GOOD[0][row], int(GOOD[1][row]), int(GOOD[2][row])


@pytest.mark.parametrize("site", [TensorDataset(*GOOD), RowByRow()])
def test_a_data_set_of_rows_is_a_site(site: Any) -> None:
    model = nn.Linear(2, 3)
    given = next(train(Simulation(model, brier_loss, [site]), FedMinMax(), rounds=1)).parameters()
    tensors = next(train(Simulation(model, brier_loss, [GOOD]), FedMinMax(), rounds=1)).parameters()
    assert torch.equal(given, tensors)


@pytest.mark.parametrize(
    ("sites", "words"),
    [
        ([TensorDataset(GOOD[0], GOOD[1])], "site 0: got (Tensor, Tensor)"),
        ([[GOOD[0][:2], *GOOD[1:]]], "x has 2 rows"),
        ([ConcatDataset([RowByRow(), TensorDataset(GOOD[0][:, :1], *GOOD[1:])])], "put together"),
        (GOOD, "site 0: got (Tensor)"),
        ({"a": GOOD}, "sites is a dict"),
        (None, "sites is a NoneType"),
        ([None], "site 0: got (NoneType)"),
        ([(GOOD[0].to_sparse(), *GOOD[1:])], "give x.to_dense()"),
        ([(GOOD[0], GOOD[1] + 0j, GOOD[2])], "y holds complex numbers"),
        ([(*GOOD[:2], torch.tensor([0, 1, 2**40]))], "number the groups from 0 without gaps"),
        ([(GOOD[0].long(), *GOOD[1:])], "give x.float()"),
        ([(GOOD[0], GOOD[1].float(), GOOD[2])], "give y.long()"),
        ([(GOOD[0], GOOD[1][:, None], GOOD[2])], "give the vector y.squeeze(1)"),
    ],
)
def test_sites_that_cannot_be_read(sites: Any, words: str) -> None:
    assert words in complaint_of(lambda: Simulation(nn.Linear(2, 3), brier_loss, sites))


def test_rows_of_another_shape_or_type_are_named_by_site() -> None:
    def own_choice(outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs.square().sum(dim=1) + 0 * targets

    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    small, large = torch.zeros(3, 1, 4, 4), torch.zeros(3, 1, 5, 5)
    images = [(small, *GOOD[1:]), (large, *GOOD[1:])]
    message = complaint_of(lambda: Simulation(model, own_choice, images))
    assert "site 1: a row of x is torch.float32 of shape (1, 5, 5), but at site 0" in message
    kinds = [(small, *GOOD[1:]), (small, GOOD[1].float(), GOOD[2])]
    message = complaint_of(lambda: Simulation(model, own_choice, kinds))
    assert "site 1: a row of y is one torch.float32, but at site 0 it is one torch.int64" in message


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["a", "a"], "groups 0 and 1 are both named 'a'"),
        ("ab", "group_names = 'ab'; give a list"),
        ({"a", "b"}, "give a list with a name each, in order"),
        ([0, 1], "the name of group 0 is 0; give a text"),
        ([], "only 0 group names"),
    ],
)
def test_names_that_do_not_tell_groups_apart(names: Any, words: str) -> None:
    assert words in complaint_of(lambda: federation([GOOD], names))


@pytest.mark.parametrize(
    "vector", [torch.zeros(8), torch.zeros(10), torch.zeros(1, 9), [0.0] * 9, None]
)
def test_a_model_needs_a_vector_of_its_length(vector: Any) -> None:
    assert "a vector of 9 numbers" in complaint_of(lambda: federation([GOOD]).model(vector))


def test_what_the_server_is_shown_is_one_of_three() -> None:
    shown: Any = "sums"
    message = complaint_of(lambda: Simulation(nn.Linear(2, 3), brier_loss, [GOOD], reveals=shown))
    assert "reveals = 'sums'" in message


def test_a_model_of_another_precision_than_its_parameters_is_refused() -> None:
    class Doubling(nn.Linear):
        def forward(self, inputs: Tensor) -> Tensor:
            return super().forward(inputs).double()

    message = complaint_of(lambda: Simulation(Doubling(2, 3), brier_loss, [GOOD]))
    assert "gives torch.float64 from parameters of torch.float32" in message


PROBLEM = softmax_problem([[2, 1], [1, 2]])
METHODS: list[AnyMethod[Any]] = [FedMinMax(), FedAvg(epochs=2, batch_size=2)]
both_paths = pytest.mark.parametrize("fused", [True, False])
one_step_and_local = pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)


def trained(rows: list[Rows], method: AnyMethod[Any], *, fused: bool, spoil: bool) -> Tensor:
    """Return the model after two rounds; the user's tensors change after the federation is made."""
    federation = PROBLEM.federation(fused=fused, sites=rows)
    if spoil:
        for x, y, group in rows:
            x.detach().fill_(9.0)
            y.fill_(0)
            group.fill_(0)
    return list(train(federation, method, rounds=2))[-1].parameters(Iterate.LAST)


@both_paths
@one_step_and_local
@pytest.mark.parametrize("sites", [1, 2])
def test_what_happens_to_the_users_tensors_later_moves_no_run(
    method: AnyMethod[Any], sites: int, *, fused: bool
) -> None:
    rows = PROBLEM.sites[:sites]
    expected = trained(rows, method, fused=fused, spoil=False)
    own = [(x.clone(), y.clone(), group.clone()) for x, y, group in rows]
    assert torch.equal(trained(own, method, fused=fused, spoil=True), expected)


def test_the_counts_that_a_federation_hands_out_are_a_copy() -> None:
    federation = PROBLEM.federation()
    federation.census.counts.fill_(9)
    assert federation.census.counts.tolist() == [[2, 1], [1, 2]]


@both_paths
@one_step_and_local
def test_the_users_tensors_get_no_gradient(method: AnyMethod[Any], *, fused: bool) -> None:
    rows = [(x.clone().requires_grad_(), y, group) for x, y, group in PROBLEM.sites]
    result = trained(rows, method, fused=fused, spoil=False)
    assert not result.requires_grad
    assert [x.grad for x, _, _ in rows] == [None, None]
