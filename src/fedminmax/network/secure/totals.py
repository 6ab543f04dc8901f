"""The server's side of masked sums: it learns the total of the sites' answers, and nothing else.

Bonawitz et al. (2017), with every answer's seed shared among the sites that were asked. A question
goes to a set of sites. If all of them send a masked answer, with a signature of what they saw, they
are asked for the seeds of their own masks, and the masks of pairs cancel. If one does not send its
answer, this attempt is abandoned, and the others are asked again with new masks. If one has
gone after that, the others' shares give its seed.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from types import MappingProxyType
from typing import Any

from fedminmax.core.messages import NOT_ROUNDED, SumRounding
from fedminmax.network.secure import messages
from fedminmax.network.secure.fixed_point import Layout, WrongMasksError
from fedminmax.network.secure.masks import SECRET_BYTES, mask_at, read_total, restore, self_mask_key
from fedminmax.network.secure.session import Roster, Terms, entry_from_bytes
from fedminmax.network.wire.calls import (
    MIN_SECONDS,
    NO_LIMITS,
    POLL_SECONDS,
    SECURE,
    Endpoint,
    Question,
    Transport,
    gather,
    present_sites,
)
from fedminmax.network.wire.codec import RefusedError

NO_FAILURES: Mapping[str, str] = MappingProxyType({})
# Notes, before masks are taken off a total, of which question and over which sites it is.
NoteUnmasking = Callable[[Question, tuple[str, ...]], None]


class NoTotalError(RuntimeError):
    """Too few sites answered for a total; ``failures`` says why each of the others did not."""

    def __init__(self, reason: str, failures: Mapping[str, str]) -> None:
        super().__init__(f"{reason} ({'; '.join(failures.values())})" if failures else reason)
        self.failures = failures


def rounding_of(layout: Layout, sites: int) -> SumRounding:
    """Return how far the numbers of a reply's total over so many sites may be off."""
    exponents = {section.name: section.exponent for section in layout.sections}
    names = ("group_loss", "step", "statistics")
    if not exponents.keys() >= {*names}:
        return NOT_ROUNDED
    return SumRounding(*(math.ldexp(0.5 * sites, -exponents[name]) for name in names))


@dataclass(frozen=True, eq=False)
class MaskedTotal:
    """A total by section, the sites it is of, and why others are not in it.

    ``rounding`` is how far a reply's sums may be off. ``late`` are those that did not answer in
    time; ``seconds`` is how long each answer took.
    ``bytes_in`` is the size of a site's messages, and ``bytes_out`` of what masks add to those
    that it gets.
    """

    values: Mapping[str, Any]
    sites: tuple[str, ...]
    _: KW_ONLY
    rounding: SumRounding
    failures: Mapping[str, str]
    late: frozenset[str]
    seconds: Mapping[str, float]
    bytes_in: int
    bytes_out: int


@dataclass
class Notes:
    """What is noted over all attempts at one question."""

    failures: dict[str, str] = field(default_factory=dict)
    late: set[str] = field(default_factory=set)
    seconds: dict[str, float] = field(default_factory=dict)
    bytes_in: int = 0
    bytes_out: int = 0


def open_session(
    transport: Transport, terms: Terms, failures: Mapping[str, str] = NO_FAILURES
) -> tuple[Roster, Mapping[str, str]]:
    """Gather all sites' keys and pass them on; return them, and why sites are not among them.

    Sites that have failed before are not asked. Sites that refuse the others' keys end it, since
    the others could not go on without them in the same session.
    """
    asked = [site for site in terms.sites if site not in failures]
    answers = gather(transport(asked, Endpoint.KEYS, {}))
    refused = {**failures, **answers.failures}
    entries = []
    for site in asked:
        if site in answers.messages:
            try:
                entries.append(entry_from_bytes(answers.messages[site], site))
            except RefusedError as error:
                refused[site] = str(error)
    if len(entries) < terms.threshold:
        raise NoTotalError(f"{len(entries)} of at least {terms.threshold} sites sent keys", refused)
    roster = Roster(entries=tuple(entries))
    payload = {"roster": roster.model_dump_json().encode()}
    accepted = gather(transport(roster.sites, Endpoint.SET_ROSTER, payload))
    if accepted.failures:
        raise NoTotalError("sites did not accept the others' keys", accepted.failures)
    return roster, refused


class MaskedTotals:
    """Totals of one session."""

    def __init__(
        self,
        transport: Transport,
        roster: Roster,
        note_unmasking: NoteUnmasking = lambda _question, _sites: None,
    ) -> None:
        self._transport = transport
        self._roster = roster
        self._note_unmasking = note_unmasking
        self._attempts: Counter[Question] = Counter()

    def total(
        self,
        question: Question,
        payload: Mapping[str, object],
        agreed: messages.Agreed,
        content: bytes = b"",
        *,
        layout: Layout,
        sites: Sequence[str],
        least: int = 0,
        seconds: Mapping[str, float] = NO_LIMITS,
    ) -> MaskedTotal:
        """Ask a question until there is a total over at least as many sites as the threshold.

        Args:
            question: what is asked; its attempt is counted here.
            payload: what the site's function is called with, besides the ``Ask``.
            agreed: what all sites were told before.
            content: what is asked about, as sites get it.
            layout: the answer's sections.
            sites: who is asked.
            least: how many of them must be in the total, if more than the threshold.
            seconds: how long each may take to answer.

        Raises:
            NoTotalError: too few sites are left.
            FailedSitesError: sites could not compute what was asked.
        """
        notes, least = Notes(), max(least, self._roster.terms.threshold)
        asked = [site for site in self._roster.sites if site in sites]
        topic, digest = question.topic, messages.question_digest(agreed, layout, content)
        while len(asked) >= least:
            ask = messages.Ask(replace(topic, attempt=self._attempts[topic]), tuple(asked))
            self._attempts[topic] += 1
            attempt = Attempt(self._transport, self._roster, ask, digest, layout, notes)
            uploads = attempt.collect(payload, seconds)
            gone = attempt.gone_meanwhile() if len(uploads) == len(asked) else ()
            if len(uploads) < len(asked) or gone:
                asked = [site for site in asked if site in uploads and site not in gone]
                continue
            self._note_unmasking(topic, ask.sites)
            seeds = attempt.seeds()
            packed = [upload.packed for upload in uploads.values()]
            try:
                values = read_total(layout, packed, list(seeds.values()))
            except WrongMasksError as error:
                notes.failures |= attempt.trace(seeds)
                raise NoTotalError(str(error), notes.failures) from error
            return MaskedTotal(
                values=values,
                sites=ask.sites,
                rounding=rounding_of(layout, len(ask.sites)),
                failures=notes.failures,
                late=frozenset(notes.late),
                seconds=notes.seconds,
                bytes_in=notes.bytes_in,
                bytes_out=notes.bytes_out,
            )
        raise NoTotalError(
            f"{len(asked)} sites are left for a masked total over at least {least}", notes.failures
        )


class Attempt:
    """One attempt at a question: what its sites sent, and the seeds of their masks."""

    def __init__(
        self,
        transport: Transport,
        roster: Roster,
        ask: messages.Ask,
        digest: bytes,
        layout: Layout,
        notes: Notes,
    ) -> None:
        self._transport, self._roster = transport, roster
        self._ask, self._layout, self._notes = ask, layout, notes
        self._stated = messages.statement(roster.session, ask, digest)
        self._uploads: dict[str, messages.Upload] = {}

    def collect(
        self, payload: Mapping[str, object], seconds: Mapping[str, float]
    ) -> dict[str, messages.Upload]:
        """Ask the question; return the masked answers that are what they should be."""
        notes, uploads, longest = self._notes, {}, 0
        started, asked = time.monotonic(), messages.to_bytes(self._ask)
        notes.bytes_out += len(asked)
        endpoint, sites = self._ask.question.endpoint, self._ask.sites
        for answer in self._transport(sites, endpoint, {**payload, SECURE: asked}, seconds):
            site = answer.site
            if answer.failure is not None:
                notes.failures[site] = answer.failure
                if answer.late:
                    notes.late.add(site)
                continue
            try:
                uploads[site] = self._checked(answer.message, site)
            except RefusedError as error:
                notes.failures[site] = str(error)
                continue
            notes.seconds[site] = time.monotonic() - started
            longest = max(longest, _length(answer.message))
        notes.bytes_in += longest
        self._uploads = {site: uploads[site] for site in sites if site in uploads}
        return self._uploads

    def _checked(self, message: object, site: str) -> messages.Upload:
        key = self._roster.signing_keys[site]
        return messages.signed_upload(
            message, self._ask, self._layout, site, key=key, stated=self._stated
        )

    def gone_meanwhile(self) -> Mapping[str, str]:
        """Return which sites have gone since they answered, if the others took long.

        To go on without a site is possible until the first seed is disclosed.
        """
        notes, sites = self._notes, self._ask.sites
        last = max(notes.seconds[site] for site in sites)
        early = [site for site in sites if last - notes.seconds[site] > POLL_SECONDS]
        if not early:
            return {}
        there = present_sites(self._transport, early)
        gone = {site: f"{site} is no longer connected" for site in early if site not in there}
        notes.failures |= gone
        notes.late |= gone.keys()
        return gone

    def seeds(self) -> dict[str, bytes]:
        """Return the seeds of all sites' own masks, from themselves or from the others' shares."""
        replies = self._unmask(self._ask.sites, {})
        seeds = {}
        for site, unmasked in replies.items():
            seed, promised = unmasked.seed, self._uploads[site].commitments[0]
            if messages.commitment("seed", self._stated, site, seed) == promised:
                seeds[site] = seed
            else:
                self._notes.failures[site] = f"{site} sent another seed than it had promised"
        gone = [site for site in self._ask.sites if site not in seeds]
        return seeds | (self._recovered(gone, list(replies)) if gone else {})

    def _recovered(self, gone: Sequence[str], helpers: Sequence[str]) -> dict[str, bytes]:
        """Return the seeds of sites that have gone, each from as many shares as the threshold."""
        sites, uploads = self._ask.sites, self._uploads
        sealed = {
            owner: dict(zip(_without(sites, owner), uploads[owner].shares, strict=True))
            for owner in gone
        }
        replies = self._unmask(helpers, sealed)
        seeds = {}
        for owner in gone:
            others = _without(sites, owner)
            promised = dict(zip(others, uploads[owner].commitments[1:], strict=True))
            shares = {}
            for site in others:
                share = replies[site].shares.get(owner) if site in replies else None
                if share is None:
                    continue
                if messages.commitment("share", self._stated, owner, share) == promised[site]:
                    shares[sites.index(site) + 1] = int.from_bytes(share, "big")
                else:
                    reason = f"{site} sent another share than '{owner}' had made"
                    self._notes.failures[site] = reason
            seeds[owner] = self._restored(owner, shares)
        return seeds

    def _restored(self, owner: str, shares: Mapping[int, int]) -> bytes:
        threshold, failures = self._roster.terms.threshold, self._notes.failures
        if len(shares) < threshold:
            raise NoTotalError(
                f"'{owner}' has gone, and {len(shares)} of {threshold} shares of its seed "
                "came: the same sites must answer this question again",
                failures,
            )
        secret = restore(dict(list(shares.items())[:threshold]))
        seed = secret.to_bytes(SECRET_BYTES, "big")
        if (
            messages.commitment("seed", self._stated, owner, seed)
            != self._uploads[owner].commitments[0]
        ):
            raise NoTotalError(f"'{owner}' has gone, and had made bad shares", failures)
        return seed

    def _unmask(
        self, sites: Sequence[str], sealed: Mapping[str, Mapping[str, bytes]]
    ) -> dict[str, messages.Unmasked]:
        signatures = {site: upload.signature for site, upload in self._uploads.items()}
        sent = messages.to_bytes(messages.UnmaskAsk(self._ask.question, signatures, sealed))
        seconds, notes = dict.fromkeys(sites, MIN_SECONDS), self._notes
        notes.bytes_out += len(sent)
        replies, longest = {}, 0
        for answer in self._transport(sites, Endpoint.UNMASK, {"message": sent}, seconds):
            if answer.failure is not None:
                notes.failures[answer.site] = answer.failure
                continue
            longest = max(longest, _length(answer.message))
            try:
                replies[answer.site] = messages.from_bytes(
                    answer.message, messages.Unmasked, answer.site
                )
            except RefusedError as error:
                notes.failures[answer.site] = str(error)
        notes.bytes_in += longest
        return replies

    def trace(self, seeds: Mapping[str, bytes]) -> dict[str, str]:
        """Return who masked wrongly, from the masks of the word that counts sites."""
        sites, payload = self._ask.sites, {"message": messages.to_bytes(self._ask.question)}
        answers = gather(self._transport(sites, Endpoint.TRACE, payload))
        failures, told = dict(answers.failures), {}
        for site, message in answers.messages.items():
            try:
                told[site] = messages.from_bytes(message, messages.Traced, site).words
            except RefusedError as error:
                failures[site] = str(error)
        last = self._layout.words - 1
        for number, site in enumerate(sites):
            masks, word = told.get(site, {}), int(self._uploads[site].packed.words[last])
            word -= mask_at(self_mask_key(seeds[site]), last)
            for other_number, other in enumerate(sites):
                if other != site:
                    sign = 1 if number < other_number else -1
                    word -= sign * masks.get(other, 0)
                    if masks.get(other) != told.get(other, {}).get(site):
                        failures[site] = f"{site} and {other} say different masks of theirs"
            if site in told and site not in failures and word % 2**64 != 1:
                failures[site] = f"{site} masked wrongly"
        return failures


def _length(message: object) -> int:
    return len(message) if isinstance(message, bytes) else 0


def _without(sites: Sequence[str], site: str) -> list[str]:
    return [other for other in sites if other != site]
