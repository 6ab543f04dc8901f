"""`federation.toml`: where the server is, which sites take part, and who may do what."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from fedminmax.config.messages import STRICT, read_toml, validated
from fedminmax.core.errors import InputError
from fedminmax.core.files import write_json

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
