"""What a method is: a frozen record that says what is sent, computed and done with the total.

A method never knows who its holders are: a loop in this process or machines behind a network.
There are two kinds. A one-step method's holders take one full-batch gradient step, so a table of
row weights says everything about their work. A local method's holders train on their own.
"""

from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

from torch import Tensor

from fedminmax.core.examples import Examples
from fedminmax.core.iterates import Iterate
from fedminmax.core.messages import Census, Moment, Order, Reveals, Sums
from fedminmax.core.workspace import Workspace


class ServerState(Protocol):
    """What every method's state has: the model, and its adversary's weights (maybe none)."""

    @property
    def parameters(self) -> Tensor:
        """The present model, theta^t."""
        ...

    @property
    def weights(self) -> Tensor:
        """The adversary's weights, mu^t or lambda^t; empty for a method without adversary."""
        ...


StateT = TypeVar("StateT", bound=ServerState)


class Method(Protocol[StateT]):
    """The server's half, which both kinds have."""

    @property
    def name(self) -> str:
        """The method's name in tables."""
        ...

    @property
    def output(self) -> Iterate:
        """The iterate that the method's paper returns."""
        ...

    @property
    def reveals(self) -> Reveals:
        """What one holder's reply shows to the server."""
        ...

    @property
    def learning_rate(self) -> float:
        """The model's step size, eta_theta."""
        ...

    def init(self, parameters: Tensor, census: Census) -> StateT:
        """Return the state before the first round."""
        ...

    def order(self, state: StateT, moment: Moment) -> Order:
        """Return what the server broadcasts."""
        ...

    def update(self, state: StateT, total: Sums) -> StateT:
        """Return the state after the holders' replies were added up."""
        ...


@dataclass(frozen=True, eq=False)
class RowWeights:
    """How one-step holders weigh their rows.

    Holder k returns ``step = learning_rate * sum_i coefficients[k, a_i] * grad loss_i`` and
    ``scale[k]``; the server moves by the quotient of the totals.
    """

    coefficients: Tensor
    scale: Tensor


@runtime_checkable
class OneStepMethod(Method[StateT], Protocol[StateT]):
    """A method whose holders take one full-batch gradient step."""

    def weigh(self, order: Order, holders: Tensor, counts: Tensor) -> RowWeights:
        """Return the row weights of these holders, who have these counts [holders, groups]."""
        ...


@dataclass(frozen=True, eq=False)
class Holder:
    """One holder at work: its number, its rows, how many holders and groups there are."""

    number: int
    examples: Examples
    holders: int
    groups: int
    rows_per_chunk: int


@runtime_checkable
class LocalMethod(Method[StateT], Protocol[StateT]):
    """A method whose holders do work of their own."""

    def local(self, order: Order, holder: Holder, workspace: Workspace) -> Sums:
        """Return what this holder sends back."""
        ...


AnyMethod = OneStepMethod[StateT] | LocalMethod[StateT]
