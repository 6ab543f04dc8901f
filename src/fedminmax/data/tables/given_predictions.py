"""Check what a model from elsewhere predicts: probabilities of the target's classes, or numbers."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedminmax.config.file_format import BOOLEANS
from fedminmax.config.schema import Target
from fedminmax.core.errors import InputError
from fedminmax.core.text import quoted

# Probabilities in single precision add up to 1 no more exactly.
ROUNDING = 1e-4


def checked_predictions(
    given: NDArray[np.float64], classes: Sequence[str], target: Target, name: str
) -> NDArray[np.float64]:
    """Return predictions in the order of the target's classes; refuse what they cannot be."""
    if given.ndim == 2 and given.shape[1] == 1:
        given = given[:, 0]
    if not np.isfinite(given).all():
        rows = np.flatnonzero(~np.isfinite(given.reshape(len(given), -1)).all(axis=1))
        raise InputError(
            f"{name} predicts no number for record {rows[0] + 1} ({len(rows):,} such records); "
            "give a prediction for every record"
        )
    if target.is_quantity:
        if given.ndim != 1:
            raise InputError(
                f"{name} has {given.shape[1]} outputs for each record, and the target is a "
                "number; give a model with one output, or --task classification"
            )
        return given
    count = len(target.classes)
    if given.min(initial=0.0) < -ROUNDING or given.max(initial=0.0) > 1.0 + ROUNDING:
        raise InputError(
            f"{name} predicts values from {given.min():.4g} to {given.max():.4g}, which are no "
            "probabilities; give a model whose outputs are from 0 to 1"
        )
    if given.ndim == 1 and count == 2:
        return np.stack([1.0 - given, given], axis=1)
    if given.ndim != 2 or given.shape[1] != count:
        outputs = 1 if given.ndim == 1 else given.shape[1]
        raise InputError(
            f"{name} has {outputs} outputs for each record, and the target has {count} classes "
            f"({quoted(target.classes)}); give a probability for each class"
        )
    sums = given.sum(axis=1)
    if len(sums) and np.abs(sums - 1.0).max() > ROUNDING:
        worst = int(np.abs(sums - 1.0).argmax())
        raise InputError(
            f"{name} predicts probabilities that add up to {sums[worst]:.4g} in record "
            f"{worst + 1}; give probabilities that add up to 1"
        )
    places = {_spelled(own): place for place, own in enumerate(classes)}
    if not are_labels(classes, target) or len(places) != count:
        raise InputError(
            f"{name} predicts the classes {quoted(classes)}, and the target has "
            f"{quoted(target.classes)}; give a model of this target"
        )
    order = np.array([places[_spelled(own)] for own in target.classes])
    return given[:, order]


def sorted_classes(target: Target) -> tuple[str, ...]:
    """Return the classes in the order of models that do not tell: numbers by size, else texts."""

    def place(name: str) -> tuple[float, str]:
        try:
            return float(name), ""
        except ValueError:
            return np.inf, name

    return tuple(sorted(target.classes, key=place))


def are_labels(values: Sequence[object], target: Target) -> bool:
    """Return whether all of these are classes of the target."""
    return {*map(_spelled, values)} <= {*map(_spelled, target.classes)}


def are_numbers(target: Target) -> bool:
    """Return whether the target's classes are numbers, or words for 0 and 1."""
    return all(_spelled(own).lstrip("-").replace(".", "", 1).isdecimal() for own in target.classes)


def from_labels(given: NDArray[Any], target: Target, name: str) -> NDArray[np.float64]:
    """Return probabilities 1 for predicted classes."""
    places = {_spelled(own): place for place, own in enumerate(target.classes)}
    labels = [places.get(_spelled(own)) for own in given.tolist()]
    if None in labels:
        other = given.tolist()[labels.index(None)]
        raise InputError(
            f"{name} predicts '{other}', and the target has {quoted(target.classes)}; give a "
            "model of this target"
        )
    return np.eye(len(target.classes))[np.array(labels, np.int64)]


def _spelled(name: object) -> str:
    """Return a class's name as numbers and booleans of any program are spelled the same."""
    text = str(name).strip()
    text = BOOLEANS.get(text.lower(), text)
    try:
        return f"{float(text):.15g}"
    except ValueError:
        return text
