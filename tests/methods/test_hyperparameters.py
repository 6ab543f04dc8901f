"""A hyperparameter that makes no sense is refused by name when the method is made.

Methods for parity refuse what has no positive class, and hyperparameters without a meaning.
"""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from fedminmax.core.errors import InputError
from fedminmax.core.losses import squared_error_loss
from fedminmax.methods.afl import AFL
from fedminmax.methods.fairfed import FairFed
from fedminmax.methods.fedavg import FedAvg
from fedminmax.methods.fedfb import FedFB
from fedminmax.methods.fedgft import FedGFT
from fedminmax.methods.fedminmax import FedMinMax, FedMinMaxLocal
from fedminmax.methods.method import AnyMethod
from fedminmax.methods.qfedavg import QFedAvg
from fedminmax.training.simulation import Simulation
from fedminmax.training.train import train
from tests.complaints import complaint_of
from tests.problems import softmax_problem

NOT_POSITIVE = [0.0, -1.0, math.nan, math.inf, -math.inf]
NEGATIVE = [-1.0, math.nan, math.inf]

WITH_LEARNING_RATE: list[Callable[[float], object]] = [
    lambda rate: FedMinMax(learning_rate=rate),
    lambda rate: AFL(learning_rate=rate),
    lambda rate: FedAvg(learning_rate=rate),
    lambda rate: QFedAvg(1.0, learning_rate=rate),
]
MAY_BE_ZERO: list[tuple[str, Callable[[float], object]]] = [
    ("adversary_rate", lambda value: FedMinMax(adversary_rate=value)),
    ("adversary_rate", lambda value: AFL(adversary_rate=value)),
    ("min_weight", lambda value: FedMinMax(min_weight=value)),
    ("q", lambda value: QFedAvg(value)),
]
COUNTS: list[tuple[str, Callable[[int], object]]] = [
    ("epochs", lambda value: FedAvg(epochs=value)),
    ("epochs", lambda value: QFedAvg(1.0, epochs=value)),
    ("epochs", lambda value: FedMinMaxLocal(epochs=value)),
    ("batch_size", lambda value: FedAvg(batch_size=value)),
    ("batch_size", lambda value: QFedAvg(1.0, batch_size=value)),
    ("batch_size", lambda value: FedMinMaxLocal(batch_size=value)),
]


@pytest.mark.parametrize("value", NOT_POSITIVE)
@pytest.mark.parametrize("make", WITH_LEARNING_RATE)
def test_learning_rates_are_positive(make: Callable[[float], object], value: float) -> None:
    message = complaint_of(lambda: make(value))
    assert f"learning_rate = {value:g}; give a positive number" in message


@pytest.mark.parametrize("value", NEGATIVE)
@pytest.mark.parametrize(("name", "make"), MAY_BE_ZERO)
def test_some_numbers_may_be_zero_but_not_less(
    name: str, make: Callable[[float], object], value: float
) -> None:
    make(0.0)
    message = complaint_of(lambda: make(value))
    assert f"{name} = {value:g}; give zero or a positive number" in message


@pytest.mark.parametrize("value", [0, -3])
@pytest.mark.parametrize(("name", "make"), COUNTS)
def test_counts_are_positive(name: str, make: Callable[[int], object], value: int) -> None:
    make(1)
    assert f"{name} = {value}; give a whole number of at least 1" in complaint_of(
        lambda: make(value)
    )


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
