"""A method under test, and how a check says what is wrong with it.

Small problems: rows at sites, and models whose start is known.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedminmax.core.losses import Loss, brier_loss, cross_entropy_loss
from fedminmax.methods.card import MethodCard, card_of
from fedminmax.methods.method import AnyMethod
from fedminmax.training.simulation import Simulation

Method = AnyMethod[Any]


@dataclass(frozen=True)
class Case:
    """A method, made with a batch size (None: all rows), which one-step methods do not have.

    A method that draws lots at the server is random even with full batches and all sites.
    ``tolerance`` is how far rounding alone moves the model: near an optimum the risks are flat, and
    what looks ahead gets there.
    """

    label: str
    make: Callable[[int | None], Method]
    draws_lots: bool = False
    tolerance: float = 1e-12

    @property
    def full_batch(self) -> Method:
        """The method without any randomness of its own."""
        return self.make(None)

    @property
    def mini_batch(self) -> Method:
        """The method with small batches, if it has batches at all."""
        return self.make(2)

    @property
    def has_batches(self) -> bool:
        """Whether the method has a batch size."""
        return hasattr(self.full_batch, "batch_size")

    @property
    def card(self) -> MethodCard:
        """The method's card."""
        card = card_of(self.full_batch)
        if card is None:
            raise AssertionError(
                f"{self.label} has no card; put @fedminmax.extend.MethodCard above its class"
            )
        return card


Check = Callable[[Case], None]
"""A check of a case; it raises ``AssertionError`` if the method fails it."""


def require(case: Case, holds: bool, fault: str) -> None:  # noqa: FBT001 - reads as a sentence
    """Say what is wrong unless this holds."""
    if not holds:
        raise AssertionError(f"{case.label}: {fault}")


def require_equal(case: Case, found: Tensor, expected: Tensor, what: str) -> None:
    """Say what is wrong unless two tensors are the same, bit for bit."""
    if found.shape != expected.shape:
        shapes = f"{list(found.shape)}, not {list(expected.shape)}"
        raise AssertionError(f"{case.label}: {what}: the shape is {shapes}")
    if not torch.equal(found, expected):
        other = int((found != expected).sum())
        raise AssertionError(
            f"{case.label}: {what}: {other} of {found.numel()} entries are not as expected"
        )


def require_close(
    case: Case,
    found: Tensor,
    expected: Tensor,
    what: str,
    *,
    rtol: float = 1e-10,
    atol: float = 1e-12,
) -> None:
    """Say what is wrong unless two tensors are the same but for rounding."""
    torch.testing.assert_close(
        found, expected, rtol=rtol, atol=atol, msg=lambda words: f"{case.label}: {what}: {words}"
    )


Rows = tuple[Tensor, Tensor, Tensor]
Vector = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Problem:
    """Softmax regression in float64: sites' rows and theta^0 (weights row by row, then bias)."""

    sites: list[Rows]
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
        sites: list[Rows] | None = None,
        loss: Loss = brier_loss,
        validation: float = 0.0,
    ) -> Simulation:
        """Put the rows (or these instead) into the simulation."""
        return Simulation(
            self.model(), loss, sites or self.sites, fused=fused, validation=validation
        )

    def numpy_rows(self) -> list[tuple[Vector, NDArray[np.int64], NDArray[np.int64]]]:
        """Return each site's x, y, group for computations without torch."""
        return [
            (to_numpy(x), np.array(y.tolist(), dtype=np.int64), np.array(g.tolist(), np.int64))
            for x, y, g in self.sites
        ]

    def probabilities(self, theta: Vector, x: Vector) -> Vector:
        """Return the model's answers, computed by hand."""
        cut = self.features * self.classes
        z = x @ theta[:cut].reshape(self.classes, self.features).T + theta[cut:]
        powers = np.exp(z - z.max(axis=1, keepdims=True))
        answers: Vector = powers / powers.sum(axis=1, keepdims=True)
        return answers

    def brier_losses(self, theta: Vector, x: Vector, y: NDArray[np.int64]) -> Vector:
        """Return the sum over classes of (p - e)^2, one number per row."""
        losses: Vector = ((self.probabilities(theta, x) - np.eye(self.classes)[y]) ** 2).sum(axis=1)
        return losses


def softmax_problem(
    counts: list[list[int]], *, seed: int = 0, features: int = 2, classes: int = 3
) -> Problem:
    """Draw counts[k][a] rows of group a for site k, shuffled; each group has its own mean."""
    rng = np.random.default_rng(seed)
    groups = len(counts[0])
    centres = rng.normal(size=(groups, features))
    sites = []
    for row in counts:
        group = rng.permutation(np.repeat(np.arange(groups), row))
        x = centres[group] + rng.normal(size=(len(group), features))
        y = rng.integers(classes, size=len(group))
        sites.append((torch.from_numpy(x), torch.from_numpy(y), torch.from_numpy(group)))
    start = rng.normal(size=(features + 1) * classes)
    return Problem(sites, start, features, classes, groups)


def to_numpy(tensor: Tensor) -> Vector:
    """Copy out of torch."""
    return np.array(tensor.tolist(), dtype=np.float64)


def three_sites() -> Problem:
    """Return a small problem in which no site has all groups."""
    return softmax_problem([[4, 0, 2], [1, 5, 0], [0, 0, 3]], seed=2, classes=2)


def four_sites() -> Problem:
    """Return the same with a fourth site, which has all groups."""
    return softmax_problem([[4, 0, 2], [1, 5, 0], [0, 0, 3], [2, 2, 2]], seed=2, classes=2)


def zero_rows(ridge: float) -> Simulation:
    """Return two sites of rows that say nothing: a ridge alone moves the model."""
    model = nn.Linear(2, 2, bias=False).double()
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[4.0, -2.0], [-4.0, 2.0]]))
    x = torch.zeros(8, 2, dtype=torch.float64)
    rows = x, torch.tensor([0, 1] * 4), torch.tensor([0, 0, 1, 1] * 2)
    return Simulation(model, cross_entropy_loss, [rows, rows], ridge=ridge)
