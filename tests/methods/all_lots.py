"""Expectations over a server's lots, exactly: every way the draws can fall, and its chance."""

from collections.abc import Iterator
from itertools import product

import numpy as np
from torch import Tensor

from tests.problems import Vector


def all_draws(chances: Vector, draws: int) -> Iterator[tuple[float, Vector]]:
    """Yield the probability of each sequence of draws, and how often each entry came up."""
    for drawn in product(range(len(chances)), repeat=draws):
        counts = np.bincount(drawn, minlength=len(chances)).astype(np.float64)
        yield float(np.prod(chances[list(drawn)])), counts


def assert_frequencies(counts: list[Tensor], chances: Vector, draws: int) -> None:
    """Each entry's total over all rounds is binomial with its chance: within 5 deviations."""
    trials = draws * len(counts)
    totals = np.sum([own.tolist() for own in counts], axis=0)
    assert totals.sum() == trials
    deviations = np.sqrt(trials * chances * (1 - chances))
    assert (np.abs(totals - trials * chances) <= 5 * deviations).all()
