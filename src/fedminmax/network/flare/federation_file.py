"""`federation.toml`: where the server is, which sites take part, and who may do what; their keys.

A plan names its sites. A site that insists on company must know that the others exist, and nobody
may invent one later: each kit holds the list of all sites, signed with the key that certified them
(RSA-PSS, RFC 8017).

A site can make its own key, so that nobody else ever has it: it writes a key and a request for a
certificate (PKCS #10, RFC 2986), and sends the request. Its kit then holds the certificate that the
federation's authority made for that request, and no key: the site adds its own. So the maker of the
kits cannot speak as the site, unless it certifies another key in the site's name.
"""

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509 import load_pem_x509_certificate
from pydantic import Field, TypeAdapter, ValidationError

from fedminmax.config.messages import STRICT, read_toml, validated
from fedminmax.core.errors import InputError
from fedminmax.core.files import write_bytes, write_json, write_secret
from fedminmax.network.secure.session import read_identity
from fedminmax.network.site.settings import SETTINGS_FILE, read_site_settings

SITE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,62}")
PERSON = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")
SITES_FILE = "sites.json"
DEFAULTS_FILE = "federation.json"
ROLES = {"coordinator": "project_admin", "member": "member"}


@dataclass(frozen=True)
class ServerSection:
    """[server]: its address as the sites see it; loopback by default."""

    host: Annotated[str, Field(min_length=1)] = "localhost"
    port: Annotated[int, Field(ge=1, le=65535)] = 8002


@dataclass(frozen=True, kw_only=True)
class FederationSections:
    """The whole file."""

    __pydantic_config__ = STRICT

    server: ServerSection = ServerSection()
    sites: Annotated[tuple[str, ...], Field(min_length=1)]
    people: Mapping[str, Literal["coordinator", "member"]]


@dataclass(frozen=True)
class FederationFile:
    """A checked federation.toml; roles are those of the engine."""

    host: str
    port: int
    sites: tuple[str, ...]
    people: dict[str, str]


def read_federation_file(path: Path) -> FederationFile:
    """Read and check a federation's description."""
    if not path.is_file():
        raise InputError(f"{path} does not exist; write [server], sites and [people] there")
    _, content = read_toml(path)
    try:
        sections = validated(content, FederationSections)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    _check(sections, path)
    people = {person: ROLES[role] for person, role in sections.people.items()}
    return FederationFile(sections.server.host, sections.server.port, sections.sites, people)


def write_sites_of(kit: Path, sites: Sequence[str]) -> None:
    """Note in a person's kit which sites there are."""
    write_json(kit / SITES_FILE, list(sites))


def read_sites_of(kit: Path) -> tuple[str, ...]:
    """Return the sites of the federation that a person's kit belongs to."""
    path = kit / SITES_FILE
    if not path.is_file():
        raise InputError(
            f"{kit} is not a person's kit; give people/NAME from 'fedminmax federation create'"
        )
    try:
        return tuple(TypeAdapter(list[str]).validate_json(path.read_bytes()))
    except ValidationError as error:
        raise InputError(f"{path} is damaged; copy the kit again") from error


def write_masked_by_default(kit: Path, *, masked: bool) -> None:
    """Note in a person's or a site's kit whether sums are masked if a configuration is silent."""
    write_json(kit / DEFAULTS_FILE, {"secure_aggregation": masked})


def masked_by_default(kit: Path) -> bool:
    """Return whether sums are masked if a configuration says nothing."""
    path = kit / DEFAULTS_FILE
    try:
        return TypeAdapter(dict[Literal["secure_aggregation"], bool]).validate_json(
            path.read_bytes()
        )["secure_aggregation"]
    except (OSError, ValidationError, KeyError) as error:
        raise InputError(f"{path} is missing or damaged; copy the kit again") from error


def _check(sections: FederationSections, path: Path) -> None:
    for site in sections.sites:
        if SITE_NAME.fullmatch(site) is None or site in ("server", sections.server.host):
            raise InputError(
                f"{path}: site '{site}' is not a name; use letters, digits and -, not the server's"
            )
        if sections.sites.count(site) > 1:
            raise InputError(f"{path}: site '{site}' is there twice; remove one of them")
    for person in sections.people:
        if PERSON.fullmatch(person) is None:
            raise InputError(f"{path}: [people] '{person}' is not of the form name@place.org")
    if "coordinator" not in sections.people.values():
        raise InputError(f'{path}: [people] has no "coordinator"; name who may start runs')


ROSTER_FILE = "roster.json"
AUTHORITY_CERTIFICATE = "rootCA.pem"
# What the engine's provisioning keeps of the authority.
AUTHORITY_FILE = "cert.json"
PADDING = padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.MAX_LENGTH)


def write_rosters(authority: Path, sites: Sequence[str], kits: Iterable[Path]) -> None:
    """Sign the list of sites with the authority's key and put it into these kits."""
    key, _ = _read_authority(authority)
    signature = key.sign(_signed(sites), PADDING, hashes.SHA256())
    roster = {"sites": list(sites), "signature": b64encode(signature).decode()}
    for kit in kits:
        write_json(kit / "startup" / ROSTER_FILE, roster)


def _read_authority(authority: Path) -> tuple[rsa.RSAPrivateKey, dict[str, Any]]:
    """Return the authority's key, and all that the engine's provisioning keeps of it."""
    content = json.loads((authority / AUTHORITY_FILE).read_text(encoding="utf-8"))
    key = serialization.load_pem_private_key(content["root_pri_key"].encode(), password=None)
    if not isinstance(key, rsa.RSAPrivateKey):
        raise InputError("the engine made an authority without an RSA key; use nvflare 2.9")
    return key, content


def is_ours(kit: Path) -> bool:
    """Return whether we made this kit; another one is as NVIDIA FLARE has provisioned it."""
    return (kit / "startup" / ROSTER_FILE).exists()


def read_roster(kit: Path) -> tuple[str, ...]:
    """Return the sites of this kit's federation; in another's kit, those that the site lists."""
    path, own = kit / "startup" / ROSTER_FILE, kit / "local" / SETTINGS_FILE
    if not path.exists() and own.exists():
        sites = read_site_settings(own).sites
        if sites is not None:
            return sites
        raise InputError(
            f"{kit} has no signed list of its federation's sites; if NVIDIA FLARE has provisioned "
            f'it, name them in {own}: "sites": ["NAME", ...]'
        )
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        listed = [str(site) for site in content["sites"]]
        _verify(b64decode(content["signature"]), listed, kit)
    except (ValueError, KeyError, TypeError, OSError, InvalidSignature) as error:
        raise InputError(
            f"{path} is missing, damaged or not signed by this federation's authority; copy the "
            "kit again"
        ) from error
    return tuple(listed)


def _verify(signature: bytes, sites: Sequence[str], kit: Path) -> None:
    authority = (kit / "startup" / AUTHORITY_CERTIFICATE).read_bytes()
    key = load_pem_x509_certificate(authority).public_key()
    if not isinstance(key, rsa.RSAPublicKey):
        raise InvalidSignature
    key.verify(signature, _signed(sites), PADDING, hashes.SHA256())


def _signed(sites: Sequence[str]) -> bytes:
    """Return what the signature is of."""
    return b"fedminmax roster\n" + json.dumps(sorted(sites)).encode()


# As the engine's own keys.
KEY_BITS = 2048
PUBLIC_EXPONENT = 65537
KEY_FILE = "client.key"
CERTIFICATE_FILE = "client.crt"


def write_request(site: str, folder: Path) -> tuple[Path, Path]:
    """Make a site's key and its request for a certificate; nothing is written over."""
    if SITE_NAME.fullmatch(site) is None:
        raise InputError(f"'{site[:100]}' is not a site's name; use letters, digits and -")
    key_path, request_path = folder / f"{site}.key", folder / f"{site}.csr"
    for path in (key_path, request_path):
        if path.exists():
            raise InputError(f"{path} exists; give another folder with --out: keys are made once")
    key = rsa.generate_private_key(PUBLIC_EXPONENT, KEY_BITS)
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, site)])
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject)
    request = builder.sign(key, hashes.SHA256())
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    write_secret(key_path, secret)
    write_bytes(request_path, request.public_bytes(serialization.Encoding.PEM))
    return key_path, request_path


def read_requests(folder: Path, sites: Iterable[str]) -> dict[str, x509.CertificateSigningRequest]:
    """Read the requests of all these sites, NAME.csr each."""
    found = {site: _read_request(folder / f"{site}.csr", site) for site in sites}
    keys: dict[bytes, str] = {}
    for site, request in found.items():
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        own = request.public_key().public_bytes(serialization.Encoding.DER, form)
        if own in keys:
            raise InputError(f"the requests of '{keys[own]}' and '{site}' have the same key")
        keys[own] = site
    return found


def _read_request(path: Path, site: str) -> x509.CertificateSigningRequest:
    advice = f"ask {site} for what 'fedminmax site request {site}' writes"
    if not path.is_file():
        raise InputError(f"{path} does not exist; {advice}")
    try:
        request = x509.load_pem_x509_csr(path.read_bytes())
        names = request.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
        valid = request.is_signature_valid
    except (ValueError, TypeError, InvalidSignature) as error:
        raise InputError(f"{path} is not a certificate request; {advice}") from error
    if not valid:
        raise InputError(f"{path} is not signed with its own key; {advice}")
    if [str(name.value) for name in names] != [site]:
        found = ", ".join(str(name.value) for name in names)[:100]
        raise InputError(f"{path} is the request of '{found}'; {advice}")
    key = request.public_key()
    if not isinstance(key, rsa.RSAPublicKey) or key.key_size < KEY_BITS:
        raise InputError(f"{path} has no RSA key of at least {KEY_BITS} bits; {advice}")
    return request


def certify_requests(
    authority: Path,
    kits: Mapping[str, Path],
    requests: Mapping[str, x509.CertificateSigningRequest],
) -> None:
    """Put certificates for these requests into new kits, and drop the keys that came with them."""
    signer, state = _read_authority(authority)
    for site, request in requests.items():
        startup = kits[site] / "startup"
        made = x509.load_pem_x509_certificate((startup / CERTIFICATE_FILE).read_bytes())
        own = _with_key_of(request, made, signer).public_bytes(serialization.Encoding.PEM)
        (startup / KEY_FILE).unlink()
        write_bytes(startup / CERTIFICATE_FILE, own)
        state[site] = {"cert": own.decode()}
    write_json(authority / AUTHORITY_FILE, state)


def _with_key_of(
    request: x509.CertificateSigningRequest, made: x509.Certificate, signer: rsa.RSAPrivateKey
) -> x509.Certificate:
    """Return the engine's certificate, but for the request's key."""
    key = request.public_key()
    builder = (
        x509.CertificateBuilder()
        .subject_name(made.subject)
        .issuer_name(made.issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(made.not_valid_before_utc)
        .not_valid_after(made.not_valid_after_utc)
    )
    for extension in made.extensions:
        value = extension.value
        if isinstance(value, x509.SubjectKeyIdentifier):
            value = x509.SubjectKeyIdentifier.from_public_key(key)
        builder = builder.add_extension(value, critical=extension.critical)
    return builder.sign(signer, hashes.SHA256())


def check_own_key(kit: Path, site: str) -> None:
    """Refuse a kit without its site's key, or with another's."""
    key, certificate = kit / "startup" / KEY_FILE, kit / "startup" / CERTIFICATE_FILE
    if not key.exists():
        raise InputError(
            f"{key} does not exist; copy there the {site}.key that 'fedminmax site request' made"
        )
    read_identity(site, key, certificate)
