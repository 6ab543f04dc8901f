"""A site's side of masked sums: it masks and unmasks, each at most as it should.

What holds whatever the server does: an answer leaves the site under the masks of all other sites
that were asked and under the site's own mask; the seed of the latter is disclosed only after every
site that was asked has signed that it saw the same question and sites; and secrets that two sites
share are never disclosed. The question is the hash of everything that decides what a site computes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from cryptography.exceptions import InvalidSignature, InvalidTag

from fedminmax.network.secure import masks
from fedminmax.network.secure.fixed_point import Packed
from fedminmax.network.secure.masks import SECRET_BYTES, SHARE_BYTES, deal, new_secret
from fedminmax.network.secure.messages import (
    Ask,
    Total,
    Traced,
    UnmaskAsk,
    Unmasked,
    Upload,
    commitment,
    statement,
    to_bytes,
    upload_content,
    upload_to_bytes,
)
from fedminmax.network.secure.session import (
    Authority,
    Identity,
    Roster,
    Terms,
    check_roster,
    check_terms,
    entry_of,
    roster_from_bytes,
)
from fedminmax.network.wire.calls import Question
from fedminmax.network.wire.codec import RefusedError

SERVER = "the server"


@dataclass(frozen=True, eq=False)
class Masked:
    """What a site remembers of an answer that it masked, until the next question."""

    ask: Ask
    total: Total
    stated: bytes
    seed: bytes
    words: int


@dataclass(frozen=True, eq=False)
class Joined:
    """A session that has begun: everybody's keys, and the secrets shared with each other site."""

    roster: Roster
    secrets: Mapping[str, bytes]

    @property
    def name(self) -> str:
        """The session's name, as the journal has it."""
        return self.roster.session.hex()


class MaskJournal(Protocol):
    """Where a site writes down its masks; both refuse what the site must not do."""

    def allow_mask(self, session: str, question: Question, total: Total) -> None:
        """Allow one mask for this attempt and write it down, or refuse it."""
        ...

    def allow_unmask(self, session: str, question: Question, total: Total) -> None:
        """Allow this total and write it down, or refuse it."""
        ...


class SecureSite:
    """One site in one session."""

    def __init__(
        self,
        identity: Identity,
        authority: Authority,
        terms: Terms,
        journal: MaskJournal,
    ) -> None:
        check_terms(terms)
        if identity.site not in terms.sites:
            raise RefusedError(f"{SERVER} has a plan without this site, '{identity.site}'")
        self._name, self._authority, self._terms = identity.site, authority, terms
        self._journal = journal
        self._keys = masks.SessionKeys.fresh()
        self._entry = entry_of(identity, self._keys, terms)
        self._joined: Joined | None = None
        self._masked: dict[Question, Masked] = {}

    def keys(self) -> bytes:
        """Tell this site's keys of the session."""
        return self._entry.model_dump_json().encode()

    def set_roster(self, roster: object) -> bytes:
        """Take everybody's keys; the same ones may come again, others may not."""
        came = roster_from_bytes(roster, SERVER)
        if self._joined is not None:
            if came.session != self._joined.roster.session:
                raise RefusedError(f"{SERVER} changed the sites' keys within a session; refused")
            return b""
        check_roster(came, self._terms, self._authority)
        if came.by_site.get(self._name) != self._entry:
            raise RefusedError(f"{SERVER} has other keys of this site than it made; refused")
        shared = {}
        for site, entry in came.by_site.items():
            if site != self._name:
                try:
                    shared[site] = self._keys.shared_with(entry.masking)
                except ValueError as error:
                    raise RefusedError(
                        f"the key of '{site}' is not a valid key; refused"
                    ) from error
        self._joined = Joined(came, shared)
        return b""

    def mask(
        self, ask: Ask | None, topic: Question, pack: Callable[[int], Packed], question: bytes
    ) -> bytes:
        """Mask an answer, if this site takes part in the total that is asked for.

        Args:
            ask: what came with the question: which attempt it is, and of whom it is asked.
            topic: which question this is, as the site itself understood it.
            pack: returns the answer in whole numbers that are small enough for so many sites.
            question: the hash of all that was asked (``question_digest``), as this site saw it.
        """
        joined = self._session()
        if ask is None or ask.question.topic != topic:
            other = "nothing" if ask is None else ask.question
            raise RefusedError(f"{SERVER} asks {topic}, but for a mask of {other}; refused")
        self._check_sites(ask.sites, joined)
        packed = pack(len(ask.sites))
        total = Total(question.hex(), ask.sites)
        self._journal.allow_mask(joined.name, ask.question, total)
        stated = statement(joined.roster.session, ask, question)
        seed = new_secret().to_bytes(SECRET_BYTES, "big")
        own = Masked(ask, total, stated, seed, len(packed.words))
        # Seeds of earlier questions are of no use any more.
        self._masked = {
            earlier: other for earlier, other in self._masked.items() if earlier.topic == topic
        }
        self._masked[ask.question] = own
        masked = masks.Sum(packed)
        masked.add_mask(masks.self_mask_key(own.seed), 1)
        place = ask.sites.index(self._name)
        for number, other in enumerate(ask.sites):
            if number != place:
                masked.add_mask(_pair_key(joined, other, stated), 1 if place < number else -1)
        commitments, shares = self._shares(own, joined)
        signature = self._keys.signing.sign(upload_content(stated))
        return upload_to_bytes(Upload(masked.packed, commitments, shares, signature))

    def unmask(self, asked: UnmaskAsk) -> bytes:
        """Tell this site's own seed, and its shares of the seeds of sites that have gone."""
        own, joined = self._masked_answer(asked.question), self._session()
        if set(asked.signatures) != set(own.ask.sites):
            raise RefusedError(
                f"{SERVER} wants to unmask {asked.question} with {len(asked.signatures)} "
                f"signatures of {len(own.ask.sites)}; refused"
            )
        for site, signature in asked.signatures.items():
            try:
                joined.roster.signing_keys[site].verify(signature, upload_content(own.stated))
            except InvalidSignature as error:
                raise RefusedError(
                    f"'{site}' did not sign the question and sites of {asked.question} that "
                    "this site saw; refused"
                ) from error
        shares = {
            owner: self._share_of(owner, sealed.get(self._name), own, joined)
            for owner, sealed in asked.gone.items()
            if owner != self._name
        }
        self._journal.allow_unmask(joined.name, asked.question, own.total)
        return to_bytes(Unmasked(own.seed, shares))

    def trace(self, question: Question) -> bytes:
        """Tell what this site's masks add to the word that counts sites.

        An honest site's word is 1, so nothing is disclosed, and whoever masked wrongly is found.
        """
        own, joined = self._masked_answer(question), self._session()
        words = {
            other: masks.mask_at(_pair_key(joined, other, own.stated), own.words - 1)
            for other in own.ask.sites
            if other != self._name
        }
        return to_bytes(Traced(words))

    def _session(self) -> Joined:
        if self._joined is None:
            raise RefusedError(f"{SERVER} asks for masked answers before all sites' keys")
        return self._joined

    def _masked_answer(self, question: Question) -> Masked:
        if question not in self._masked:
            raise RefusedError(
                f"this site has no masked answer to {question}, attempt {question.attempt}; refused"
            )
        return self._masked[question]

    def _check_sites(self, sites: tuple[str, ...], joined: Joined) -> None:
        if len(sites) < self._terms.threshold:
            raise RefusedError(
                f"{SERVER} asks {len(sites)} sites, at least {self._terms.threshold} were agreed"
            )
        # In the roster's order, which also leaves no room for a site that comes twice.
        if tuple(site for site in joined.roster.sites if site in sites) != sites:
            unknown = [site[:100] for site in sites if site not in joined.roster.by_site]
            who = f"without keys ({', '.join(unknown[:3])})" if unknown else "in another order"
            raise RefusedError(f"{SERVER} asks sites {who}; refused")
        if self._name not in sites:
            raise RefusedError(f"{SERVER} asks this site for a total that it is not part of")

    def _shares(self, own: Masked, joined: Joined) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
        """Return the hashes of the seed and of its shares, and the shares, each sealed."""
        sites = own.ask.sites
        dealt = deal(int.from_bytes(own.seed, "big"), len(sites), self._terms.threshold)
        commitments = [commitment("seed", own.stated, self._name, own.seed)]
        sealed = []
        for place, other in enumerate(sites, start=1):
            if other == self._name:
                continue
            share = dealt[place].to_bytes(SHARE_BYTES, "big")
            commitments.append(commitment("share", own.stated, self._name, share))
            key, about = self._sealing(self._name, other, other, own, joined)
            sealed.append(masks.encrypted(key, share, about))
        return tuple(commitments), tuple(sealed)

    def _share_of(self, owner: str, sealed: bytes | None, own: Masked, joined: Joined) -> bytes:
        if owner not in own.ask.sites or sealed is None:
            raise RefusedError(f"{SERVER} asks for a share of '{owner[:100]}', which sent none")
        key, about = self._sealing(owner, self._name, owner, own, joined)
        try:
            return masks.decrypted(key, sealed, about)
        except InvalidTag as error:
            raise RefusedError(
                f"the share of '{owner}' is not one that it made for this site and this question"
            ) from error

    def _sealing(
        self, owner: str, recipient: str, other: str, own: Masked, joined: Joined
    ) -> tuple[bytes, bytes]:
        """Return the key of one share, and what else it is bound to."""
        names = (owner.encode(), recipient.encode())
        about = b"\n".join((own.stated, *names))
        return masks.derived_key(joined.secrets[other], "share", own.stated, *names), about


def _pair_key(joined: Joined, other: str, stated: bytes) -> bytes:
    """Return the key of the mask that two sites share."""
    return masks.derived_key(joined.secrets[other], "pair", stated)
