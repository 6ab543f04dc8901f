"""Exact sums against rational arithmetic, and the same numbers for any split of the rows."""

import math
import statistics
from fractions import Fraction
from functools import reduce
from operator import add

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedminmax.core.exact_sums import NO_ROWS, ExactSums, exact_sums
from tests.complaints import complaint_of

finite = st.floats(allow_nan=False, allow_infinity=False)
columns = st.lists(finite, max_size=60)


def by_fractions(values: list[float]) -> ExactSums:
    numbers = [Fraction(value) for value in values]
    return ExactSums(
        len(numbers), sum(numbers, Fraction(0)), sum((x * x for x in numbers), Fraction(0))
    )


@given(columns)
def test_sums_are_those_of_rational_arithmetic(values: list[float]) -> None:
    assert exact_sums(np.array(values)) == by_fractions(values)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60))
def test_mean_is_that_of_fsum_and_deviation_that_of_the_standard_library(
    values: list[float],
) -> None:
    sums = exact_sums(np.array(values))
    assert sums.mean == float(sum(map(Fraction, values)) / len(values))
    assert sums.mean == pytest.approx(math.fsum(values) / len(values), rel=1e-15)
    assert sums.deviation == pytest.approx(statistics.pstdev(values), rel=1e-12)


@given(columns, st.lists(st.integers(0, 60), max_size=4))
def test_any_split_adds_up_to_the_same_sums(values: list[float], cuts: list[int]) -> None:
    parts = np.split(np.array(values), sorted(cuts))
    assert reduce(add, map(exact_sums, parts), NO_ROWS) == exact_sums(np.array(values))


def test_more_rows_than_one_chunk() -> None:
    generator = np.random.default_rng(0)
    values = generator.standard_normal(40_000) * 10.0 ** generator.integers(-30, 30, 40_000)
    sums = exact_sums(values)
    assert sums == by_fractions(values.tolist())
    assert float(sums.total) == math.fsum(values)


@pytest.mark.parametrize("value", [0.1, 1e9 + 0.1, 1e-300, 5e-324, 1.7e308, 0.0, -0.0])
def test_the_variance_of_equal_numbers_is_exactly_zero(value: float) -> None:
    sums = exact_sums(np.full(1000, value))
    assert sums.variance == 0
    assert sums.deviation == 0.0
    assert sums.mean == value


def test_nothing_is_lost_where_a_rounded_sum_of_squares_cancels() -> None:
    # n = 2: the deviation of a and a + 2d is d, however large a is.
    assert exact_sums(np.array([1e15, 1e15 + 1.0])).deviation == 0.5


def test_a_deviation_whose_square_is_out_of_range() -> None:
    assert exact_sums(np.array([-1e200, 1e200])).deviation == pytest.approx(1e200, rel=1e-15)
    assert exact_sums(np.array([-1e-200, 1e-200])).deviation == pytest.approx(1e-200, rel=1e-15)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_not_finite_is_refused(value: float) -> None:
    assert "NaN or infinite" in complaint_of(lambda: exact_sums(np.array([1.0, value])))
