"""Small problems for the methods that look ahead, and their optimum by another solver."""

from collections.abc import Iterator
from itertools import product

import numpy as np
import torch
from torch import Tensor, nn

from fedminmax.core.losses import Loss
from tests.oracles import Labels, brier_gradient, lowest_maximum
from tests.problems import Problem, Vector

Rows = tuple[Tensor, Tensor, Tensor]


def classes(seed: int, groups: int, features: int, kinds: int, rows: int = 90) -> Rows:
    """Groups that follow patterns of their own, with columns of very different sizes."""
    rng = np.random.default_rng(seed)
    group = np.r_[np.arange(groups), rng.choice(groups, rows, p=rng.dirichlet(np.ones(groups)))]
    x = rng.normal(size=(len(group), features)) @ rng.normal(size=(features, features))
    patterns = rng.normal(size=(groups, features, kinds))
    noise = rng.gumbel(size=(len(group), kinds))
    y = (np.einsum("nf,nfk->nk", x, patterns[group]) + 2.0 * noise).argmax(axis=1)
    x = x * 10.0 ** rng.uniform(-1.0, 2.0, size=features)
    return torch.from_numpy(x), torch.from_numpy(y), torch.from_numpy(group)


def worst_by_scipy(rows: Rows, kinds: int, ridge: float, keep_share: float = 0.0) -> float:
    """The epigraph of the group risks with softmax and ridge, written anew, by SLSQP.

    With ``keep_share`` k, of 1 - k times the highest risk plus k times the mean over records.
    """
    x, y, group = (part.numpy() for part in rows)
    scale = x.std(axis=0)
    inputs = np.c_[x / scale, np.ones(len(x))]
    width = inputs.shape[1]
    # The penalty is on the parameters of the unscaled columns.
    sizes = np.r_[1.0 / scale, 1.0]

    def risks(theta: Vector) -> tuple[Vector, Vector]:
        matrix = theta.reshape(kinds, width)
        scores = inputs @ matrix.T
        scores -= scores.max(axis=1, keepdims=True)
        p = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        losses = -np.log(p[np.arange(len(y)), y])
        pulls = p - np.eye(kinds)[y]
        own = [group == number for number in range(group.max() + 1)]
        penalty = 0.5 * ridge * ((matrix * sizes) ** 2).sum()
        values = np.array([losses[rows].mean() + penalty for rows in own])
        slopes = [
            (pulls[rows].T @ inputs[rows] / rows.sum() + ridge * matrix * sizes**2).ravel()
            for rows in own
        ]
        all_slopes = np.array(slopes)
        shares = keep_share * np.bincount(group) / len(group)
        return (
            (1.0 - keep_share) * values + shares @ values,
            (1.0 - keep_share) * all_slopes + shares @ all_slopes,
        )

    return lowest_maximum(risks, np.zeros(kinds * width))


def network(seed: int, features: int = 3, kinds: int = 2) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(features, 8), nn.ReLU(), nn.Linear(8, kinds)).double()


def worst_risk(model: nn.Module, loss: Loss, rows: Rows) -> float:
    x, y, group = rows
    with torch.no_grad():
        losses = loss(model(x), y)
    return max(float(losses[group == number].mean()) for number in range(int(group.max()) + 1))


def by_group(rows: Rows) -> list[Rows]:
    x, y, group = rows
    return [(x[group == a], y[group == a], group[group == a]) for a in range(int(group.max()) + 1)]


def models_on_the_way(
    problem: Problem,
    theta: Vector,
    x: Vector,
    y: Labels,
    row_weights: Vector,
    *,
    eta: float,
    steps: int,
) -> list[Vector]:
    """Return theta^{(0)}, ..., theta^{(steps)} of one site on its weighted mean loss."""
    models = [theta]
    for _ in range(steps):
        gradient = brier_gradient(problem, models[-1], x, y, row_weights) / len(y)
        models.append(models[-1] - eta * gradient)
    return models


def plain(y: Labels) -> Vector:
    """The same weight for all rows."""
    return np.ones(len(y))


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
