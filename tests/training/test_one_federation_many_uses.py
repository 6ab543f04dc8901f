"""One federation in several threads, in nested loops, copied or pickled: always the same models."""

import copy
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor

from fedminmax.core.iterates import Iterate
from fedminmax.core.losses import brier_loss
from fedminmax.methods.ditto import Ditto
from fedminmax.methods.fedavg import FedAvg
from fedminmax.methods.fedmgda import FedMGDA
from fedminmax.methods.fedminmax import FedMinMax
from fedminmax.methods.method import AnyMethod
from fedminmax.training.simulation import Simulation
from fedminmax.training.train import train
from tests.complaints import complaint_of
from tests.problems import softmax_problem

PROBLEM = softmax_problem([[3, 2], [2, 3]], classes=2)
# One of each way to ask.
METHODS: list[AnyMethod[Any]] = [
    FedMinMax(0.5),
    FedAvg(0.5, epochs=2, batch_size=2),
    FedMGDA(0.5, epochs=2, batch_size=2),
    Ditto(learning_rate=0.5, epochs=2, batch_size=2),
]
each_kind = pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)


def trained(federation: Simulation, method: AnyMethod[Any], seed: int) -> Tensor:
    rounds = train(federation, method, rounds=4, seed=seed)
    return torch.stack([done.parameters(Iterate.LAST) for done in rounds])


@each_kind
def test_two_threads_train_what_they_would_train_one_after_the_other(
    method: AnyMethod[Any],
) -> None:
    """The first one waits in the middle of its pass for the second one to finish, or to be late."""
    begun, inside, finished = threading.Event(), threading.Event(), threading.Event()

    def waiting(outputs: Tensor, targets: Tensor) -> Tensor:
        losses = brier_loss(outputs, targets)
        if begun.is_set() and not inside.is_set():
            inside.set()
            finished.wait(timeout=0.2)
        return losses

    federation = PROBLEM.federation(loss=waiting)
    # Another method for the second: it leaves other numbers behind than the first one's.
    expected = trained(federation, method, seed=1), trained(federation, FedMinMax(5.0), seed=2)

    def second() -> Tensor:
        inside.wait()
        result = trained(federation, FedMinMax(5.0), seed=2)
        finished.set()
        return result

    begun.set()
    with ThreadPoolExecutor(2) as threads:
        other = threads.submit(second)
        one = threads.submit(trained, federation, method, 1)
        assert torch.equal(one.result(), expected[0])
        assert torch.equal(other.result(), expected[1])


@each_kind
def test_a_run_inside_another_run_disturbs_neither(method: AnyMethod[Any]) -> None:
    federation = PROBLEM.federation()
    alone = trained(federation, method, seed=1)
    inner = []
    outer = []
    for done in train(federation, method, rounds=4, seed=1):
        outer.append(done.parameters(Iterate.LAST))
        inner.append(trained(federation, method, seed=1))
    assert torch.equal(torch.stack(outer), alone)
    assert all(torch.equal(own, alone) for own in inner)


def test_a_loss_that_asks_its_own_federation_is_refused() -> None:
    federations: list[Simulation] = []

    def asking(outputs: Tensor, targets: Tensor) -> Tensor:
        if federations:
            next(train(federations[0], FedMinMax(), rounds=1))
        return brier_loss(outputs, targets)

    federations.append(PROBLEM.federation(loss=asking))
    message = complaint_of(lambda: next(train(federations[0], FedMinMax(), rounds=1)))
    assert "its own federation" in message


COPIES: dict[str, Callable[[Any], Any]] = {
    "copied": copy.deepcopy,
    "pickled": lambda federation: pickle.loads(pickle.dumps(federation)),  # noqa: S301
}


@each_kind
@pytest.mark.parametrize("how", list(COPIES))
def test_a_copy_trains_the_same_models(how: str, method: AnyMethod[Any]) -> None:
    federation = PROBLEM.federation()
    copied = COPIES[how](federation)
    assert torch.equal(trained(copied, method, seed=1), trained(federation, method, seed=1))
