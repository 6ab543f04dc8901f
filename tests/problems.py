"""Small problems that library and oracles share: rows at sites, models with a known start."""

from itertools import chain

import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from fedminmax.core.losses import brier_loss
from fedminmax.core.models import cnn
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


def small_cnn(seed: int = 1) -> nn.Module:
    """Two convolutions of few channels."""
    torch.manual_seed(seed)
    return cnn((2, 8, 8), 3, (4, 5)).double()


def image_rows(rows: int, seed: int = 0) -> Rows:
    """Random images of two channels, three classes, two groups."""
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randn(rows, 2, 8, 8, generator=generator, dtype=torch.float64),
        torch.randint(3, (rows,), generator=generator),
        torch.arange(rows) % 2,
    )


def start_vector(model: nn.Module) -> Tensor:
    """The model's parameters in its own order."""
    return parameters_to_vector(model.parameters()).detach().clone()


def mean_gradient(theta: Tensor, rows: Rows, row_weights: Tensor | None = None) -> Tensor:
    """Return (1/n) sum_i row_weights[i] * grad loss_i at these parameters."""
    x, y, _ = rows
    model = small_cnn()
    vector_to_parameters(theta, model.parameters())
    losses = brier_loss(model(x), y)
    objective = losses.mean() if row_weights is None else (losses * row_weights).mean()
    gradients = torch.autograd.grad(objective, list(model.parameters()))
    return torch.cat([piece.reshape(-1) for piece in gradients])
