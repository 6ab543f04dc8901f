"""Small problems that library and oracles share: rows at sites, models with a known start."""

from itertools import chain

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from fedminmax.testing.case import Problem, Rows, Vector, softmax_problem, to_numpy
from fedminmax.training.simulation import Simulation

__all__ = [
    "Point",
    "Problem",
    "Rows",
    "Vector",
    "count_tables",
    "half_squared_distance",
    "points",
    "pooled",
    "quadratic_federation",
    "softmax_problem",
    "softmax_problems",
    "to_numpy",
]


@st.composite
def count_tables(draw: st.DrawFn, max_sites: int = 4, max_groups: int = 3) -> list[list[int]]:
    """Draw rows by site and group: cells may be empty, no site and no group is."""
    sites = draw(st.integers(1, max_sites))
    groups = draw(st.integers(1, max_groups))
    cell = st.sampled_from([0, 0, 1, 2, 5])
    table = [[draw(cell) for _ in range(groups)] for _ in range(sites)]
    for site in range(sites):
        if sum(table[site]) == 0:
            table[site][site % groups] = 1
    for group in range(groups):
        if sum(row[group] for row in table) == 0:
            table[group % sites][group] = 2
    return table


@st.composite
def softmax_problems(draw: st.DrawFn) -> Problem:
    """Draw a random problem with empty cells."""
    return softmax_problem(draw(count_tables()), seed=draw(st.integers(0, 2**16)))


def pooled(sites: list[Rows]) -> Rows:
    """Put all rows at one site."""
    return (
        torch.cat([x for x, _, _ in sites]),
        torch.cat([y for _, y, _ in sites]),
        torch.cat([g for _, _, g in sites]),
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
    """One site with these targets for group 0, these for group 1, and so on."""
    targets = list(chain.from_iterable(by_group))
    sizes = torch.tensor([len(own) for own in by_group])
    return (
        torch.zeros(len(targets), 1, dtype=torch.float64),
        torch.tensor(targets, dtype=torch.float64),
        torch.repeat_interleave(torch.arange(len(by_group)), sizes),
    )


def quadratic_federation(start: list[float], sites: list[Rows]) -> Simulation:
    """Return a quadratic game: a point against the groups' targets."""
    return Simulation(Point(start), half_squared_distance, sites)
