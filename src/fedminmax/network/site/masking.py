"""A site's masked answers in one job: computed once, checked by the site itself, masked each time.

Where sums are masked the server sees no single reply, so what it would check of one the site checks
before anything leaves: numbers that are not finite, counts and losses that its own rows cannot
have, steps that are too long for them. A site whose answer fails says so under the masks alone: a
refusal in the clear that depends on its rows would answer a question about them. For the same
reason rows that do not suit an encoding make all later answers fail, and the encoding itself none.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import nn

from fedminmax.core.bounds import UNKNOWN_LENGTHS, RowLengths, row_limits
from fedminmax.core.messages import Order, Sums
from fedminmax.data.tables.encoding import Encoding, row_lengths
from fedminmax.data.tables.site_summary import SiteSummary
from fedminmax.methods.method import AnyMethod
from fedminmax.methods.shared.expected_reply import Sender
from fedminmax.network.secure.answers import Values, reply_values
from fedminmax.network.secure.fixed_point import Layout, pack, pack_failure
from fedminmax.network.secure.identity import Authority, Identity
from fedminmax.network.secure.layouts import Layouts
from fedminmax.network.secure.messages import Agreed, Context, question_digest
from fedminmax.network.secure.site import SERVER, SecureSite
from fedminmax.network.site.encoded_site import EncodedSite, encode_site
from fedminmax.network.site.ledger import Ledger
from fedminmax.network.site.policy import SiteRows
from fedminmax.network.site.requests import Request
from fedminmax.network.wire.checks import check_losses, check_reply, check_validation
from fedminmax.network.wire.codec import RefusedError
from fedminmax.network.wire.plan import NetworkPlan

LOG = logging.getLogger("fedminmax.site")


@dataclass(frozen=True, eq=False)
class Credentials:
    """The site's own key and certificate, and the authority that all sites are checked against."""

    identity: Identity
    authority: Authority


@dataclass(frozen=True, eq=False)
class Computed:
    """An answer to one question, before any mask.

    The same order may be asked of several runs, whose methods answer differently: the topic is part
    of what is answered.
    """

    topic: Context
    question: bytes
    values: Values


@dataclass(frozen=True, eq=False)
class EncodedRows:
    """A site's encoded rows and their lengths; none if there is a ``failure``."""

    site: EncodedSite
    lengths: RowLengths
    failure: str = ""


def encode_for_masks(
    plan: NetworkPlan, rows: SiteRows, encoding: Encoding, site: str, summary: SiteSummary
) -> EncodedRows:
    """Encode a site's rows; a failure that depends on them is for later answers to say.

    A server chooses the encoding: a refusal would tell whether this site has rows of a group that
    was left out, or a number that is too far from a mean.
    """
    try:
        encoded = encode_site(plan, rows, encoding, site)
        # Under a privacy guarantee clipping limits what rows can do, not their lengths.
        private = plan.privacy is not None
        lengths = UNKNOWN_LENGTHS if private else row_lengths(summary, encoding)
        return EncodedRows(encoded, lengths)
    except Exception as error:
        LOG.exception("the rows do not suit the encoding; totals say so without this site's name")
        none = np.arange(0)
        empty = SiteRows(rows.train.take(none), rows.held_out.take(none))
        reason = str(error) or type(error).__name__
        return EncodedRows(encode_site(plan, empty, encoding, site), UNKNOWN_LENGTHS, reason)


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
        self._failure = ""

    @property
    def layouts(self) -> Layouts:
        """How answers are rounded, once the encoding is agreed on."""
        if self._layouts is None:
            raise RefusedError(f"{SERVER} asks for masked numbers before its encoding")
        return self._layouts

    def agree(self, layouts: Layouts, encoding: bytes, sizes: bytes, failure: str) -> None:
        """Take the encoding and the sizes, as they came; answers are bound to them from now on.

        With a ``failure`` the rows do not suit the encoding, and there is no answer from now on.
        """
        self._layouts, self._failure = layouts, failure
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
            if self._failure:
                raise RefusedError(self._failure)  # noqa: TRY301 - like all that compute() raises
            known = self._computed
            if known is None or (known.topic, known.question) != (topic, question):
                known = self._computed = Computed(topic, question, compute())
            packed = pack(layout, known.values, len(sites))
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
    task, data = encoded_site.task, encoded_site.data
    layers = [layer for layer in task.model.modules() if isinstance(layer, nn.Linear)]
    limits = row_limits(layers, order.parameters, task.loss, task.ridge)
    sender = Sender(
        data.number,
        encoded_site.train_counts,
        sites=data.sites,
        limits=limits,
        lengths=lengths,
    )
    check_losses(reply, sender, "this site")
    check_reply(method, order, sender, reply, site="this site")
    if len(reply.validation.count):
        set_aside = encoded_site.validation_counts
        check_validation(reply.validation, set_aside, limits, "this site")
    return reply_values(reply)
