"""The federation holds copies of its sites' rows, on both paths, and writes to nobody's."""

from typing import Any

import pytest
import torch
from torch import Tensor

from fedminmax.core.iterates import Iterate
from fedminmax.methods.fedavg import FedAvg
from fedminmax.methods.fedminmax import FedMinMax
from fedminmax.methods.method import AnyMethod
from fedminmax.training.train import train
from tests.problems import Rows, softmax_problem

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
