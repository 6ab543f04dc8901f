"""Sums by group against numpy's covariance, real resamples and the pooling of parts."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedminmax.metrics.sums import ScoreSums, sum_scores

GENERATOR = np.random.default_rng(0)
SIZES = (70, 25, 1)
GROUP = np.repeat([0, 1, 2], SIZES)
SCORES = GENERATOR.exponential(size=(len(GROUP), 3)) @ GENERATOR.normal(size=(3, 3))


def sums_of(rows: NDArray[np.float64], group: NDArray[np.int64], groups: int = 3) -> ScoreSums:
    return sum_scores(torch.from_numpy(rows), torch.from_numpy(group), groups)


def assert_same(one: ScoreSums, other: ScoreSums) -> None:
    assert torch.equal(one.counts, other.counts)
    torch.testing.assert_close(one.totals, other.totals, rtol=0, atol=1e-10)
    torch.testing.assert_close(one.products, other.products, rtol=0, atol=1e-10)


def test_covariances_are_rows_times_the_population_covariance() -> None:
    found = sums_of(SCORES, GROUP)
    for number, size in enumerate(SIZES):
        own = SCORES[number == GROUP]
        assert found.counts[number] == size
        np.testing.assert_allclose(found.totals[number], own.sum(axis=0))
        expected = size * np.cov(own.T, bias=True)
        np.testing.assert_allclose(found.covariances[number], expected, atol=1e-10)


def test_covariances_are_those_of_real_resamples() -> None:
    """The error of a covariance of R draws is sqrt((c_ii c_jj + c_ij^2) / R): four of these."""
    resamples, own = 20_000, SCORES[GROUP == 0]
    drawn = own[GENERATOR.integers(len(own), size=(resamples, len(own)))].sum(axis=1)
    found = sums_of(SCORES, GROUP).covariances[0].numpy()
    variances = np.diag(found)
    errors = np.sqrt((np.outer(variances, variances) + found**2) / resamples)
    assert (np.abs(np.cov(drawn.T) - found) < 4 * errors).all()
    # It is the covariance of sums over all rows: that of means would be far outside.
    assert (4 * errors < 0.1 * variances.max()).all()


@given(st.lists(st.integers(0, 2), min_size=len(GROUP), max_size=len(GROUP)))
def test_sums_of_parts_are_those_of_all_rows(part_of_row: list[int]) -> None:
    parts = [
        sums_of(SCORES[mine], GROUP[mine]) for mine in np.array(part_of_row) == [[0], [1], [2]]
    ]
    assert_same(parts[0] + parts[1] + parts[2], sums_of(SCORES, GROUP))
    assert_same(parts[2] + (parts[1] + parts[0]), sums_of(SCORES, GROUP))


def test_a_group_without_rows_has_zeros_and_a_single_row_does_not_vary() -> None:
    found = sums_of(SCORES, GROUP, groups=5)
    assert found.counts.tolist() == [*SIZES, 0, 0]
    assert not found.totals[3:].any()
    assert not found.covariances[3:].any()
    assert not found.covariances[2].any()
    nobody = sums_of(SCORES[:0], GROUP[:0], groups=5)
    assert not nobody.counts.any()
    assert_same(nobody + found, found)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sums_are_in_double_precision_whatever_the_scores(dtype: torch.dtype) -> None:
    """1 + 2^-24 is 1 in single precision."""
    rows = torch.tensor([[1.0], [2.0**-24]], dtype=dtype)
    found = sum_scores(rows, torch.zeros(2, dtype=torch.int64), 1)
    assert found.totals.item() == 1.0 + 2.0**-24
    assert found.products.item() == 1.0 + 2.0**-48
