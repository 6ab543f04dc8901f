"""Checks of hyperparameters that several methods and the round loop share."""

from dataclasses import fields, is_dataclass, replace
from enum import Enum

import numpy as np

from fedminmax.core.errors import InputError
from fedminmax.core.text import format_value, is_finite, is_whole
from fedminmax.methods.method import AnyMethod, StateT


def check_positive(method: str, **values: float) -> None:
    """Refuse a number that is not positive and finite."""
    for name, value in values.items():
        if not (is_finite(value) and value > 0):
            raise InputError(f"{method}: {name} = {format_value(value)}; give a positive number")


def check_rate(method: str, learning_rate: float | None) -> None:
    """Refuse a learning rate that is not positive; None means a safe rate for the rows."""
    if learning_rate is not None:
        check_positive(method, learning_rate=learning_rate)


def check_not_negative(method: str, **values: float) -> None:
    """Refuse a number that is negative or not finite."""
    for name, value in values.items():
        if not (is_finite(value) and value >= 0):
            raise InputError(
                f"{method}: {name} = {format_value(value)}; give zero or a positive number"
            )


def check_share(owner: str, **values: float) -> None:
    """Refuse a share that is not above 0 and at most 1."""
    for name, value in values.items():
        if not (is_finite(value) and 0.0 < value <= 1.0):
            raise InputError(
                f"{owner}: {name} = {format_value(value)}; give a number above 0, at most 1"
            )


def check_whole(owner: str, *, minimum: int, **values: float) -> None:
    """Refuse a value that is not a whole number of at least ``minimum``."""
    for name, value in values.items():
        if not is_whole(value, minimum):
            raise InputError(
                f"{owner}: {name} = {value!r}; give a whole number of at least {minimum}"
            )


def checked_method(method: AnyMethod[StateT]) -> AnyMethod[StateT]:
    """Refuse an object that is not a method, or has an option of the wrong type.

    Returns the method with numpy's numbers as Python's: settings are sent, saved, and compared as
    text when a run is resumed.
    """
    given: object = method
    if isinstance(given, type):
        raise InputError(f"method is the class {given.__name__}; give {given.__name__}()")
    if not (hasattr(given, "order") and hasattr(given, "init") and hasattr(given, "reveals")):
        raise InputError(f"method = {given!r}; give a method, such as FedMinMax()")
    if not is_dataclass(given):
        return method
    plain = {}
    for field in fields(given):
        value = getattr(given, field.name)
        if isinstance(field.default, Enum) and not isinstance(value, type(field.default)):
            kind = type(field.default).__name__
            raise InputError(
                f"{method.name}: {field.name} = {value!r}; "
                f"give one of {kind}, such as {kind}.{field.default.name}"
            )
        if isinstance(value, np.generic):
            plain[field.name] = value.item()
    return replace(method, **plain) if plain else method  # type: ignore[type-var]


def check_plan(method: str, epochs: int, batch_size: int | None) -> None:
    """Refuse invalid numbers of epochs or batch sizes; None means all rows in one batch."""
    check_whole(method, minimum=1, epochs=epochs)
    if batch_size is not None:
        check_whole(method, minimum=1, batch_size=batch_size)


def check_floor(method: str, min_weight: float, size: int, what: str, total: float = 1.0) -> None:
    """Refuse a floor that is infeasible for weights with this total."""
    check_not_negative(method, min_weight=min_weight)
    if min_weight * size > total:
        raise InputError(
            f"{method}: min_weight = {min_weight:g} with {size} {what} needs a total weight of "
            f"{min_weight * size:g}, and there is {total:g}; choose min_weight at most "
            f"{total / size:g}"
        )


def check_keep_share(method: str, keep_share: float) -> None:
    """Refuse a part of the natural shares that leaves no weight to distribute."""
    if not (is_finite(keep_share) and 0.0 <= keep_share < 1.0):
        raise InputError(
            f"{method}: keep_share = {format_value(keep_share)}; give a number from 0 (weights may "
            "be 0) to below 1 (every record has nearly the same weight)"
        )


def check_trade(method: str, keep_share: float, tolerance: float) -> None:
    """Refuse a tolerance that is no share, or both forms of trading the worst risk for the mean."""
    check_keep_share(method, keep_share)
    if not (is_finite(tolerance) and 0.0 <= tolerance < 1.0):
        raise InputError(
            f"{method}: tolerance = {format_value(tolerance)}; give a share of the lowest possible "
            "worst risk, from 0 (exact minimax) to below 1, such as 0.005"
        )
    if tolerance and keep_share:
        raise InputError(
            f"{method}: tolerance = {tolerance:g} and keep_share = {keep_share:g} both trade the "
            "worst risk for the mean; give one of them, and 0 for the other"
        )
