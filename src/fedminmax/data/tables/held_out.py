"""Rows held out for testing: drawn by each holder alone, stratified by group and label.

Systematic sampling: rows in random order within their stratum, strata one after another, and
every (1/share)-th row from a random start. So each stratum gives its share, rounded down or up,
each holder gives its share of all rows, and no stratum loses its only row.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedminmax.core.files import write_text
from fedminmax.core.randomness import Purpose, numpy_stream
from fedminmax.data.tables.parse_rows import ParsedRows

HELD_OUT_FILE = "held_out.json"
Positions = NDArray[np.int64]


def hold_out(rows: ParsedRows, share: float, seed: int, holder: str) -> tuple[Positions, Positions]:
    """Return the positions of training rows and of held-out rows, each ascending."""
    labels = rows.target if rows.target.dtype == np.int64 else np.zeros(len(rows), np.int64)
    return split_strata(np.stack([rows.group, labels.astype(np.int64)]), share, seed, holder)


def split_strata(
    strata: NDArray[np.int64], share: float, seed: int, holder: str
) -> tuple[Positions, Positions]:
    """Split rows whose strata are the columns of an array.

    >>> train, test = split_strata(np.array([[0, 0, 0, 0, 1]]), 0.5, seed=0, holder="north")
    >>> len(train), len(test)
    (3, 2)
    """
    rows = strata.shape[1]
    if share == 0.0:
        return np.arange(rows), np.arange(0)
    generator = numpy_stream(seed, Purpose.FOLDS, holder=_number_of(holder))
    shuffled = generator.permutation(rows)
    order = shuffled[np.lexsort(strata[:, shuffled])]
    # Rounded: 0.2 * 5 and its like must not miss a whole number by an ulp.
    steps = np.floor(np.round(share * np.arange(rows + 1) + generator.random(), 9))
    chosen = np.diff(steps) > 0
    ordered = strata[:, order]
    new = np.ones(rows, dtype=bool)
    new[1:] = (ordered[:, 1:] != ordered[:, :-1]).any(axis=0)
    last = np.append(new[1:], np.ones(min(rows, 1), dtype=bool))
    chosen &= ~(new & last)
    held = np.zeros(rows, dtype=bool)
    held[order[chosen]] = True
    return np.flatnonzero(~held), np.flatnonzero(held)


def max_held_out(train: int, share: float, strata: int) -> int:
    """Return at most how many rows are held out beside so many training rows in so many strata.

    Of N rows that lie in one stretch of the order, fewer than share * N + 1 are chosen.

    >>> max_held_out(80, 0.2, 1), max_held_out(80, 0.0, 1)
    (21, 0)
    """
    return math.floor((share * train + strata) / (1.0 - share) + 1e-6) if share else 0


def write_held_out(
    path: Path, share: float, seed: int, holders: Mapping[str, Sequence[int] | Positions]
) -> None:
    """List which rows were held out, so that others can check the figures that rest on them.

    Numbers are places in the holder's file, counted from 1 without the header, and no values.
    """
    content = {
        "format": 1,
        "about": "numbers of the rows held out for testing, from 1 in each holder's file, without "
        "the header; blank lines count",
        "share": share,
        "seed": seed,
        "rows": {name: list(map(int, numbers)) for name, numbers in holders.items()},
    }
    write_text(path, json.dumps(content) + "\n")


def _number_of(holder: str) -> int:
    """Turn a name into a number that is the same in every process."""
    return int.from_bytes(hashlib.sha256(holder.encode()).digest()[:8], "big")
