"""What a method is: a frozen record that says what is sent, computed and done with the total.

A method never knows who its holders are: a loop in this process or machines behind a network.
A one-step method's holders take one full-batch gradient step, so a table of row weights says
everything about their work. A local method's holders train on their own; some are asked twice in a
round. A keeping method's holders also keep something to themselves. These three need only the sum
of the replies; a vector method needs each reply by itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar, cast, runtime_checkable

from torch import Tensor

from fedminmax.core.certificate import Certificate
from fedminmax.core.errors import InputError
from fedminmax.core.examples import Examples
from fedminmax.core.iterates import Iterate
from fedminmax.core.messages import Census, Order, Reveals, RoundKey, Sums
from fedminmax.core.workspace import Workspace
from fedminmax.methods.shared.expected_reply import ExpectedReply, Sender

if TYPE_CHECKING:
    from typing_extensions import TypeIs


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


@runtime_checkable
class SelectingState(Protocol):
    """The state of a method that chooses its answer itself: a best model, or a mixture."""

    @property
    def selected(self) -> Tensor:
        """The chosen models, one per line; several are a mixture with equal shares."""
        ...


@runtime_checkable
class MixingState(SelectingState, Protocol):
    """The state of a method that answers with a mixture of the models it fitted."""

    @property
    def members(self) -> Tensor:
        """The models of the mixture, one per line."""
        ...


@runtime_checkable
class JudgingState(Protocol):
    """The state of a method that knows how far its answer may be from the best."""

    @property
    def certificate(self) -> Certificate | None:
        """What is proved of the answer; None if nothing is."""
        ...

    @property
    def remaining(self) -> float | None:
        """The share of the risk it minimises that may be left to gain; None if nobody can tell.

        It is proved if there is a certificate.
        """
        ...


StateT = TypeVar("StateT", bound=ServerState)


class ServerHalf(Protocol[StateT]):
    """The server's half, which all kinds have."""

    @property
    def name(self) -> str:
        """The method's name in tables."""
        ...

    @property
    def output(self) -> Iterate:
        """The iterate that a run answers with, wherever it is run.

        It is the paper's, but for the average of all rounds, which still leans towards the start:
        the tail average takes its place.
        """
        ...

    @property
    def reveals(self) -> Reveals:
        """What one holder's reply shows to the server."""
        ...

    @property
    def learning_rate(self) -> float | None:
        """The model's step size, eta_theta; None is one that is safe for the rows.

        A run chooses that before its first round: see ``core.bounds``.
        """
        ...

    def init(self, parameters: Tensor, census: Census) -> StateT:
        """Return the state before the first round; refuse what the method cannot do."""
        ...

    def order(self, state: StateT, key: RoundKey) -> Order:
        """Return what the server broadcasts."""
        ...


class Method(ServerHalf[StateT], Protocol[StateT]):
    """A method that needs only the sum of its holders' replies."""

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


class EndingMethod(Method[StateT], Protocol[StateT]):
    """A method that knows when it is done: the next round would change next to nothing."""

    def is_done(self, state: StateT) -> bool:
        """Return whether the state is as good as wanted."""
        ...


class OneStepMethod(Method[StateT], Protocol[StateT]):
    """A method whose holders take one full-batch gradient step."""

    def weigh(self, order: Order, holders: Tensor, counts: Tensor) -> RowWeights:
        """Return the row weights of these holders, who have these counts [holders, groups]."""
        ...


@dataclass(frozen=True, eq=False)
class Holder:
    """One holder at work: its number, its rows, how many holders and groups there are.

    ``kept`` is what it kept to itself since it last took part; empty for most methods.
    """

    number: int
    examples: Examples
    holders: int
    groups: int
    rows_per_chunk: int
    kept: Tensor


class HasExpectations(Protocol):
    """What methods other than one-step ones say of honest replies."""

    def expected(self, order: Order, sender: Sender, reply: Sums) -> ExpectedReply:
        """Return what an honest sender replies; losses and counts are within its census."""
        ...


class LocalMethod(Method[StateT], HasExpectations, Protocol[StateT]):
    """A method whose holders do work of their own."""

    def local(self, order: Order, holder: Holder, workspace: Workspace) -> Sums:
        """Return what this holder sends back."""
        ...


class RowSumsMethod(LocalMethod[StateT], Protocol[StateT]):
    """A local method whose replies are sums over rows: one holder of all rows sends their total."""

    def row_sums(self, order: Order, holder: Holder, workspaces: Sequence[Workspace]) -> Sums:
        """Return what this holder sends back; each workspace may be given to a thread."""
        ...


class AsksAgain(LocalMethod[StateT], Protocol[StateT]):
    """A local method whose round has further questions, to the same holders."""

    def ask_again(self, state: StateT, key: RoundKey) -> Order | None:
        """Return the next question of this round; None if the round is complete."""
        ...

    def update_again(self, state: StateT, total: Sums) -> StateT:
        """Return the state after the replies to a further question were added up."""
        ...


class KeepingMethod(Method[StateT], HasExpectations, Protocol[StateT]):
    """A method whose holders keep something to themselves from round to round."""

    def start_keeping(self, parameters: Tensor) -> Tensor:
        """Return what every holder has before its first round."""
        ...

    def local_and_keep(
        self, order: Order, holder: Holder, workspace: Workspace
    ) -> tuple[Sums, Tensor]:
        """Return what this holder sends back, and what it keeps (in place of ``holder.kept``)."""
        ...


class VectorMethod(ServerHalf[StateT], HasExpectations, Protocol[StateT]):
    """A method that needs each holder's reply by itself (``Reveals.OWN_VECTOR``)."""

    def local(self, order: Order, holder: Holder, workspace: Workspace) -> Sums:
        """Return what this holder sends back."""
        ...

    def update_from_each(self, state: StateT, replies: Sequence[Sums]) -> StateT:
        """Return the state after the holders' replies, which come in the holders' order."""
        ...


SumsMethod = OneStepMethod[StateT] | LocalMethod[StateT]
AnyMethod = SumsMethod[StateT] | KeepingMethod[StateT] | VectorMethod[StateT]


# What sets a kind apart is one function. Asking for it takes no time; comparing a method with a
# whole protocol, as isinstance does, takes as long as a small round's arithmetic.


def takes_one_step(method: AnyMethod[StateT]) -> "TypeIs[OneStepMethod[StateT]]":
    """Return whether holders take one full-batch gradient step."""
    return hasattr(method, "weigh")


def rate_of(method: ServerHalf[StateT]) -> float:
    """Return the learning rate of a method whose run has begun."""
    if method.learning_rate is None:
        raise InputError(
            f"{method.name} has no learning rate yet; begin with train, or give it one"
        )
    return method.learning_rate


def is_done(method: AnyMethod[StateT], state: StateT) -> bool:
    """Return whether the method knows that it is done."""
    own: object = getattr(method, "is_done", None)
    return own is not None and cast("EndingMethod[StateT]", method).is_done(state)


def sums_over_rows(method: AnyMethod[StateT]) -> "TypeIs[RowSumsMethod[StateT]]":
    """Return whether replies are sums over rows, whoever holds them."""
    return hasattr(method, "row_sums")


def asks_again(method: AnyMethod[StateT]) -> "TypeIs[AsksAgain[StateT]]":
    """Return whether a round may have further questions."""
    return hasattr(method, "ask_again")


def lets_holders_keep(method: AnyMethod[StateT]) -> "TypeIs[KeepingMethod[StateT]]":
    """Return whether holders keep something to themselves."""
    return hasattr(method, "local_and_keep")


def needs_each_reply(method: AnyMethod[StateT]) -> "TypeIs[VectorMethod[StateT]]":
    """Return whether the server needs each reply by itself."""
    return hasattr(method, "update_from_each")
