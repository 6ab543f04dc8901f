"""Sites with real keys, certificates and records, called in this process."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from fedminmax.network.secure.fixed_point import Kind, Layout, Packed, Section, pack, pack_failure
from fedminmax.network.secure.messages import Agreed, Ask, UnmaskAsk, from_bytes, question_digest
from fedminmax.network.secure.secure_site import SecureSite
from fedminmax.network.secure.session import Authority, Identity, Roster, Terms, check_roster
from fedminmax.network.secure.totals import MaskedTotal, MaskedTotals, open_session
from fedminmax.network.site.journal import Journal
from fedminmax.network.site.policy import Limits
from fedminmax.network.wire.calls import Endpoint, Question
from fedminmax.network.wire.plan import threshold_for
from tests.network.network_problem import DirectTransport

SITES = ("east", "mid", "north", "south", "west")
# With a threshold of five: two may go, or one may go and one may lie.
SEVEN = (*SITES, "isle", "shore")
FIRST = Question(Endpoint.ANSWER, run=0, round=1, phase=0)
LAYOUT = Layout((Section("step", 4, Kind.FIXED, 40), Section("counts", 2, Kind.COUNT)))
ORDER = b"the model of round 1"
AGREED = Agreed(b"plan", b"encoding", b"sizes", b"0.1")


@dataclass(frozen=True, eq=False)
class Certifier:
    """An authority with its private key."""

    key: ec.EllipticCurvePrivateKey
    authority: Authority

    def identity(self, site: str, *, days: int = 1) -> Identity:
        key = ec.generate_private_key(ec.SECP256R1())
        issuer = self.authority.root.subject
        return Identity(site, key, _certificate(site, key, issuer, self.key, days))


def certifier() -> Certifier:
    key = ec.generate_private_key(ec.SECP256R1())
    return Certifier(key, Authority(_certificate("root", key, _name("root"), key, 1)))


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


def _certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Name,
    signer: ec.EllipticCurvePrivateKey,
    days: int,
) -> x509.Certificate:
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=10))
        .not_valid_after(now + timedelta(days=days))
    )
    return builder.sign(signer, hashes.SHA256())


@cache
def federation_certifier() -> Certifier:
    """The same for all tests: keys take time."""
    return certifier()


@cache
def kit(site: str) -> Identity:
    return federation_certifier().identity(site)


def terms_for(sites: tuple[str, ...] = SITES, run: str = "run-1") -> Terms:
    return Terms(run, "0123abcd", sites, threshold_for(len(sites)))


def answers_of(site: str, seed: int = 0) -> dict[str, Any]:
    """Some answer of this site."""
    generator = np.random.default_rng([seed, SEVEN.index(site)])
    step, counts = generator.normal(size=4), generator.integers(0, 1000, 2)
    return {"step": torch.from_numpy(step), "counts": torch.from_numpy(counts)}


def limits_for(terms: Terms, *, allow_other_sites: bool = False) -> Limits:
    """What a site allows: any number of questions, and one total of each."""
    least = terms.threshold
    return Limits(99, 1, 9999, threshold=least, allow_other_sites=allow_other_sites)


class MaskedSite:
    """What a site's process does with the calls that masked sums need."""

    def __init__(self, site: str, folder: Path, terms: Terms, values: Mapping[str, Any]) -> None:
        authority = federation_certifier().authority
        self.values = values
        journal = Journal(folder / site)
        journal.begin(terms.run, terms.plan, "table", limits_for(terms))
        self.secure = SecureSite(kit(site), authority, terms, journal)
        self.agreed, self.layout = AGREED, LAYOUT

    def keys(self) -> bytes:
        return self.secure.keys()

    def set_roster(self, roster: object) -> bytes:
        return self.secure.set_roster(roster)

    def answer(self, order: bytes, secure: object) -> bytes:
        question = question_digest(self.agreed, self.layout, order)
        return self.secure.mask(from_bytes(secure, Ask, "it"), FIRST, self._pack, question)

    def _pack(self, sites: int) -> Packed:
        try:
            return pack(self.layout, self.values, sites)
        except ValueError:
            return pack_failure(self.layout)

    def present(self) -> bytes:
        return b""

    def unmask(self, message: object) -> bytes:
        return self.secure.unmask(from_bytes(message, UnmaskAsk, "it"))

    def trace(self, message: object) -> bytes:
        return self.secure.trace(from_bytes(message, Question, "it"))


class MaskedSites(DirectTransport):
    """Calls these sites, and keeps all that the server sends and gets."""

    def __init__(self, folder: Path, terms: Terms | None = None, seed: int = 0) -> None:
        self.folder, self.terms = folder, terms or terms_for()
        self.masked = {
            site: MaskedSite(site, folder, self.terms, answers_of(site, seed))
            for site in self.terms.sites
        }
        self.calls: list[tuple[str, tuple[str, ...]]] = []
        self.transcript: list[tuple[str, str, object]] = []
        self.lies: dict[tuple[str, str], Callable[[bytes], bytes]] = {}
        # Sites that hear nothing from this question on, and whose answer to it gets lost.
        self.gone: dict[str, str] = {}
        self.lost: dict[str, str] = {}
        self._away: set[str] = set()

    def answer(self, site: str, endpoint: str, payload: Mapping[str, object]) -> object:
        if self.gone.get(site) == endpoint:
            self._away.add(site)
        if site in self._away:
            raise TimeoutError
        message = getattr(self.masked[site], endpoint)(**payload)
        if self.lost.get(site) == endpoint:
            self._away.add(site)
            raise TimeoutError
        message = self.lies.get((site, endpoint), bytes)(message)
        self.transcript.append((site, endpoint, message))
        return message

    def all_back(self) -> None:
        """The network is as it was; no process ended."""
        self.gone, self.lost, self._away = {}, {}, set()

    def open(self) -> tuple[Roster, MaskedTotals]:
        roster, _ = open_session(self, self.terms)
        check_roster(roster, self.terms, federation_certifier().authority)
        return roster, MaskedTotals(self, roster)

    def restart(self, site: str) -> MaskedSite:
        """End the site's process and start it again: only what is on its disk is left."""
        values = self.masked[site].values
        self.masked[site] = MaskedSite(site, self.folder, self.terms, values)
        return self.masked[site]

    def ask(
        self,
        totals: MaskedTotals,
        sites: tuple[str, ...] | None = None,
        order: bytes = ORDER,
        layout: Layout = LAYOUT,
    ) -> MaskedTotal:
        """The total of the first request."""
        asked = self.terms.sites if sites is None else sites
        return totals.total(FIRST, {"order": order}, AGREED, order, layout=layout, sites=asked)

    def plain_total(self, sites: tuple[str, ...]) -> dict[str, Any]:
        """The sum that nobody masked."""
        return {
            name: sum(self.masked[site].values[name] for site in sites)
            for name in ("step", "counts")
        }
