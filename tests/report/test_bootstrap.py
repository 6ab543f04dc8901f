"""The bootstrap against theory: coverage, spread, fixed group sizes, streams of its own."""

import numpy as np

from fedminmax.report.bootstrap import percentiles, resampled_sums


def test_sizes_of_groups_are_fixed() -> None:
    group = np.array([0] * 5 + [1] * 3 + [2])
    sums = resampled_sums(np.ones((9, 1)), group, 3, resamples=50, seed=0)
    assert (sums[:, :, 0] == [5.0, 3.0, 1.0]).all()


def test_means_vary_as_theory_says() -> None:
    """The exact deviation of a resampled mean is the rows' own deviation / sqrt(rows)."""
    values = np.random.default_rng(0).exponential(size=(80, 2))
    sums = resampled_sums(values, np.zeros(80, int), 1, resamples=20_000, seed=1)[:, 0] / 80
    np.testing.assert_allclose(sums.mean(axis=0), values.mean(axis=0), atol=5e-3)
    np.testing.assert_allclose(sums.std(axis=0), values.std(axis=0) / np.sqrt(80), rtol=0.03)
    np.testing.assert_allclose(np.corrcoef(sums.T), np.corrcoef(values.T), atol=0.03)


def test_intervals_cover_the_true_mean() -> None:
    """Of 400 samples, about 95 % have the true mean in their interval: 0.95 +- 4 deviations."""
    generator = np.random.default_rng(2)
    covered = 0
    for trial in range(400):
        sample = generator.normal(3.0, 2.0, size=(100, 1))
        sums = resampled_sums(sample, np.zeros(100, int), 1, resamples=400, seed=trial)
        low, high = percentiles(sums[:, 0, 0] / 100, 0.95)
        covered += low <= 3.0 <= high
    assert 0.95 - 4 * 0.011 <= covered / 400 <= 0.95 + 4 * 0.011


def test_the_same_seed_gives_the_same_resamples_whatever_the_other_groups_have() -> None:
    generator = np.random.default_rng(0)
    values, group = generator.random((60, 1)), np.repeat([0, 1], 30)
    first = resampled_sums(values, group, 2, resamples=10, seed=4)
    again = resampled_sums(values[:45], group[:45], 2, resamples=10, seed=4)
    np.testing.assert_array_equal(first[:, 0], again[:, 0])
    assert not np.array_equal(first, resampled_sums(values, group, 2, resamples=10, seed=5))


def test_unknown_values_do_not_count() -> None:
    assert percentiles(np.array([np.nan, 1.0, 1.0]), 0.9) == (1.0, 1.0)
    assert np.isnan(percentiles(np.full(3, np.nan), 0.9)).all()
