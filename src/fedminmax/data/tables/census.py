"""The rows of a run by site and group: census.json of a run folder, counted from encoded tables."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final, Literal

import torch
from pydantic import BaseModel, Field, ValidationError

if TYPE_CHECKING:
    # The file is read where tables are not installed.
    from fedminmax.data.tables.load import FederatedTables, OwnedExamples

FORMAT: Final = 1
# Files may come from elsewhere: numbers too large to count are damage.
MAX_COUNT = 2**53
Count = Annotated[int, Field(ge=0, le=MAX_COUNT)]


class CensusFile(BaseModel, frozen=True):
    """census.json: rows by site and group; test files may have other owners.

    ``small_groups`` had too few training rows to be trained for. ``validation`` is empty if no
    rows are held out to choose the round by.
    """

    format: Literal[1]
    sites: Annotated[tuple[str, ...], Field(min_length=1)]
    groups: tuple[str, ...]
    small_groups: tuple[str, ...] = ()
    train: tuple[tuple[Count, ...], ...]
    test: tuple[tuple[Count, ...], ...]
    validation: tuple[tuple[Count, ...], ...] = ()
    other_tests: dict[str, tuple[Count, ...]] = {}


def census_of(tables: "FederatedTables") -> CensusFile:
    """Count rows by site and group; test files that no site owns are listed separately."""
    sites, groups = tables.sites, len(tables.group_names)
    others = [part for part in tables.test if part.owner not in sites]
    return CensusFile(
        format=FORMAT,
        sites=sites,
        groups=tables.group_names,
        small_groups=tables.encoding.small_group_names,
        train=tuple(_counts(tables.train, site, groups) for site in sites),
        test=tuple(_counts(tables.test, site, groups) for site in sites),
        validation=tuple(_counts(tables.validation, site, groups) for site in sites)
        if tables.validation
        else (),
        other_tests={part.owner: _counts(others, part.owner, groups) for part in others},
    )


def _counts(parts: "Sequence[OwnedExamples]", owner: str, groups: int) -> tuple[int, ...]:
    counts = torch.zeros(groups, dtype=torch.int64)
    for part in parts:
        if part.owner == owner:
            counts += torch.bincount(part.examples.group, minlength=groups)
    return tuple(int(count) for count in counts)


def first_error(error: ValidationError) -> str:
    """Return the first invalid key of a file, and the reason."""
    details = error.errors()[0]
    key = ".".join(str(part) for part in details["loc"])
    reason = details["msg"].removeprefix("Value error, ")
    return " ".join(f"{key} {reason}".split())
