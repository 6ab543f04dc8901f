"""Every metric as a quotient of two sums over rows, so that all groups share one form.

A metric of some rows is ``sum of its numerators / sum of its denominators``; a rate among rows with
a given label has denominator 0 in all others, and a group without such rows has no value (NaN)
rather than a flattering 0.

Calibration is the mean predicted probability minus the observed rate: above 0, the class is
predicted more often than it occurs in the group. It is a mean over rows, hence unbiased for small
and large groups; the expected calibration error takes absolute values in bins, which makes small
groups look worse only because of noise. It does not detect errors that cancel within a group; the
Brier risk does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedminmax.core.errors import InputError

Column = NDArray[np.float64]
# The metrics' names of the training risks.
RISKS = ("brier_risk", "squared_error")
# Kinds of mistakes of two classes, among the rows that are of the positive class or not.
MISSED, FALSE_ALARMS = "false_negative_rate", "false_positive_rate"
CALIBRATION, SELECTED = "calibration", "selection_rate"
# Metrics whose change from a baseline is measured row by row.
PAIRED = (*RISKS, "accuracy", "absolute_error", MISSED, FALSE_ALARMS)


@dataclass(frozen=True, eq=False)
class RowScore:
    """Each row's contribution to a metric's numerator and denominator."""

    numerators: Column
    denominators: Column


def score_quantities(y_true: Any, y_pred: Any) -> dict[str, RowScore]:
    """Score numbers: squared and absolute error, and mean error (predicted minus true).

    >>> score_quantities([1.0, 2.0], [1.0, 4.0])["squared_error"].numerators.tolist()
    [0.0, 4.0]
    """
    true, predicted = _numbers("y_true", y_true), _numbers("y_pred", y_pred)
    _check_rows(len(true), y_pred=predicted)
    error = predicted - true
    return _means(squared_error=error**2, absolute_error=np.abs(error), mean_error=error)


def score_classes(
    y_true: Any,
    *,
    y_pred: Any = None,
    y_prob: Any = None,
    classes: Sequence[Any] | None = None,
    positive: Any = None,
) -> dict[str, RowScore]:
    """Score predictions and, if given, probabilities (columns in the order of ``classes``).

    ``classes`` are by default those that occur, sorted; ``positive`` is by default the second of
    two. Rates and calibration are those of the positive class; without one there are none.
    """
    true = np.asarray(y_true)
    if true.ndim != 1:
        raise InputError(f"y_true has shape {true.shape}; give one label per row")
    if true.dtype.kind == "f" and np.isnan(true).any():
        raise InputError(f"y_true is NaN in row {int(np.isnan(true).argmax())}; drop that row")
    if y_pred is None and y_prob is None:
        raise InputError("neither y_pred nor y_prob was given; give one of them, or both")
    known = np.unique(true) if classes is None else np.asarray(classes)
    if known.ndim != 1:
        raise InputError(f"classes = {classes!r}; give a list of all classes")
    probabilities = None if y_prob is None else _probabilities(y_prob, len(true), len(known))
    if y_pred is None:
        predicted = known[np.asarray(probabilities).argmax(axis=1)]
    else:
        predicted = np.asarray(y_pred)
    _check_rows(len(true), y_pred=predicted)
    for name, values in (("y_true", true), ("y_pred", predicted)):
        if _is_text(values) != _is_text(known):
            raise InputError(
                f"{name} holds {values.dtype}, the classes are {known.dtype}: they can never be "
                "equal; give the same kind of labels"
            )
    right = (predicted == true).astype(float)
    scores = _means(accuracy=right)
    if probabilities is not None:
        truth = _one_hot(true, known)
        scores |= _means(
            brier_risk=((probabilities - truth) ** 2).sum(axis=1),
            overconfidence=probabilities.max(axis=1) - truth[_rows(true), probabilities.argmax(1)],
        )
    if positive is None and len(known) == 2:
        positive = known[1]
    if positive is not None:
        # A class that is never true or predicted would have undefined rates.
        _place(positive, known if classes is not None else np.unique([*true, *predicted]))
        scores |= _rates(true == positive, predicted == positive)
        if probabilities is not None:
            own = probabilities[:, _place(positive, known)]
            scores |= _means(calibration=own - (true == positive))
    return scores


def _rates(true: NDArray[np.bool_], chosen: NDArray[np.bool_]) -> dict[str, RowScore]:
    return _means(selection_rate=chosen.astype(float)) | {
        FALSE_ALARMS: RowScore((chosen & ~true).astype(float), (~true).astype(float)),
        MISSED: RowScore((~chosen & true).astype(float), true.astype(float)),
    }


def _means(**columns: Column) -> dict[str, RowScore]:
    return {name: RowScore(values, np.ones(len(values))) for name, values in columns.items()}


def _rows(values: NDArray[Any]) -> NDArray[np.int64]:
    return np.arange(len(values))


def _numbers(name: str, values: Any) -> Column:
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{name} has values that are not numbers ({error}); give numbers"
        ) from error
    if numbers.ndim != 1 or not np.isfinite(numbers).all():
        raise InputError(f"{name} has shape {numbers.shape}; give one finite number per row")
    return numbers


def _probabilities(given: Any, rows: int, classes: int) -> Column:
    """Return a column per class; a single column for two classes is the second one's."""
    try:
        table = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"y_prob has values that are not numbers ({error}); give numbers"
        ) from error
    if table.ndim == 1 and classes == 2:
        table = np.stack([1.0 - table, table], axis=1)
    if table.shape != (rows, classes):
        raise InputError(
            f"y_prob has shape {table.shape} for {rows} rows and {classes} classes; give a column "
            "per class, and name all classes in their order (classes=...)"
        )
    if not (np.abs(table.sum(axis=1) - 1.0) <= 1e-4).all() or not (table >= 0.0).all():
        raise InputError("y_prob has rows that do not sum to 1; give probabilities")
    return table


def _one_hot(true: NDArray[Any], classes: NDArray[Any]) -> Column:
    table: Column = (true[:, None] == classes[None, :]).astype(float)
    unknown = table.sum(axis=1) != 1.0
    if unknown.any():
        raise InputError(
            f"label {true[unknown].tolist()[0]!r} in row {int(unknown.argmax())} is not one of the "
            f"classes {classes.tolist()}; name all classes once"
        )
    return table


def _place(positive: Any, classes: NDArray[Any]) -> int:
    found = np.flatnonzero(classes == positive)
    if len(found) != 1:
        raise InputError(f"positive = {positive!r} is not one of the classes {classes.tolist()}")
    return int(found[0])


def _is_text(values: NDArray[Any]) -> bool:
    mixed = values.dtype == object and any(isinstance(value, str) for value in values.flat)
    return values.dtype.kind in "US" or mixed


def _check_rows(rows: int, **columns: NDArray[Any]) -> None:
    for name, values in columns.items():
        if values.shape != (rows,):
            raise InputError(
                f"{name} has shape {values.shape} for {rows} rows; give one entry per row"
            )


def stacked(scores: Mapping[str, RowScore]) -> Column:
    """Return numerators, then denominators, as columns of one table, ready to be summed."""
    return np.stack(
        [score.numerators for score in scores.values()]
        + [score.denominators for score in scores.values()],
        axis=1,
    )


def positive_scores(scores: Mapping[str, RowScore]) -> tuple[Column, NDArray[np.bool_]] | None:
    """Return the probabilities of the positive class, and who is of it; None without one.

    Calibration is the probability, minus 1 in rows of the positive class.
    """
    if not {CALIBRATION, MISSED} <= scores.keys():
        return None
    positive = scores[MISSED].denominators
    return scores[CALIBRATION].numerators + positive, positive > 0
