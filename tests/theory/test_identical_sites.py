"""If all sites have the same rows, no method over sites can tell them apart: each is FedAvg.

This is ESG in its purest form. Weights stay uniform, so AFL, DRFA (one step), TERM and FairFed take
FedAvg's very step; q-FedAvg and FedMGDA+ take a step of another length in the same direction.
"""

from typing import Any

import pytest
import torch

from fedminmax.core.iterates import Iterate
from fedminmax.methods.afl import AFL
from fedminmax.methods.drfa import DRFA
from fedminmax.methods.fairfed import FairFed
from fedminmax.methods.fedavg import FedAvg
from fedminmax.methods.fedmgda import FedMGDA
from fedminmax.methods.fedminmax import FedMinMax
from fedminmax.methods.method import AnyMethod
from fedminmax.methods.qfedavg import QFedAvg
from fedminmax.methods.term import TERM
from fedminmax.training.train import train
from tests.problems import softmax_problem

PROBLEM = softmax_problem([[5, 9, 3]], seed=6, classes=2)
SITES = [PROBLEM.sites[0]] * 4
FEDAVG = FedAvg(0.3, 1, batch_size=None)


def iterates(method: AnyMethod[Any], rounds: int) -> torch.Tensor:
    federation = PROBLEM.federation(sites=SITES)
    return torch.stack(
        [done.parameters(Iterate.LAST) for done in train(federation, method, rounds=rounds)]
    )


@pytest.mark.parametrize(
    "method",
    [
        AFL(0.3, 0.5),
        DRFA(0.3, 0.5, steps=1, batch_size=None),
        TERM(5.0, 0.0, learning_rate=0.3, epochs=1, batch_size=None),
        FairFed(learning_rate=0.3, epochs=1, batch_size=None),
        QFedAvg(0.0, 0.3, epochs=1, batch_size=None),
    ],
    ids=lambda method: method.name,
)
def test_the_trajectory_is_fedavgs(method: AnyMethod[Any]) -> None:
    torch.testing.assert_close(iterates(method, 25), iterates(FEDAVG, 25), rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    "method",
    [
        QFedAvg(5.0, 0.3, epochs=1, batch_size=None),
        FedMGDA(1.0, learning_rate=0.3, epochs=1, batch_size=None),
    ],
    ids=lambda method: method.name,
)
def test_the_direction_is_fedavgs(method: AnyMethod[Any]) -> None:
    start = torch.from_numpy(PROBLEM.start)
    step = iterates(method, 1)[0] - start
    plain = iterates(FEDAVG, 1)[0] - start
    cosine = torch.dot(step, plain) / (step.norm() * plain.norm())
    assert float(cosine) == pytest.approx(1.0, abs=1e-12)


def test_a_method_over_groups_still_differs() -> None:
    difference = iterates(FedMinMax(0.3, 0.5), 25) - iterates(FEDAVG, 25)
    assert float(difference.norm()) > 1e-2
