"""Rows that a site sets aside for testing or validation, by group and label or by person.

By group and label it is systematic sampling: rows in random order within their stratum, strata
concatenated, and every (1/share)-th row from a random start. So each stratum contributes its share,
rounded down or up, each site contributes its share of all rows, and no stratum loses its only
row; with a share of at most a half no stratum loses all of its rows.

By row, each row is drawn by itself: the draw depends only on the seed and the row's own values, so
that one row more in a table moves no other (which a privacy guarantee needs). The share then holds
only on average, too.

By person, all rows of a person are set aside, or none. The draw depends only on the seed and the
person, so a person with rows at two sites is on the same side at both. The share of persons then
holds only on average.
"""

import hashlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedminmax.core.examples import Examples
from fedminmax.core.randomness import Purpose, numpy_stream, stream_seed
from fedminmax.core.stored import portions

Positions = NDArray[np.int64]


def split_strata(
    strata: NDArray[np.int64],
    share: float,
    *,
    seed: int,
    site: str,
    purpose: Purpose = Purpose.FOLDS,
) -> tuple[Positions, Positions]:
    """Split rows whose strata are the columns of an array.

    >>> train, test = split_strata(np.array([[0, 0, 0, 0, 1]]), 0.5, seed=0, site="north")
    >>> len(train), len(test)
    (3, 2)
    """
    rows = strata.shape[1]
    if share == 0.0:
        return np.arange(rows), np.arange(0)
    generator = numpy_stream(seed, purpose, site=number_of_name(site))
    shuffled = generator.permutation(rows)
    order = shuffled[np.lexsort(strata[:, shuffled])]
    start = generator.random()
    held = np.zeros(rows, dtype=bool)
    for part in portions(rows):
        # Rounded: a product such as 0.2 * 5 must not miss a whole number by an ulp.
        steps = np.floor(np.round(share * np.arange(part.start, part.stop + 1) + start, 9))
        chosen = np.diff(steps) > 0
        # With one row before and after, where there are any.
        first, last = max(part.start - 1, 0), min(part.stop + 1, rows)
        near = strata[:, order[first:last]]
        changes = np.ones(part.stop - part.start + 1, dtype=bool)
        changes[part.start == 0 : len(changes) - (part.stop == rows)] = (
            near[:, 1:] != near[:, :-1]
        ).any(axis=0)
        chosen &= ~(changes[:-1] & changes[1:])
        held[order[part][chosen]] = True
    return np.flatnonzero(~held), np.flatnonzero(held)


def split_persons(
    persons: NDArray[np.uint64], share: float, seed: int, purpose: Purpose = Purpose.FOLDS
) -> tuple[Positions, Positions]:
    """Split rows by their persons; the rows of one person stay together.

    >>> train, test = split_persons(np.array([7, 8, 7, 9, 7], np.uint64), 0.5, seed=2)
    >>> train.tolist(), test.tolist()
    ([0, 1, 2, 4], [3])
    """
    # The numbers of persons are hashes: mixed with the stream's seed they are uniform draws.
    mixed = _mixed(persons ^ np.uint64(stream_seed(seed, purpose)))
    held = mixed.astype(np.float64) < share * 2.0**64
    return np.flatnonzero(~held), np.flatnonzero(held)


def _mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix bits: the finaliser of splitmix64 (Steele, Lea, Flood, OOPSLA 2014)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


def row_numbers(columns: Sequence[NDArray[Any]], rows: int) -> NDArray[np.uint64]:
    """Return a hash of each row's values; equal rows have equal numbers.

    >>> first, second, third = row_numbers([np.array([1, 2, 1]), np.array([0.5, -0.0, 0.5])], 3)
    >>> first == third, first == second
    (np.True_, np.False_)
    """
    mixed = np.zeros(rows, dtype=np.uint64)
    for column in columns:
        if np.issubdtype(column.dtype, np.integer):
            bits = column.astype(np.int64).view(np.uint64)
        else:
            # One NaN and one zero.
            values = np.where(np.isnan(column), np.nan, column.astype(np.float64) + 0.0)
            bits = values.view(np.uint64)
        mixed = _mixed((mixed + np.uint64(0x9E3779B97F4A7C15)) ^ bits)
    return mixed


def max_held_out(train: int, share: float, strata: int) -> int:
    """Return the maximum number of held-out rows for these numbers of training rows and strata.

    Of N consecutive rows, fewer than share * N + 1 are chosen.

    >>> max_held_out(80, 0.2, 1), max_held_out(80, 0.0, 1)
    (21, 0)
    """
    return math.floor((share * train + strata) / (1.0 - share) + 1e-6) if share else 0


def set_aside(rows: Examples, share: float, seed: int, site: str) -> tuple[Examples, Examples]:
    """Return a site's training rows and its validation rows, each in their original order."""
    group = rows.group.cpu()
    # Quantities and shares of classes are not labels.
    labels = rows.y.cpu() if rows.y.dtype == torch.int64 and rows.y.dim() == 1 else group
    strata = torch.stack([group, labels]).numpy()
    split = split_strata(strata, share, seed=seed, site=site, purpose=Purpose.VALIDATION)
    train, validation = (torch.from_numpy(own).to(rows.group.device) for own in split)
    return rows.rows(train), rows.rows(validation)


def number_of_name(name: str) -> int:
    """Map a name to a 64-bit number that is the same in every process."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
