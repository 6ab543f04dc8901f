"""A hyperparameter that makes no sense is refused by name when the method is made."""

import math
from collections.abc import Callable

import pytest

from fedminmax.methods.afl import AFL
from fedminmax.methods.fedavg import FedAvg
from fedminmax.methods.fedminmax import FedMinMax
from fedminmax.methods.fedminmax_local import FedMinMaxLocal
from fedminmax.methods.qfedavg import QFedAvg
from tests.complaints import complaint_of

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
