"""Methods for parity refuse what has no positive class, and hyperparameters without a meaning."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from fedminmax.core.errors import InputError
from fedminmax.core.losses import squared_error_loss
from fedminmax.methods.fairfed import FairFed
from fedminmax.methods.fedfb import FedFB
from fedminmax.methods.fedgft import FedGFT
from fedminmax.methods.method import AnyMethod
from fedminmax.training.simulation import Simulation
from fedminmax.training.train import train
from tests.problems import softmax_problem

METHODS: list[AnyMethod[Any]] = [FedFB(), FairFed(), FedGFT()]
each_method = pytest.mark.parametrize("method", METHODS, ids=lambda own: type(own).__name__)


@each_method
def test_three_classes_are_refused_before_the_first_round(method: AnyMethod[Any]) -> None:
    problem = softmax_problem([[3, 2], [2, 2]], classes=3)
    with pytest.raises(InputError, match=f"{type(method).__name__}.* two classes, got 3 classes"):
        train(problem.federation(), method, rounds=1)


@each_method
def test_quantities_are_refused_before_the_first_round(method: AnyMethod[Any]) -> None:
    rows = (torch.zeros(3, 1), torch.zeros(3), torch.tensor([0, 1, 1]))
    federation = Simulation(nn.Linear(1, 1), squared_error_loss, [rows])
    with pytest.raises(InputError, match="quantities to predict"):
        train(federation, method, rounds=1)


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: FedFB(adversary_rate=-0.1), "adversary_rate"),
        (lambda: FedFB(learning_rate=0.0), "learning_rate"),
        (lambda: FedFB(epochs=0), "epochs"),
        (lambda: FairFed(-1.0), "beta"),
        (lambda: FairFed(learning_rate=0.0), "learning_rate"),
        (lambda: FairFed(batch_size=0), "batch_size"),
        (lambda: FedGFT(float("nan")), "penalty"),
        (lambda: FedGFT(learning_rate=-1.0), "learning_rate"),
        (lambda: FedGFT(epochs=0), "epochs"),
    ],
)
def test_numbers_without_a_meaning_are_refused(make: Callable[[], object], word: str) -> None:
    with pytest.raises(InputError, match=word):
        make()
