"""A site's masked answers in one job: computed once, checked by the site itself, masked each time.

Where sums are masked the server sees no single reply, so what it would check of one the site checks
before anything leaves: numbers that are not finite, counts and losses that its own rows cannot
have, steps that are too long for them.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from fedminmax.core.bounds import RowLengths, row_limits
from fedminmax.core.messages import Order, Sums
from fedminmax.core.task import Task
from fedminmax.federation.secure.answers import Values
from fedminmax.federation.secure.identity import Authority, Identity
from fedminmax.federation.secure.messages import Context
from fedminmax.federation.secure.site import SecureSite
from fedminmax.federation.wire.checks import check_losses, check_reply, check_validation
from fedminmax.federation.wire.codec import RefusedError
from fedminmax.methods.method import AnyMethod, Holder
from fedminmax.methods.shared.expected_reply import Sender

LOG = logging.getLogger("fedminmax.site")


@dataclass(frozen=True, eq=False)
class Credentials:
    """The site's own key and certificate, and the authority that all sites are checked against."""

    identity: Identity
    authority: Authority


@dataclass(frozen=True, eq=False)
class Computed:
    """An answer to one question about one order, before any mask."""

    topic: Context
    order: bytes
    values: Values


class MaskedAnswers:
    """The answers of one session.

    Args:
        site: the site's masks.
    """

    def __init__(self, site: SecureSite) -> None:
        self.site = site
        self._computed: Computed | None = None

    def answer(
        self, secure: object, topic: Context, order: bytes, compute: Callable[[], Values]
    ) -> bytes:
        """Return the masked answer; a further attempt at the same question masks it anew."""
        own = self._computed
        if own is None or (own.topic, own.order) != (topic, order):
            own = self._computed = Computed(topic, order, compute())
        return self.site.mask(secure, topic, own.values, order)


def check_own_reply(
    method: AnyMethod[Any],
    order: Order,
    reply: Sums,
    *,
    holder: Holder,
    counts: tuple[Any, Any],
    task: Task,
    lengths: RowLengths,
) -> None:
    """Refuse to send what a server that sees single replies would refuse; say why here alone.

    ``counts`` are training and validation rows by group.
    """
    train, validation = counts
    layers = [layer for layer in task.model.modules() if isinstance(layer, nn.Linear)]
    limits = row_limits(layers, order.parameters, task.loss, task.ridge)
    sender = Sender(holder.number, train, holders=holder.holders, limits=limits, lengths=lengths)
    try:
        check_losses(reply, sender, "this site")
        check_reply(method, order, sender, reply, site="this site")
        if len(reply.validation.count):
            check_validation(reply.validation, validation, limits, "this site")
    except RefusedError as error:
        # The reason has numbers of this site in it.
        LOG.error("nothing is sent: %s", error)  # noqa: TRY400 - no traceback is needed
        raise RefusedError(
            "its own reply cannot be true, so nothing was sent; the reason is in this site's log"
        ) from error
