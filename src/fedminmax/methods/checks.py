"""Checks of hyperparameters that several methods and the round loop share."""

import math
from importlib.util import find_spec

from fedminmax.core.errors import InputError
from fedminmax.core.optional_packages import install_command


def check_positive(method: str, **values: float) -> None:
    """Refuse a step size or the like that is not a positive finite number."""
    for name, value in values.items():
        if not (math.isfinite(value) and value > 0):
            raise InputError(f"{method}: {name} = {value:g}; give a positive number")


def check_not_negative(method: str, **values: float) -> None:
    """Refuse a number that is negative or not finite."""
    for name, value in values.items():
        if not (math.isfinite(value) and value >= 0):
            raise InputError(f"{method}: {name} = {value:g}; give zero or a positive number")


def check_whole(owner: str, *, least: int, **values: float) -> None:
    """Refuse what is not a whole number of at least ``least``."""
    for name, value in values.items():
        if not isinstance(value, int) or value < least:
            raise InputError(f"{owner}: {name} = {value}; give a whole number of at least {least}")


def check_plan(method: str, epochs: int, batch_size: int | None) -> None:
    """Refuse local epochs or batches that cannot be counted; None means all rows in one batch."""
    check_whole(method, least=1, epochs=epochs)
    if batch_size is not None:
        check_whole(method, least=1, batch_size=batch_size)


def check_floor(method: str, epsilon: float, size: int, what: str) -> None:
    """Refuse a floor that leaves no room on the simplex."""
    check_not_negative(method, epsilon=epsilon)
    if epsilon * size > 1.0:
        raise InputError(
            f"{method}: epsilon = {epsilon:g} with {size} {what} needs a total weight of "
            f"{epsilon * size:g}; choose epsilon at most {1.0 / size:g}"
        )


def check_solver(method: str) -> None:
    """Refuse a method whose solver is not installed, before its first round."""
    if find_spec("scipy") is None:
        raise InputError(f"{method} needs scipy's solvers: {install_command('scipy')}")
