"""`federation.toml`: where the server is, which sites take part, and who may do what.

A plan names its sites. A site that insists on company must know that the others exist, and nobody
may invent one later: each kit holds the list of all sites, signed with the key that certified them
(RSA-PSS, RFC 8017).
"""

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509 import load_pem_x509_certificate
from pydantic import Field, TypeAdapter, ValidationError

from fedminmax.config.messages import STRICT, read_toml, validated
from fedminmax.core.errors import InputError
from fedminmax.core.files import write_json
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
    content = json.loads((authority / AUTHORITY_FILE).read_text(encoding="utf-8"))
    key = serialization.load_pem_private_key(content["root_pri_key"].encode(), password=None)
    if not isinstance(key, rsa.RSAPrivateKey):
        raise InputError("the engine made an authority without an RSA key; use nvflare 2.9")
    signature = key.sign(_signed(sites), PADDING, hashes.SHA256())
    roster = {"sites": list(sites), "signature": b64encode(signature).decode()}
    for kit in kits:
        write_json(kit / "startup" / ROSTER_FILE, roster)


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
