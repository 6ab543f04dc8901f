"""How a site's answers leave: as they are, or under masks. It is chosen once, with the plan.

Where sums are masked the server sees no single reply, so what it would check of one the site checks
before anything leaves: numbers that are not finite, counts and losses that its own rows cannot
have, steps that are too long for them. A site whose answer fails says so under the masks alone: a
refusal in the clear that depends on its rows would answer a question about them. For the same
reason rows that do not suit an encoding make all later answers fail, and the encoding itself none.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedminmax.core.bounds import UNKNOWN_LENGTHS, RowLengths, row_limits_at
from fedminmax.core.messages import Order, Sums
from fedminmax.data.tables.encoding import Encoding
from fedminmax.data.tables.site_summary import SiteSummary, row_lengths, summarise, without_counts
from fedminmax.methods.method import AnyMethod
from fedminmax.methods.shared.expected_reply import Sender
from fedminmax.network.secure.fixed_point import Layout, Packed, pack, pack_failure
from fedminmax.network.secure.layouts import Layouts
from fedminmax.network.secure.masks import digest
from fedminmax.network.secure.messages import Agreed, Ask, question_digest
from fedminmax.network.secure.secure_site import SERVER, SecureSite
from fedminmax.network.secure.session import Authority, Identity, Terms
from fedminmax.network.site.encoded_site import EncodedSite, encode_site
from fedminmax.network.site.journal import Journal
from fedminmax.network.site.policy import SiteRows, read_rows
from fedminmax.network.site.privacy import PrivateAnswers
from fedminmax.network.site.settings import SiteSettings
from fedminmax.network.wire.calls import Question
from fedminmax.network.wire.checks import check_reply, check_validation
from fedminmax.network.wire.codec import RefusedError
from fedminmax.network.wire.messages import sections_to_bytes
from fedminmax.network.wire.plan import NetworkPlan
from fedminmax.network.wire.sections import Sections

LOG = logging.getLogger("fedminmax.site")
FindLayout = Callable[[Layouts], Layout]


@dataclass(frozen=True, eq=False)
class Asked:
    """A question as the site understood it, what it is about as it came, and how to mask it."""

    question: Question
    content: bytes = b""
    ask: Ask | None = None


class PlainSender:
    """Sends numbers as they are, with the seconds that they took."""

    def send(
        self,
        asked: Asked,  # noqa: ARG002 - the same for all questions
        compute: Callable[[], Sections],
        layout: Layout | FindLayout,  # noqa: ARG002 - nothing is rounded
    ) -> bytes:
        """Return the message that answers a question."""
        started = time.monotonic()
        return sections_to_bytes(compute(), time.monotonic() - started)


class MaskedSender:
    """Masks the answers of one session, each computed once, and masked anew for each attempt.

    ``content`` is the plan, as it came.
    """

    def __init__(self, site: SecureSite, content: bytes, journal: Journal) -> None:
        self.site = site
        self.agreed = Agreed(content)
        self._journal = journal
        self._layouts: Layouts | None = None
        # The same order may be asked of several runs, whose methods answer differently.
        self._computed: tuple[Question, bytes, Sections] | None = None
        self._failure = ""

    def agree(self, layouts: Layouts, encoding: bytes, sizes: bytes, failure: str) -> None:
        """Take the encoding and the sizes, as they came; answers are bound to them from now on.

        With a ``failure`` the rows do not suit the encoding, and there is no answer from now on.
        """
        self._layouts, self._failure = layouts, failure
        self.agreed = replace(self.agreed, encoding=encoding, sizes=sizes)

    def agree_on_rate(self, rate: bytes) -> None:
        """Take the learning rate, as it came."""
        self.agreed = replace(self.agreed, rate=rate)

    def agree_on_values(self, values: bytes) -> None:
        """Take the categories that the plan left open, as they came."""
        self.agreed = replace(self.agreed, values=values)

    def send(
        self, asked: Asked, compute: Callable[[], Sections], layout: Layout | FindLayout
    ) -> bytes:
        """Return the message that answers a question; a layout may need the encoding."""
        if isinstance(layout, Layout):
            sections = layout
        elif self._layouts is None:
            raise RefusedError(f"{SERVER} asks for masked numbers before its encoding")
        else:
            sections = layout(self._layouts)
        topic = asked.question
        digest = question_digest(self.agreed, sections, asked.content)

        def pack_answer(sites: int) -> Packed:
            try:
                if self._failure:
                    raise RefusedError(self._failure)  # noqa: TRY301 - like all of compute()
                if self._computed is None or self._computed[:2] != (topic, digest):
                    self._computed = (topic, digest, compute())
                return pack(sections, self._computed[2], sites)
            except OSError:
                # A full disk says nothing of the rows; it is asked again when that is mended.
                raise
            except Exception as error:
                LOG.exception("the work failed; the total says so without this site's name")
                self._journal.failed(topic, str(error) or type(error).__name__)
                return pack_failure(sections)

        return self.site.mask(asked.ask, topic, pack_answer, digest)


@dataclass(frozen=True, eq=False)
class Credentials:
    """The site's own key and certificate, and the authority that all sites are checked against."""

    identity: Identity
    authority: Authority


def new_sender(
    plan: NetworkPlan, content: bytes, credentials: Credentials | None, journal: Journal
) -> PlainSender | MaskedSender:
    """Return how the answers to a plan leave, which came as this content."""
    if plan.secure_aggregation is None:
        return PlainSender()
    if credentials is None:
        raise RefusedError("this site has no key to sign masks with; copy its kit")
    threshold = plan.secure_aggregation.threshold
    terms = Terms(plan.run, digest("plan", content).hex(), plan.sites, threshold)
    site = SecureSite(credentials.identity, credentials.authority, terms, journal)
    return MaskedSender(site, content, journal)


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


def check_before_masking(
    method: AnyMethod[Any],
    order: Order,
    reply: Sums,
    encoded_site: EncodedSite,
    lengths: RowLengths,
) -> None:
    """Refuse a reply of this site that a server that sees single replies would refuse."""
    data, name = encoded_site.data, "this site"
    limits = row_limits_at(encoded_site.task, order.parameters)
    counts = encoded_site.train_counts
    sender = Sender(data.number, counts, sites=data.sites, limits=limits, lengths=lengths)
    check_reply(method, order, sender, reply, site=name)
    if len(reply.validation.count):
        check_validation(reply.validation, encoded_site.validation_counts, limits, name)


@dataclass(frozen=True, eq=False)
class Prepared:
    """A site's rows, their summary, and how answers leave.

    ``came`` is the plan as it was sent; the ``plan`` has the categories that were agreed on since.
    """

    came: NetworkPlan
    plan: NetworkPlan
    rows: SiteRows
    summary: SiteSummary
    sender: PlainSender | MaskedSender
    private: PrivateAnswers | None


def prepared(
    plan: NetworkPlan,
    settings: SiteSettings,
    site: str,
    folder: Path,
    sender: PlainSender | MaskedSender,
) -> Prepared:
    """Read the site's table for a plan."""
    rows = read_rows(plan, settings, site)
    summary = summarise(rows.train, plan.schema)
    private = None
    if plan.privacy is not None:
        private = PrivateAnswers(plan, settings, folder)
        private.check(len(rows.train))
        summary = without_counts(summary)
    return Prepared(plan, plan, rows, summary, sender, private)
