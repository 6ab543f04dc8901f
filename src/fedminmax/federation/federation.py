"""What the round loop needs of a federation, wherever its holders live."""

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from fedminmax.core.messages import Census, Order, Sums
from fedminmax.methods.method import AnyMethod, StateT


class Federation(Protocol):
    """Holders that can be counted and asked."""

    @property
    def census(self) -> Census:
        """Rows by holder and group."""
        ...

    @property
    def group_names(self) -> tuple[str, ...]:
        """The groups' names, in the order of their numbers."""
        ...

    @property
    def initial_parameters(self) -> Tensor:
        """theta^0."""
        ...

    def ask(self, method: AnyMethod[StateT], order: Order, participants: Sequence[int]) -> Sums:
        """Send the order to these holders and add up their replies, in the holders' order."""
        ...
