"""Small problems that library and oracles share: rows at holders, models with a known start."""

from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor, nn

from fedminmax.core.losses import Loss, brier_loss
from fedminmax.federation.inprocess import InProcessFederation

Vector = NDArray[np.float64]
Rows = tuple[Tensor, Tensor, Tensor]


def to_numpy(tensor: Tensor) -> Vector:
    """Copy out of torch."""
    return np.array(tensor.tolist(), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Problem:
    """Softmax regression in float64: holders' rows and theta^0 (weights row by row, then bias)."""

    holders: list[Rows]
    start: Vector
    features: int
    classes: int
    groups: int

    def model(self) -> nn.Module:
        """Return the linear model at theta^0."""
        model = nn.Linear(self.features, self.classes, dtype=torch.float64)
        cut = self.features * self.classes
        with torch.no_grad():
            start = torch.from_numpy(self.start)
            model.weight.copy_(start[:cut].view(self.classes, self.features))
            model.bias.copy_(start[cut:])
        return model

    def federation(
        self,
        *,
        fused: bool = True,
        holders: list[Rows] | None = None,
        loss: Loss = brier_loss,
        validation: float = 0.0,
    ) -> InProcessFederation:
        """Put the rows (or these instead) into the library's simulator."""
        return InProcessFederation(
            self.model(), loss, holders or self.holders, fused=fused, validation=validation
        )

    def numpy_rows(self) -> list[tuple[Vector, NDArray[np.int64], NDArray[np.int64]]]:
        """Return each holder's x, y, group for the oracles."""
        return [
            (to_numpy(x), np.array(y.tolist(), dtype=np.int64), np.array(g.tolist(), np.int64))
            for x, y, g in self.holders
        ]


def softmax_problem(
    counts: list[list[int]], *, seed: int = 0, features: int = 2, classes: int = 3
) -> Problem:
    """Draw counts[k][a] rows of group a for holder k, shuffled; each group has its own mean."""
    rng = np.random.default_rng(seed)
    groups = len(counts[0])
    centres = rng.normal(size=(groups, features))
    holders = []
    for row in counts:
        group = rng.permutation(np.repeat(np.arange(groups), row))
        x = centres[group] + rng.normal(size=(len(group), features))
        y = rng.integers(classes, size=len(group))
        holders.append((torch.from_numpy(x), torch.from_numpy(y), torch.from_numpy(group)))
    start = rng.normal(size=(features + 1) * classes)
    return Problem(holders, start, features, classes, groups)


@st.composite
def count_tables(draw: st.DrawFn, max_holders: int = 4, max_groups: int = 3) -> list[list[int]]:
    """Draw rows by holder and group: cells may be empty, no holder and no group is."""
    holders = draw(st.integers(1, max_holders))
    groups = draw(st.integers(1, max_groups))
    cell = st.sampled_from([0, 0, 1, 2, 5])
    table = [[draw(cell) for _ in range(groups)] for _ in range(holders)]
    for holder in range(holders):
        if sum(table[holder]) == 0:
            table[holder][holder % groups] = 1
    for group in range(groups):
        if sum(row[group] for row in table) == 0:
            table[group % holders][group] = 2
    return table


@st.composite
def softmax_problems(draw: st.DrawFn) -> Problem:
    """Draw a random problem with empty cells."""
    return softmax_problem(draw(count_tables()), seed=draw(st.integers(0, 2**16)))


def pooled(holders: list[Rows]) -> Rows:
    """Put all rows at one holder."""
    return (
        torch.cat([x for x, _, _ in holders]),
        torch.cat([y for _, y, _ in holders]),
        torch.cat([g for _, _, g in holders]),
    )


class Point(nn.Module):
    """A model that predicts its parameter vector whatever the features: outputs [n, d]."""

    def __init__(self, start: list[float]) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.tensor(start, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return self.theta.expand(len(x), -1)


def half_squared_distance(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return |theta - y|^2 / 2, so that r_a = |theta - c_a|^2 / 2 + b_a."""
    return 0.5 * (outputs - targets).square().sum(dim=1)


def points(by_group: list[list[list[float]]]) -> Rows:
    """One holder with these targets for group 0, these for group 1, and so on."""
    targets = list(chain.from_iterable(by_group))
    sizes = torch.tensor([len(own) for own in by_group])
    return (
        torch.zeros(len(targets), 1, dtype=torch.float64),
        torch.tensor(targets, dtype=torch.float64),
        torch.repeat_interleave(torch.arange(len(by_group)), sizes),
    )


def quadratic_federation(start: list[float], holders: list[Rows]) -> InProcessFederation:
    """Return a quadratic game: a point against the groups' targets."""
    return InProcessFederation(Point(start), half_squared_distance, holders)
