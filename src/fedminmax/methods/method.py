"""What a method is: a frozen record that defines what is sent, computed and done with the total.

A method does not know where its sites are: in this process or on machines behind a network. A
one-step method's sites take one full-batch gradient step, so row weights fully describe their
work. A local method's sites train on their own; some get two requests in a round. A keeping
method's sites also keep private state. These three need only the sum of the replies; a vector
method needs each reply separately.
"""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor

from fedminmax.core.certificate import Certificate
from fedminmax.core.errors import InputError
from fedminmax.core.examples import Examples
from fedminmax.core.iterates import Iterate
from fedminmax.core.messages import Census, Order, Reveals, RoundKey, Sums
from fedminmax.core.workspace import Workspace

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from fedminmax.methods.shared.expected_reply import ExpectedReply, Sender


class ServerState(Protocol):
    """The common part of every method's state: the model, and the adversary's weights, if any."""

    @property
    def parameters(self) -> Tensor:
        """The current model, theta^t."""
        ...

    @property
    def weights(self) -> Tensor:
        """The adversary's weights, mu^t or lambda^t; empty for a method without adversary."""
        ...


@runtime_checkable
class SelectingState(Protocol):
    """The state of a method that chooses its result itself: a best model, or a mixture."""

    @property
    def selected(self) -> Tensor:
        """The chosen models, one per row; several form a mixture with equal shares."""
        ...


@runtime_checkable
class PreparingState(Protocol):
    """The state of a method whose first rounds prepare a start: their models are no candidates."""

    @property
    def is_preparing(self) -> bool:
        """Whether the model that is sent next is still part of that."""
        ...


@runtime_checkable
class MixingState(SelectingState, Protocol):
    """The state of a method that returns a mixture of the models it fitted."""

    @property
    def members(self) -> Tensor:
        """The models of the mixture, one per row."""
        ...


@runtime_checkable
class JudgingState(Protocol):
    """The state of a method that knows how far its result may be from the optimum."""

    @property
    def certificate(self) -> Certificate | None:
        """What is proved about the result; None if nothing is."""
        ...

    @property
    def remaining(self) -> float | None:
        """The possible relative improvement of the risk it minimises; None if unknown.

        It is proved if there is a certificate.
        """
        ...


StateT = TypeVar("StateT", bound=ServerState)


class ServerHalf(Protocol[StateT]):
    """The server's half, common to all kinds."""

    @property
    def name(self) -> str:
        """The method's name in tables."""
        ...

    @property
    def output(self) -> Iterate:
        """The iterate that a run returns, wherever it is run.

        It is the paper's, except that the tail average replaces the average of all rounds, which
        is biased towards the start.
        """
        ...

    @property
    def reveals(self) -> Reveals:
        """What one site's reply reveals to the server."""
        ...

    @property
    def learning_rate(self) -> float | None:
        """The model's step size, eta_theta; None means one that is safe for the rows.

        A run chooses it before its first round: see ``core.bounds``.
        """
        ...

    def init(self, parameters: Tensor, census: Census) -> StateT:
        """Return the state before the first round; refuse unsupported settings."""
        ...

    def order(self, state: StateT, key: RoundKey) -> Order:
        """Return what the server broadcasts."""
        ...


class Method(ServerHalf[StateT], Protocol[StateT]):
    """A method that needs only the sum of its sites' replies."""

    def update(self, state: StateT, total: Sums) -> StateT:
        """Return the state after a round, given the sum of the sites' replies."""
        ...


@dataclass(frozen=True, eq=False)
class RowWeights:
    """How one-step sites weigh their rows.

    Site k returns ``step = learning_rate * sum_i coefficients[k, a_i] * grad loss_i`` and
    ``scale[k]``; the server moves by the quotient of the totals.
    """

    coefficients: Tensor
    scale: Tensor


class OneStepMethod(Method[StateT], Protocol[StateT]):
    """A method whose sites take one full-batch gradient step."""

    def weigh(self, order: Order, sites: Tensor, counts: Tensor) -> RowWeights:
        """Return the row weights of these sites, whose counts are [sites, groups]."""
        ...


NOBODY = torch.zeros(0, dtype=torch.int64)


@dataclass(frozen=True, eq=False)
class SiteData:
    """One working site: its number, its rows, and the numbers of sites and groups.

    ``kept`` is its private state from its last participation; empty for most methods. ``origin``
    has each record's site if they are the records of several sites; it is empty otherwise.
    """

    number: int
    examples: Examples
    _: KW_ONLY
    sites: int
    groups: int
    rows_per_chunk: int
    kept: Tensor
    origin: Tensor = NOBODY


class HasExpectations(Protocol):
    """What a method may declare about honest replies, so that the server refuses more lies.

    Without it, a local method's replies are checked by default (``shared.expected_reply``): one
    step as long as the model, on the scale n_k, with the losses of all rows and no statistics.
    """

    def expected(self, order: Order, sender: "Sender", reply: Sums) -> "ExpectedReply":
        """Return what an honest sender replies; losses and counts already match its census."""
        ...


class LocalMethod(Method[StateT], Protocol[StateT]):
    """A method whose sites do local work."""

    def local(self, order: Order, site: SiteData, workspace: Workspace) -> Sums:
        """Return this site's reply."""
        ...


class RowSumsMethod(LocalMethod[StateT], HasExpectations, Protocol[StateT]):
    """A local method whose replies are sums over rows: pooled rows give the total directly."""

    def row_sums(self, order: Order, site: SiteData, workspaces: Sequence[Workspace]) -> Sums:
        """Return this site's reply; each workspace may be used by one thread."""
        ...


class AsksAgain(LocalMethod[StateT], Protocol[StateT]):
    """A local method whose round has further requests to the same sites."""

    def ask_again(self, state: StateT, key: RoundKey) -> Order | None:
        """Return the next request of this round; None if the round is complete."""
        ...

    def update_again(self, state: StateT, total: Sums) -> StateT:
        """Return the state after a further request, given the sum of the replies."""
        ...


class KeepingMethod(Method[StateT], Protocol[StateT]):
    """A method whose sites keep private state from round to round."""

    def start_keeping(self, parameters: Tensor, groups: int) -> Tensor:
        """Return every site's private state before its first round."""
        ...

    def local_and_keep(
        self, order: Order, site: SiteData, workspace: Workspace
    ) -> tuple[Sums, Tensor]:
        """Return this site's reply, and its new private state (replacing ``site.kept``)."""
        ...


class VectorMethod(ServerHalf[StateT], Protocol[StateT]):
    """A method that needs each site's reply separately (``Reveals.OWN_VECTOR``)."""

    def local(self, order: Order, site: SiteData, workspace: Workspace) -> Sums:
        """Return this site's reply."""
        ...

    def update_from_each(self, state: StateT, replies: Sequence[Sums]) -> StateT:
        """Return the state after the sites' replies, given in the sites' order."""
        ...


SumsMethod = OneStepMethod[StateT] | LocalMethod[StateT]
AnyMethod = SumsMethod[StateT] | KeepingMethod[StateT] | VectorMethod[StateT]


# One function distinguishes each kind. Looking it up is cheap; an isinstance check against a whole
# protocol takes as long as the arithmetic of a small round.


def takes_one_step(method: AnyMethod[StateT]) -> "TypeIs[OneStepMethod[StateT]]":
    """Return whether sites take one full-batch gradient step."""
    return hasattr(method, "weigh")


def rate_of(method: ServerHalf[StateT]) -> float:
    """Return the learning rate of a method whose run has begun."""
    if method.learning_rate is None:
        raise InputError(
            f"{method.name} has no learning rate yet; start with train, or give it one"
        )
    return method.learning_rate


def is_done(method: AnyMethod[StateT], state: StateT) -> bool:
    """Return whether the method knows that another round would change almost nothing."""
    decides: Callable[[StateT], bool] | None = getattr(method, "is_done", None)
    return decides is not None and decides(state)


def declares_replies(method: object) -> "TypeIs[HasExpectations]":
    """Return whether the method says what an honest reply is."""
    return hasattr(method, "expected")


def sums_over_rows(method: AnyMethod[StateT]) -> "TypeIs[RowSumsMethod[StateT]]":
    """Return whether replies are sums over rows, independent of how sites split them."""
    return hasattr(method, "row_sums")


def asks_again(method: AnyMethod[StateT]) -> "TypeIs[AsksAgain[StateT]]":
    """Return whether a round may have further requests."""
    return hasattr(method, "ask_again")


def lets_sites_keep(method: AnyMethod[StateT]) -> "TypeIs[KeepingMethod[StateT]]":
    """Return whether sites keep private state."""
    return hasattr(method, "local_and_keep")


def needs_each_reply(method: AnyMethod[StateT]) -> "TypeIs[VectorMethod[StateT]]":
    """Return whether the server needs each reply separately."""
    return hasattr(method, "update_from_each")
