"""A site's masked answers in one job: computed once, checked by the site itself, masked each time.

Where sums are masked the server sees no single reply, so what it would check of one the site checks
before anything leaves: numbers that are not finite, counts and losses that its own rows cannot
have, steps that are too long for them. A site whose answer fails says so under the masks alone: a
refusal in the clear that depends on its rows would answer a question about them.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from fedminmax.core.bounds import RowLengths, row_limits
from fedminmax.core.messages import Order, Sums
from fedminmax.federation.secure.answers import Values, reply_values
from fedminmax.federation.secure.fixed_point import Layout, pack, pack_failure
from fedminmax.federation.secure.identity import Authority, Identity
from fedminmax.federation.secure.layouts import Layouts
from fedminmax.federation.secure.messages import Agreed, Context, question_digest
from fedminmax.federation.secure.site import SERVER, SecureSite
from fedminmax.federation.site.encoded_site import EncodedSite
from fedminmax.federation.site.ledger import Ledger
from fedminmax.federation.site.requests import Request
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
    """An answer to one question, before any mask."""

    question: bytes
    values: Values


class MaskedAnswers:
    """The answers of one session.

    Args:
        site: the site's masks.
        plan: the plan, as it came.
        ledger: the site's own log.
    """

    def __init__(self, site: SecureSite, plan: bytes, ledger: Ledger) -> None:
        self.site = site
        self.agreed = Agreed(plan)
        self.ledger = ledger
        self._layouts: Layouts | None = None
        self._computed: Computed | None = None

    @property
    def layouts(self) -> Layouts:
        """How answers are rounded, once the encoding is agreed on."""
        if self._layouts is None:
            raise RefusedError(f"{SERVER} asks for masked numbers before its encoding")
        return self._layouts

    def agree(self, layouts: Layouts, encoding: bytes, sizes: bytes) -> None:
        """Take the encoding and the sizes, as they came; answers are bound to them from now on."""
        self._layouts = layouts
        self.agreed = replace(self.agreed, encoding=encoding, sizes=sizes)

    def agree_on_rate(self, rate: bytes) -> None:
        """Take the learning rate, as it came."""
        self.agreed = replace(self.agreed, rate=rate)

    def answer(
        self,
        secure: object,
        asked: Request,
        layout: Layout,
        compute: Callable[[], Values],
        order: bytes = b"",
    ) -> bytes:
        """Return the masked answer; a further attempt at the same question masks it anew."""
        topic = Context(asked.question.value, asked.number, asked.round, asked.phase)
        sites = self.site.asked_sites(secure, topic)
        question = question_digest(self.agreed, layout, order)
        try:
            if self._computed is None or self._computed.question != question:
                self._computed = Computed(question, compute())
            packed = pack(layout, self._computed.values, len(sites))
        except OSError:
            # A full disk says nothing of the rows; the question is asked again when it is mended.
            raise
        except Exception as error:
            LOG.exception("the work failed; the total says so without this site's name")
            self.ledger.failed(asked, str(error) or type(error).__name__)
            packed = pack_failure(layout)
        return self.site.mask(secure, topic, packed, question)


def checked_values(
    method: AnyMethod[Any],
    order: Order,
    reply: Sums,
    encoded_site: EncodedSite,
    lengths: RowLengths,
) -> Values:
    """Return a reply as sections; refuse what a server that sees single replies would refuse."""
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
    check_losses(reply, sender, "this site")
    check_reply(method, order, sender, reply, site="this site")
    if len(reply.validation.count):
        set_aside = encoded_site.validation_counts
        check_validation(reply.validation, set_aside, limits, "this site")
    return reply_values(reply)
