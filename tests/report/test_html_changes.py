"""The interval of a difference, against a published example and against simulation."""

import math

import numpy as np

from fedminmax.report.html_changes import change_between
from fedminmax.report.html_run_schema import Interval


def wilson(successes: int, rows: int) -> Interval:
    """Wilson's score interval of a proportion at 95 %."""
    z, share = 1.959964, successes / rows
    middle = (share + z**2 / (2 * rows)) / (1 + z**2 / rows)
    half = z / (1 + z**2 / rows) * math.sqrt(share * (1 - share) / rows + z**2 / (4 * rows**2))
    return Interval(value=share, low=middle - half, high=middle + half)


def test_the_published_example_of_squaring_and_adding() -> None:
    """Newcombe 1998, Table II, method 10: 56/70 against 48/80 gives 0.0524 to 0.3339."""
    change = change_between("a", 150, before=wilson(48, 80), after=wilson(56, 70))
    assert change is not None
    assert round(change.value, 4) == 0.2
    assert (round(change.low, 4), round(change.high, 4)) == (0.0524, 0.3339)
    assert change.is_sure


def test_equal_models_are_called_different_in_at_most_one_of_twenty_test_sets() -> None:
    generator = np.random.default_rng(0)
    rows, sets = 200, 2000
    draws = generator.exponential(size=(sets, 2, rows))
    means = draws.mean(axis=2)
    halves = 1.96 * draws.std(axis=2, ddof=1) / math.sqrt(rows)

    def found(number: int) -> bool:
        ends = [
            Interval(value=mean, low=mean - half, high=mean + half)
            for mean, half in zip(means[number], halves[number], strict=True)
        ]
        change = change_between("a", rows, *ends)
        return change is not None and change.is_sure

    # Three standard errors of a share of 0.05 over so many sets.
    assert np.mean([found(number) for number in range(sets)]) < 0.05 + 3 * math.sqrt(0.0475 / sets)


def test_nothing_is_said_where_there_is_nothing_to_compare() -> None:
    whole, empty = wilson(5, 10), Interval(value=None, low=None, high=None)
    assert change_between("a", 10, whole, empty) is None
    assert change_between("a", 10, empty, whole) is None
    assert change_between("a", 10, whole, Interval(value=0.5, low=None, high=None)) is None
