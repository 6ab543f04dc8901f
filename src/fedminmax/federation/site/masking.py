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
from fedminmax.federation.secure.answers import Values, reply_values
from fedminmax.federation.secure.fixed_point import DoesNotFitError, Layout, pack
from fedminmax.federation.secure.identity import Authority, Identity
from fedminmax.federation.secure.messages import Ask, Context, from_bytes
from fedminmax.federation.secure.site import SERVER, SecureSite
from fedminmax.federation.site.encoded_site import EncodedSite
from fedminmax.federation.wire.checks import check_losses, check_reply, check_validation
from fedminmax.federation.wire.codec import RefusedError
from fedminmax.methods.method import AnyMethod
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
        self,
        secure: object,
        topic: Context,
        order: bytes,
        compute: Callable[[], Values],
        layout: Layout | None = None,
    ) -> bytes:
        """Return the masked answer; a further attempt at the same question masks it anew.

        With a ``layout`` the server must ask for this one: numbers that do not fit are not told.
        """
        own = self._computed
        ask = from_bytes(secure, Ask, SERVER)
        if layout is not None and ask.layout != layout:
            raise RefusedError(f"{SERVER} asks for other numbers of {topic} than the plan gives")
        if own is None or (own.topic, own.order) != (topic, order):
            own = self._computed = Computed(topic, order, compute())
        if layout is not None:
            _check_fits(layout, own.values, len(ask.sites))
        return self.site.mask(secure, topic, own.values, order)


def _check_fits(layout: Layout, values: Values, sites: int) -> None:
    try:
        pack(layout, values, sites)
    except DoesNotFitError as error:
        raise RefusedError("this site has too many rows for this promise of privacy") from error


def checked_values(
    method: AnyMethod[Any],
    order: Order,
    reply: Sums,
    encoded_site: EncodedSite,
    lengths: RowLengths,
) -> Values:
    """Return a reply as sections; refuse what a server that sees single replies would refuse.

    The reason is said here alone.
    """
    task, holder = encoded_site.task, encoded_site.holder
    layers = [layer for layer in task.model.modules() if isinstance(layer, nn.Linear)]
    limits = row_limits(layers, order.parameters, task.loss, task.ridge)
    sender = Sender(
        holder.number,
        encoded_site.train_counts,
        holders=holder.holders,
        limits=limits,
        lengths=lengths,
    )
    try:
        check_losses(reply, sender, "this site")
        check_reply(method, order, sender, reply, site="this site")
        if len(reply.validation.count):
            set_aside = encoded_site.validation_counts
            check_validation(reply.validation, set_aside, limits, "this site")
    except RefusedError as error:
        # The reason has numbers of this site in it.
        LOG.error("nothing is sent: %s", error)  # noqa: TRY400 - no traceback is needed
        raise RefusedError(
            "its own reply cannot be true, so nothing was sent; the reason is in this site's log"
        ) from error
    return reply_values(reply)
