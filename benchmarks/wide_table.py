"""A table that no method was tuned on: many correlated columns of different scales, ten groups.

Columns mix 20 factors and add their own noise; their scales and offsets span five powers of ten.
Groups have from about 100 rows to half of all, and their own coefficients besides common ones,
so that a model of the mean is bad for the small groups.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Places = NDArray[np.int64]

GROUPS, FACTORS = 10, 20


@dataclass(frozen=True, eq=False)
class WideTable:
    """Raw features, labels 0 and 1, a quantity, and groups, in random order."""

    x: Numbers
    label: Places
    quantity: Numbers
    group: Places

    @property
    def standardised(self) -> Numbers:
        """Features scaled as for the product's tables: mean 0, deviation 1."""
        scaled: Numbers = (self.x - self.x.mean(axis=0)) / self.x.std(axis=0)
        return scaled


def wide_table(rows: int, columns: int, seed: int) -> WideTable:
    """Draw a table."""
    draw = np.random.default_rng(seed)
    sizes = np.geomspace(100, rows / 2, GROUPS)
    sizes[1:-1] *= (rows - sizes[0] - sizes[-1]) / sizes[1:-1].sum()
    group = np.repeat(np.arange(GROUPS), sizes.astype(int))
    group = np.concatenate([group, np.full(rows - len(group), GROUPS - 1)])
    draw.shuffle(group)
    hidden = draw.standard_normal((rows, FACTORS))
    x = hidden @ draw.standard_normal((FACTORS, columns)) / np.sqrt(FACTORS)
    x += 0.5 * draw.standard_normal((rows, columns))
    common = draw.standard_normal(columns)
    own = draw.standard_normal((GROUPS, columns))
    output = x @ common
    for number in range(GROUPS):
        here = group == number
        output[here] += 0.7 * x[here] @ own[number]
    output = 2.0 * output / np.sqrt(columns) + 0.5 * draw.standard_normal(GROUPS)[group]
    label = (draw.random(rows) < 1 / (1 + np.exp(-output))).astype(np.int64)
    quantity = output + draw.standard_normal(rows) * np.linspace(0.5, 2.0, GROUPS)[group]
    x *= np.geomspace(1e-2, 1e3, columns)
    x += np.geomspace(1e-1, 1e3, columns)
    return WideTable(x, label, quantity, group)
