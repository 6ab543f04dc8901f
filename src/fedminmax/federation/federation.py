"""What the round loop needs of a federation, wherever its holders live."""

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor, nn

from fedminmax.core.messages import Census, Order, Reveals, Sums
from fedminmax.core.validation import LossSums
from fedminmax.methods.method import KeepingMethod, StateT, SumsMethod, VectorMethod


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

    @property
    def parameter_shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the parameters that theta^0 puts one after another."""
        ...

    @property
    def validation_rows(self) -> Tensor:
        """Validation rows of each group over all holders; empty if there are none at all."""
        ...

    @property
    def reveals(self) -> Reveals:
        """The finest thing that the server can see of one holder's reply."""
        ...

    @property
    def safe_learning_rate(self) -> float:
        """The learning rate of methods that have none: see ``core.safe_rate``."""
        ...

    def model(self, parameters: Tensor) -> nn.Module:
        """Return a copy of the model with these parameters, ready to predict."""
        ...

    def ask(self, method: SumsMethod[StateT], order: Order, participants: Sequence[int]) -> Sums:
        """Send the order to these holders and add up their replies, in the holders' order.

        Replies to a round's first question have the losses on validation rows, if there are any.
        """
        ...

    def ask_each(
        self, method: VectorMethod[StateT], order: Order, participants: Sequence[int]
    ) -> tuple[Sums, ...]:
        """Send the order to these holders and return their replies, in the holders' order."""
        ...

    def validate(self, order: Order, participants: Sequence[int]) -> LossSums:
        """Ask these holders for the losses of the order's model on validation rows alone."""
        ...

    def ask_keeping(
        self,
        method: KeepingMethod[StateT],
        order: Order,
        participants: Sequence[int],
        kept: Tensor,
    ) -> tuple[Sums, Tensor]:
        """Add up the replies; also return what all holders keep now, a line for each."""
        ...
