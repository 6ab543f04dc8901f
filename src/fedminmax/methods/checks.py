"""Checks of hyperparameters that several methods share."""

import math

from fedminmax.core.errors import InputError


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


def check_floor(method: str, epsilon: float, size: int, what: str) -> None:
    """Refuse a floor that leaves no room on the simplex."""
    check_not_negative(method, epsilon=epsilon)
    if epsilon * size > 1.0:
        raise InputError(
            f"{method}: epsilon = {epsilon:g} with {size} {what} needs a total weight of "
            f"{epsilon * size:g}; choose epsilon at most {1.0 / size:g}"
        )
