"""Bins from counts: the same for every partition, one per value where they fit, never too small."""

from collections.abc import Sequence
from functools import reduce
from operator import add

import numpy as np
import pytest
from numpy.typing import NDArray

from fedminmax.core.exact_sums import exact_sums
from fedminmax.data.tables.bins import (
    MAX_BINS,
    MIN_RECORDS,
    PARTS,
    REFINEMENTS,
    Counts,
    Grid,
    bins_of,
    count_cells,
    counts_fault,
    first_grid,
    refined,
)

Values = NDArray[np.float64]


def agreed(parts: Sequence[Values], bins: int = MAX_BINS) -> tuple[Grid, list[Counts]]:
    """Let sites with these values agree on a grid, and count."""
    sums = reduce(add, (exact_sums(part[~np.isnan(part)]) for part in parts))
    grid = first_grid("x", sums, bins)
    counts = [reduce(add, (count_cells(part, grid) for part in parts))]
    for _ in range(REFINEMENTS):
        grid = refined(grid, counts)
        counts.append(reduce(add, (count_cells(part, grid) for part in parts)))
        assert counts_fault(grid, counts, sums.count) is None
        assert not grid.faults()
    return grid, counts


def edges_of(values: Values, bins: int = MAX_BINS) -> Values:
    return np.array(bins_of(*agreed([values], bins)).edges)


def columns() -> dict[str, Values]:
    """Return columns of many shapes."""
    random = np.random.default_rng(0)
    gains = np.where(random.random(5000) < 0.9, 0.0, random.integers(1, 150, 5000) ** 2.0)
    return {
        "normal": random.normal(size=5000),
        "far from zero": 1e9 + random.normal(size=5000),
        "tiny": random.exponential(1e-12, 5000),
        "Cauchy": random.standard_cauchy(5000),
        "years": random.integers(1900, 2024, 5000).astype(float),
        "gains": gains,
        "cents": np.round(random.lognormal(3, 1, 5000), 2),
        "missing": np.where(random.random(5000) < 0.3, np.nan, random.normal(size=5000)),
        "few": random.normal(size=30),
        "largest": random.normal(size=500) * 1e300,
        "halves": np.repeat([1.0, 2.0], 500),
        "subnormal": random.integers(0, 9, 500) * 5e-324,
    }


@pytest.mark.parametrize("name", columns())
@pytest.mark.parametrize("bins", [MAX_BINS, 17, 2])
def test_every_partition_gives_the_same_bins(name: str, bins: int) -> None:
    values = columns()[name]
    pooled = bins_of(*agreed([values], bins))
    random = np.random.default_rng(1)
    for sites in (2, 5):
        owner = random.integers(0, sites, len(values))
        apart = [random.permutation(values[owner == site]) for site in range(sites)]
        assert bins_of(*agreed(apart, bins)) == pooled


@pytest.mark.parametrize("name", columns())
@pytest.mark.parametrize("bins", [MAX_BINS, 17, 2])
def test_bins_are_few_and_none_is_small(name: str, bins: int) -> None:
    values = columns()[name]
    values = values[~np.isnan(values)]
    found = bins_of(*agreed([values], bins))
    edges, median = found.edges, found.median
    assert list(edges) == sorted(set(edges))
    records = np.bincount(np.searchsorted(edges, values, side="right"), minlength=len(edges) + 1)
    assert len(records) <= bins
    if name != "subnormal":
        assert records.min() >= MIN_RECORDS
        assert len(records) >= 2
        below = np.searchsorted(edges, np.sort(values)[(len(values) - 1) // 2], side="right")
        assert median == below


@pytest.mark.parametrize("factor", [1.0, 2.0**-30, 1e-7, 1 / 3, 1e12])
@pytest.mark.parametrize("offset", [0.0, -40.0, 1e5])
def test_values_that_fit_have_a_bin_each(factor: float, offset: float) -> None:
    """As unique values have: skewed counts, gaps, a value that most records share."""
    random = np.random.default_rng(2)
    distinct = (np.sort(random.choice(2000, 100, replace=False)) + offset) * factor
    times = random.integers(2 * MIN_RECORDS + 1, 60, 100)
    times[3] = 20_000
    values = np.repeat(distinct, times)
    edges = edges_of(values)
    codes = np.searchsorted(edges, distinct, side="right")
    assert codes.tolist() == list(range(100))
    assert not {*edges} & {*distinct}


def test_a_shared_value_is_alone_and_others_are_cut_at_quantiles() -> None:
    random = np.random.default_rng(3)
    values = np.concatenate([random.normal(size=20_000), np.full(30_000, 0.25)])
    edges = edges_of(values)
    code = int(np.searchsorted(edges, 0.25, side="right"))
    records = np.bincount(np.searchsorted(edges, values, side="right"))
    others = np.delete(records, code)
    assert 30_000 <= records[code] <= 30_010
    assert others.max() <= 2 * others.sum() / len(others)
    assert len(records) >= MAX_BINS - 3


def test_nodes_are_at_the_ends_at_quantiles_and_around_a_shared_value() -> None:
    random = np.random.default_rng(3)
    values = np.concatenate([random.normal(size=20_000), np.full(30_000, 0.25)])
    found = bins_of(*agreed([values], MAX_BINS), 12)
    alone = int(np.searchsorted(found.edges, 0.25, side="right"))
    assert {0, alone - 1, alone, alone + 1, len(found.edges)} <= {*found.nodes}
    assert list(found.nodes) == sorted({*found.nodes})
    assert len(found.nodes) == 12
    own = np.searchsorted(found.edges, values[:20_000], side="right")
    between = np.histogram(own, bins=[*found.nodes, found.nodes[-1] + 1])[0]
    assert between.max() < 20_000 / 4
    assert bins_of(*agreed([values], 12), 12).nodes == ()


def test_scaling_by_a_power_of_two_scales_the_cells() -> None:
    for values in (columns()["normal"], columns()["years"], columns()["gains"]):
        codes = np.searchsorted(edges_of(values), values, side="right")
        doubled = np.searchsorted(edges_of(8 * values), 8 * values, side="right")
        assert (codes == doubled).all()


def test_an_edge_is_a_short_number_where_there_is_room() -> None:
    ages = np.repeat(np.arange(17.0, 91.0), 20)
    assert edges_of(ages).tolist() == [age + 0.5 for age in range(17, 90)]


def test_counts_that_cannot_be_true_are_named() -> None:
    grid, counts = agreed([columns()["gains"]])
    first = Grid(grid.column, grid.level, grid.first, grid.cells)
    assert counts_fault(first, counts[:1], 4999) == "counts of 'x' that do not add up"
    wrong = counts[2].copy()
    wrong[0] += 1
    assert counts_fault(grid, [*counts[:2], wrong], 5000) == "counts of 'x' that do not add up"
    assert counts_fault(grid, [*counts[:2], wrong[1:]], 5000) is not None
    assert counts_fault(grid, [*counts[:2], -wrong], 5000) is not None


@pytest.mark.parametrize(
    ("grid", "fault"),
    [
        (Grid("x", 5000, 0, 1024), "no possible width of cells"),
        (Grid("x", 0, 0, 1025), "no possible cells"),
        (Grid("x", 0, 0, 8), "no possible cells"),
        (Grid("x", 0, 0, 64, ((1,), (PARTS,), (PARTS**2,))), "more than 2 refinements"),
        (Grid("x", 0, 0, 64, ((0,),)), "splits of cells that it does not have"),
        (Grid("x", 0, 0, 64, ((2, 1),)), "splits of cells that it does not have"),
        (Grid("x", 0, 0, 64, ((1,), (2 * PARTS,))), "splits of cells that it does not have"),
        (Grid("x", 0, 0, 64, (tuple(range(1, 40)),)), "too many splits"),
    ],
)
def test_a_grid_that_no_rule_makes_is_named(grid: Grid, fault: str) -> None:
    assert grid.faults() == [fault]
