"""Checked training rows: scaled features, targets, each row's group and holder."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedminmax.data.row_groups import RowGroups, group_rows, number_values


@dataclass(frozen=True, eq=False)
class Rows:
    """All rows of a training, with holders numbered from 0."""

    x: NDArray[Any]
    y: NDArray[Any]
    groups: RowGroups
    holders: NDArray[np.int64]

    def by_holder(self) -> Iterator[torch.Tensor]:
        """Return each holder's row positions, in the order of the rows."""
        order = np.argsort(self.holders, kind="stable")
        for own in np.split(order, np.cumsum(np.bincount(self.holders))[:-1]):
            yield torch.from_numpy(own)


def rows_for_training(
    x: NDArray[Any], y: NDArray[Any], sensitive_features: Any, holders: Any
) -> Rows:
    """Put rows together with their groups and holders; None is one group, or one holder."""
    number = len(x)
    at = np.zeros(number, dtype=np.int64)
    if holders is not None:
        at, _ = number_values("holders", holders, number)
    return Rows(x, y, group_rows(sensitive_features, number), at)
