"""Checked rows: features, targets, each row's group and holder, and which are for validation."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedminmax.core.randomness import Purpose
from fedminmax.data.row_groups import RowGroups, group_rows, number_values
from fedminmax.data.strata import split_strata


@dataclass(frozen=True, eq=False)
class RowPlaces:
    """Each row's group and holder, numbered from 0, and whether it is set aside for validation."""

    groups: RowGroups
    holders: NDArray[np.int64]
    set_aside: NDArray[np.bool_]

    @property
    def train(self) -> NDArray[np.bool_]:
        """Which rows are trained on."""
        return ~self.set_aside

    @property
    def training_counts(self) -> NDArray[np.int64]:
        """Training rows of each group."""
        return np.bincount(self.groups.numbers[self.train], minlength=len(self.groups.names))

    def by_holder(self, rows: NDArray[np.bool_]) -> Iterator[torch.Tensor]:
        """Return each holder's positions among these rows, in the order of the rows."""
        own = np.flatnonzero(rows)
        order = own[np.argsort(self.holders[own], kind="stable")]
        counts = np.bincount(self.holders[own], minlength=int(self.holders.max()) + 1)
        for positions in np.split(order, np.cumsum(counts)[:-1]):
            yield torch.from_numpy(positions)


@dataclass(frozen=True, eq=False)
class Rows:
    """All rows of a training: scaled features and targets, and where they belong."""

    x: NDArray[Any]
    y: NDArray[Any]
    places: RowPlaces


def place_rows(
    labels: NDArray[Any], sensitive_features: Any, holders: Any, validation: float, seed: int
) -> RowPlaces:
    """Find groups and holders, and draw the validation rows; None is one group, or one holder.

    ``labels`` are class numbers, or all the same where targets are quantities.
    """
    number = len(labels)
    groups = group_rows(sensitive_features, number)
    at = np.zeros(number, dtype=np.int64)
    if holders is not None:
        at, _ = number_values("holders", holders, number)
    set_aside = np.zeros(number, dtype=bool)
    for holder in range(int(at.max()) + 1 if validation else 0):
        own = np.flatnonzero(at == holder)
        strata = np.stack([groups.numbers[own], labels[own].astype(np.int64)])
        _, drawn = split_strata(strata, validation, seed, str(holder), Purpose.VALIDATION)
        set_aside[own[drawn]] = True
    return RowPlaces(groups, at, set_aside)
