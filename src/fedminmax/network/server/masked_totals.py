"""The server's side of masked sums: it learns the total of the sites' answers, and nothing else.

Bonawitz et al. (2017), with every answer's seed shared among the sites that were asked. A question
goes to a set of sites. If all of them send a masked answer, with a signature of what they saw, they
are asked for the seeds of their own masks, and the masks of pairs cancel. If one does not send its
answer, this attempt is abandoned, and the others are asked again with new masks. If one has
gone after that, the others' shares give its seed.
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from types import MappingProxyType
from typing import Any

from cryptography.exceptions import InvalidSignature

from fedminmax.network.secure.fixed_point import Layout, WrongMasksError, unpack
from fedminmax.network.secure.masks import Sum, mask_at
from fedminmax.network.secure.messages import (
    Ask,
    Context,
    Traced,
    UnmaskAsk,
    Unmasked,
    Upload,
    commitment,
    from_bytes,
    statement,
    to_bytes,
    upload_content,
    upload_from_bytes,
)
from fedminmax.network.secure.session import Roster, Terms, entry_from_bytes
from fedminmax.network.secure.shamir import SECRET_BYTES, restore
from fedminmax.network.secure.site import self_mask_key
from fedminmax.network.server.transport import (
    MIN_SECONDS,
    NO_LIMITS,
    POLL_SECONDS,
    PRESENCE_TIMEOUT,
    Transport,
    gather,
)
from fedminmax.network.wire.codec import RefusedError

NO_FAILURES: Mapping[str, str] = MappingProxyType({})


class NoTotalError(RuntimeError):
    """Too few sites answered for a total; ``failures`` says why each of the others did not."""

    def __init__(self, reason: str, failures: Mapping[str, str]) -> None:
        super().__init__(f"{reason} ({'; '.join(failures.values())})" if failures else reason)
        self.failures = failures


@dataclass(frozen=True, eq=False)
class MaskedTotal:
    """A total by section, the sites it is of, and why others are not in it.

    ``late`` are those that did not answer in time; ``seconds`` is how long each answer took.
    ``bytes_in`` is the size of a site's messages, and ``bytes_out`` of what masks add to those
    that it gets.
    """

    values: Mapping[str, Any]
    sites: tuple[str, ...]
    _: KW_ONLY
    failures: Mapping[str, str]
    late: frozenset[str]
    seconds: Mapping[str, float]
    bytes_in: int
    bytes_out: int


@dataclass
class _Notes:
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
    answers = gather(transport(asked, "keys", {}))
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
    accepted = gather(transport(roster.sites, "set_roster", payload))
    if accepted.failures:
        raise NoTotalError("sites did not accept the others' keys", accepted.failures)
    return roster, refused


class MaskedTotals:
    """Totals of one session.

    Args:
        transport: how sites are reached.
        roster: the sites' keys, as all of them have accepted it.
    """

    def __init__(self, transport: Transport, roster: Roster) -> None:
        self._transport = transport
        self._roster = roster
        self._threshold = roster.terms.threshold
        self._attempts: Counter[Context] = Counter()

    def total(
        self,
        context: Context,
        payload: Mapping[str, object],
        question: bytes,
        *,
        layout: Layout,
        sites: Sequence[str],
        least: int = 0,
        seconds: Mapping[str, float] = NO_LIMITS,
    ) -> MaskedTotal:
        """Ask a question until there is a total over at least as many sites as the threshold.

        Args:
            context: the question; its attempt is counted here.
            payload: what the site's function is called with, besides ``secure``.
            question: the hash of all that is asked, as each site computes it for itself.
            layout: the answer's sections.
            sites: who is asked.
            least: how many of them must be in the total, if more than the threshold.
            seconds: how long each may take to answer.

        Raises:
            NoTotalError: too few sites are left.
            FailedSitesError: sites could not compute what was asked.
        """
        notes, least = _Notes(), max(least, self._threshold)
        known = [site for site in self._roster.sites if site in sites]
        while True:
            if len(known) < least:
                raise NoTotalError(
                    f"{len(known)} sites are left for a masked total over at least {least}",
                    notes.failures,
                )
            topic = context.topic
            ask = Ask(replace(topic, attempt=self._attempts[topic]), tuple(known))
            self._attempts[topic] += 1
            stated = statement(self._roster.session, ask, question)
            uploads = self._uploads(ask, layout, payload, stated, seconds=seconds, notes=notes)
            if len(uploads) < len(known):
                known = [site for site in known if site in uploads]
                continue
            gone = self._gone_meanwhile(ask.sites, notes)
            if gone:
                known = [site for site in known if site not in gone]
                continue
            seeds = self._seeds(ask, stated, uploads, notes)
            first, *others = uploads.values()
            total = Sum(first.packed)
            for upload in others:
                total.add(upload.packed)
            for seed in seeds.values():
                total.add_mask(self_mask_key(seed), -1)
            try:
                values = unpack(layout, total.packed, len(known))
            except WrongMasksError as error:
                notes.failures |= self._traced(ask, uploads, seeds)
                raise NoTotalError(str(error), notes.failures) from error
            return MaskedTotal(
                values=values,
                sites=ask.sites,
                failures=notes.failures,
                late=frozenset(notes.late),
                seconds=notes.seconds,
                bytes_in=notes.bytes_in,
                bytes_out=notes.bytes_out,
            )

    def _uploads(
        self,
        ask: Ask,
        layout: Layout,
        payload: Mapping[str, object],
        stated: bytes,
        *,
        seconds: Mapping[str, float],
        notes: _Notes,
    ) -> dict[str, Upload]:
        """Ask the question; return the masked answers that are what they should be."""
        uploads, longest = {}, 0
        started, asked = time.monotonic(), to_bytes(ask)
        notes.bytes_out += len(asked)
        secure = {**payload, "secure": asked}
        for answer in self._transport(ask.sites, ask.context.question, secure, seconds):
            site = answer.site
            if answer.failure is not None:
                notes.failures[site] = answer.failure
                if answer.late:
                    notes.late.add(site)
                continue
            try:
                uploads[site] = self._checked(answer.message, ask, layout, stated, site)
            except RefusedError as error:
                notes.failures[site] = str(error)
                continue
            notes.seconds[site] = time.monotonic() - started
            longest = max(longest, _length(answer.message))
        notes.bytes_in += longest
        return {site: uploads[site] for site in ask.sites if site in uploads}

    def _checked(
        self, message: object, ask: Ask, layout: Layout, stated: bytes, site: str
    ) -> Upload:
        upload = upload_from_bytes(message, ask, layout, site)
        try:
            self._roster.signing_keys[site].verify(upload.signature, upload_content(stated))
        except InvalidSignature as error:
            raise RefusedError(
                f"{site} signed something else: it saw another question or set of sites; refused"
            ) from error
        return upload

    def _gone_meanwhile(self, sites: Sequence[str], notes: _Notes) -> Mapping[str, str]:
        """Return which sites have gone since they answered, if the others took long.

        To go on without a site is possible until the first seed is disclosed.
        """
        last = max(notes.seconds[site] for site in sites)
        early = [site for site in sites if last - notes.seconds[site] > POLL_SECONDS]
        if not early:
            return {}
        seconds = dict.fromkeys(early, PRESENCE_TIMEOUT)
        there = gather(self._transport(early, "present", {}, seconds)).messages
        gone = {site: f"{site} is no longer connected" for site in early if site not in there}
        notes.failures |= gone
        notes.late |= gone.keys()
        return gone

    def _seeds(
        self,
        ask: Ask,
        stated: bytes,
        uploads: Mapping[str, Upload],
        notes: _Notes,
    ) -> dict[str, bytes]:
        """Return the seeds of all sites' own masks, from themselves or from the others' shares."""
        signatures = {site: upload.signature for site, upload in uploads.items()}
        replies = self._unmasked(UnmaskAsk(ask.context, signatures, {}), ask.sites, notes)
        seeds = {}
        for site, unmasked in replies.items():
            if commitment("seed", stated, site, unmasked.seed) == uploads[site].commitments[0]:
                seeds[site] = unmasked.seed
            else:
                notes.failures[site] = f"{site} sent another seed than it had promised"
        gone = [site for site in ask.sites if site not in seeds]
        if gone:
            seeds |= self._recovered(
                ask,
                stated,
                uploads=uploads,
                signatures=signatures,
                gone=gone,
                helpers=list(replies),
                notes=notes,
            )
        return seeds

    def _recovered(
        self,
        ask: Ask,
        stated: bytes,
        *,
        uploads: Mapping[str, Upload],
        signatures: Mapping[str, bytes],
        gone: Sequence[str],
        helpers: Sequence[str],
        notes: _Notes,
    ) -> dict[str, bytes]:
        """Return the seeds of sites that have gone, each from as many shares as the threshold."""
        sealed = {
            owner: dict(zip(_without(ask.sites, owner), uploads[owner].shares, strict=True))
            for owner in gone
        }
        replies = self._unmasked(UnmaskAsk(ask.context, signatures, sealed), helpers, notes)
        seeds = {}
        for owner in gone:
            others = _without(ask.sites, owner)
            promised = dict(zip(others, uploads[owner].commitments[1:], strict=True))
            shares = {}
            for site in others:
                share = replies[site].shares.get(owner) if site in replies else None
                if share is None:
                    continue
                if commitment("share", stated, owner, share) == promised[site]:
                    shares[ask.sites.index(site) + 1] = int.from_bytes(share, "big")
                else:
                    notes.failures[site] = f"{site} sent another share than '{owner}' had made"
            seeds[owner] = self._restored(owner, shares, uploads[owner], stated, notes)
        return seeds

    def _restored(
        self,
        owner: str,
        shares: Mapping[int, int],
        upload: Upload,
        stated: bytes,
        notes: _Notes,
    ) -> bytes:
        if len(shares) < self._threshold:
            raise NoTotalError(
                f"'{owner}' has gone, and {len(shares)} of {self._threshold} shares of its seed "
                "came: the same sites must answer this question again",
                notes.failures,
            )
        secret = restore(dict(list(shares.items())[: self._threshold]))
        seed = secret.to_bytes(SECRET_BYTES, "big")
        if commitment("seed", stated, owner, seed) != upload.commitments[0]:
            raise NoTotalError(f"'{owner}' has gone, and had made bad shares", notes.failures)
        return seed

    def _traced(
        self, ask: Ask, uploads: Mapping[str, Upload], seeds: Mapping[str, bytes]
    ) -> dict[str, str]:
        """Return who masked wrongly, from the masks of the word that counts sites."""
        payload = {"message": to_bytes(ask.context)}
        answers = gather(self._transport(ask.sites, "trace", payload))
        failures, told = dict(answers.failures), {}
        for site, message in answers.messages.items():
            try:
                told[site] = from_bytes(message, Traced, site).words
            except RefusedError as error:
                failures[site] = str(error)
        place = len(next(iter(uploads.values())).packed.words) - 1
        for number, site in enumerate(ask.sites):
            own, word = told.get(site, {}), int(uploads[site].packed.words[place])
            word -= mask_at(self_mask_key(seeds[site]), place)
            for other_number, other in enumerate(ask.sites):
                if other != site:
                    sign = 1 if number < other_number else -1
                    word -= sign * own.get(other, 0)
                    if own.get(other) != told.get(other, {}).get(site):
                        failures[site] = f"{site} and {other} say different masks of theirs"
            if site in told and site not in failures and word % 2**64 != 1:
                failures[site] = f"{site} masked wrongly"
        return failures

    def _unmasked(
        self, asked: UnmaskAsk, sites: Sequence[str], notes: _Notes
    ) -> dict[str, Unmasked]:
        sent, seconds = to_bytes(asked), dict.fromkeys(sites, MIN_SECONDS)
        answers = gather(self._transport(sites, "unmask", {"message": sent}, seconds))
        notes.failures |= answers.failures
        notes.bytes_out += len(sent)
        notes.bytes_in += max(map(_length, answers.messages.values()), default=0)
        replies = {}
        for site, message in answers.messages.items():
            try:
                replies[site] = from_bytes(message, Unmasked, site)
            except RefusedError as error:
                notes.failures[site] = str(error)
        return replies


def _length(message: object) -> int:
    return len(message) if isinstance(message, bytes) else 0


def _without(sites: Sequence[str], site: str) -> list[str]:
    return [other for other in sites if other != site]
