"""A session: which sites take part with which keys, and what they agreed on.

Each site makes new keys whenever a job starts, and signs them with its kit's key together with the
terms: the run, the plan's digest, the sites and the threshold. The server passes all entries on.
A site takes part only if every entry is signed by a site of its own plan, certified by the
federation's authority, for the very terms that it received itself. The hash of all entries is the
session's name, and part of every mask and signature.

Threshold t of K sites: honest sites help to unmask one set of sites per question. To unmask two,
a server with c sites on its side needs t - c honest ones for each, that is 2 (t - c) of K - c:
impossible if c < 2 t - K. With at least floor(2K/3) + 1, on which every site insists, that is
true of every c <= K/3.

Who a site is: its kit's key and certificate, checked against the federation's authority.

Keys that are made for one session are signed with the kit's key. Whoever checks such a signature
asks for a certificate that the federation's own root has issued for this very site, so that a
server can neither invent a site nor speak as one.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Annotated

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from pydantic import Base64Bytes, BaseModel, Field

from fedminmax.core.errors import InputError
from fedminmax.network.secure.masks import SessionKeys, digest
from fedminmax.network.wire.codec import RefusedError, record_from_bytes, record_to_bytes
from fedminmax.network.wire.plan import threshold_for

PADDING = padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.DIGEST_LENGTH)
ECDSA = ec.ECDSA(hashes.SHA256())
KitKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey


@dataclass(frozen=True, eq=False)
class Identity:
    """A site's name, its kit's private key, and the certificate that goes with it."""

    site: str
    key: KitKey
    certificate: x509.Certificate

    @property
    def certificate_bytes(self) -> bytes:
        """The certificate as DER."""
        return self.certificate.public_bytes(serialization.Encoding.DER)

    def sign(self, content: bytes) -> bytes:
        """Sign with whatever kind of key the kit has."""
        if isinstance(self.key, rsa.RSAPrivateKey):
            return self.key.sign(content, PADDING, hashes.SHA256())
        if isinstance(self.key, ec.EllipticCurvePrivateKey):
            return self.key.sign(content, ECDSA)
        return self.key.sign(content)


@dataclass(frozen=True, eq=False)
class Authority:
    """The root certificate of a federation."""

    root: x509.Certificate

    def check(self, certificate: bytes, site: str) -> x509.Certificate:
        """Return this site's certificate; refuse one that is not from here, or another's."""
        try:
            own = x509.load_der_x509_certificate(certificate)
            own.verify_directly_issued_by(self.root)
        except (ValueError, TypeError, InvalidSignature) as error:
            raise RefusedError(
                f"the certificate of '{site}' is not from this federation's authority; refused"
            ) from error
        names = [
            str(entry.value)
            for entry in own.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
        ]
        if names != [site]:
            raise RefusedError(f"the certificate of '{site}' is for {names}; refused")
        if not own.not_valid_before_utc <= datetime.now(UTC) <= own.not_valid_after_utc:
            raise RefusedError(f"the certificate of '{site}' has expired or is not valid yet")
        return own


def check_signature(certificate: x509.Certificate, signature: bytes, content: bytes) -> None:
    """Raise InvalidSignature unless the certificate's key has signed this content."""
    key = certificate.public_key()
    if isinstance(key, rsa.RSAPublicKey):
        key.verify(signature, content, PADDING, hashes.SHA256())
    elif isinstance(key, ec.EllipticCurvePublicKey):
        key.verify(signature, content, ECDSA)
    elif isinstance(key, ed25519.Ed25519PublicKey):
        key.verify(signature, content)
    else:
        raise InvalidSignature


def read_identity(site: str, key: Path, certificate: Path) -> Identity:
    """Read a site's private key and certificate (PEM)."""
    advice = "copy the kit again, or ask the coordinator for it"
    try:
        own = serialization.load_pem_private_key(key.read_bytes(), password=None)
        certified = x509.load_pem_x509_certificate(certificate.read_bytes())
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{key} or {certificate} cannot be read; {advice}") from error
    if not isinstance(own, KitKey):
        raise InputError(f"{key} is not an RSA, EC or Ed25519 key; {advice}")
    if own.public_key() != certified.public_key():
        raise InputError(f"{certificate} does not belong to {key}; {advice}")
    return Identity(site, own, certified)


def read_authority(root: Path) -> Authority:
    """Read the federation's root certificate (PEM)."""
    try:
        return Authority(x509.load_pem_x509_certificate(root.read_bytes()))
    except (OSError, ValueError) as error:
        raise InputError(f"{root} cannot be read; copy the kit again") from error


MAX_ROSTER_BYTES = 2**24
NONCE_BYTES = 16
Key = Annotated[Base64Bytes, Field(min_length=32, max_length=32)]


@dataclass(frozen=True)
class Terms:
    """What all sites of a session agree on."""

    run: str
    plan: str
    sites: tuple[str, ...]
    threshold: int


class Entry(BaseModel, extra="forbid", frozen=True):
    """One site's public keys, and the terms that it signed them for."""

    site: str
    terms: Terms
    masking: Key
    signing: Key
    nonce: Annotated[Base64Bytes, Field(min_length=NONCE_BYTES, max_length=NONCE_BYTES)]
    certificate: Base64Bytes
    signature: Base64Bytes

    @property
    def signed(self) -> bytes:
        """What the kit's key signs."""
        terms = record_to_bytes(self.terms)
        return digest("entry", self.site.encode(), terms, self.masking, self.signing, self.nonce)


class Roster(BaseModel, extra="forbid", frozen=True):
    """The entries of all sites that take part, in the plan's order."""

    entries: tuple[Entry, ...]

    @cached_property
    def session(self) -> bytes:
        """The session's name."""
        return digest("session", self.model_dump_json().encode())

    @cached_property
    def by_site(self) -> dict[str, Entry]:
        """Each site's entry."""
        return {entry.site: entry for entry in self.entries}

    @cached_property
    def signing_keys(self) -> dict[str, Ed25519PublicKey]:
        """The keys of the sites' signatures within the session."""
        read = Ed25519PublicKey.from_public_bytes
        return {entry.site: read(entry.signing) for entry in self.entries}

    @property
    def sites(self) -> tuple[str, ...]:
        """The sites that take part."""
        return tuple(entry.site for entry in self.entries)

    @property
    def terms(self) -> Terms:
        """What all of them signed."""
        return self.entries[0].terms


def check_terms(terms: Terms) -> None:
    """Refuse a threshold that protects nobody."""
    sites, lowest = len(set(terms.sites)), threshold_for(len(terms.sites))
    if sites != len(terms.sites) or not lowest <= terms.threshold <= sites:
        raise RefusedError(
            f"masked sums over {sites} sites with a threshold of {terms.threshold} are refused: "
            f"it must be at least {lowest}, and at most the number of sites"
        )


def entry_of(identity: Identity, keys: SessionKeys, terms: Terms) -> Entry:
    """Sign a session's keys for these terms."""
    bare = Entry.model_construct(
        site=identity.site,
        terms=terms,
        masking=keys.masking.public_key().public_bytes_raw(),
        signing=keys.signing.public_key().public_bytes_raw(),
        nonce=secrets.token_bytes(NONCE_BYTES),
        certificate=identity.certificate_bytes,
        signature=b"",
    )
    return bare.model_copy(update={"signature": identity.sign(bare.signed)})


def entry_from_bytes(message: object, site: str) -> Entry:
    """Read one site's entry."""
    what = "keys for masked sums"
    entry: Entry = record_from_bytes(message, Entry, MAX_ROSTER_BYTES, site, what)
    if entry.site != site:
        raise RefusedError(f"{site} sent keys of '{entry.site[:100]}'; refused")
    return entry


def roster_from_bytes(message: object, sender: str) -> Roster:
    """Read a roster; nothing in it has been checked."""
    what = "list of keys for masked sums"
    roster: Roster = record_from_bytes(message, Roster, MAX_ROSTER_BYTES, sender, what)
    return roster


def check_roster(roster: Roster, terms: Terms, authority: Authority) -> None:
    """Refuse a roster that has a made-up site, a second key, other terms or too few sites."""
    known = set(terms.sites)
    seen: set[str] = set()
    keys: set[bytes] = set()
    for entry in roster.entries:
        if entry.site not in known:
            raise RefusedError(f"the keys of '{entry.site[:100]}' are of no site of the plan")
        if entry.site in seen:
            raise RefusedError(f"there are two keys of '{entry.site}'; refused")
        _check_entry(entry, terms, authority)
        if entry.masking in keys or entry.signing in keys:
            raise RefusedError(f"the key of '{entry.site}' is another site's, too; refused")
        seen.add(entry.site)
        keys |= {entry.masking, entry.signing}
    if len(seen) < terms.threshold:
        raise RefusedError(
            f"keys of {len(seen)} sites, at least {terms.threshold} are needed; refused"
        )


def _check_entry(entry: Entry, terms: Terms, authority: Authority) -> None:
    certificate = authority.check(entry.certificate, entry.site)
    try:
        check_signature(certificate, entry.signature, entry.signed)
    except InvalidSignature as error:
        raise RefusedError(f"the keys of '{entry.site}' are not signed by it; refused") from error
    for name in ("run", "plan", "sites", "threshold"):
        theirs, ours = getattr(entry.terms, name), getattr(terms, name)
        if theirs != ours:
            raise RefusedError(
                f"'{entry.site}' received another {name} ({_short(theirs)}) than this site "
                f"({_short(ours)}); refused"
            )


def _short(value: int | str | Sequence[str]) -> str:
    return str(value if isinstance(value, int | str) else ", ".join(value))[:100]
