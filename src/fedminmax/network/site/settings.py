"""A site's own settings: where its table is and what it allows. They never leave the site."""

from dataclasses import KW_ONLY, dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Annotated

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config

from fedminmax.config.file_format import NO_CHANGES, FormatChanges
from fedminmax.core.errors import InputError
from fedminmax.network.wire.site_rules import MINIMUM_SITES

SETTINGS_FILE = "fedminmax.json"


class SmallGroups(Enum):
    """How a site handles groups that are too small to disclose."""

    REFUSE = "refuse"
    MERGE = "merge"


# A misspelled name must not leave a site without its intended policy.
@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True)
class SiteSettings:
    """The table, and this site's policy.

    ``plan`` is the digest of what the site agreed to take part in, for at most ``max_rounds``
    rounds in each run; ``columns`` are the columns that may be read; None allows any. A group with
    fewer training rows than ``suppress_below`` is not disclosed: depending on ``small_groups``, the
    site refuses to take part, or merges such groups into one. The site does not take part in runs
    that may continue with fewer than ``minimum_sites`` sites; it takes part in at most ``max_runs``
    runs on the same table, and where sums are not masked answers at most ``max_answers`` different
    requests about the same round. With ``allow_other_sites`` masked totals on the same table may be
    over sets of sites that differ in few of them, about which the difference tells. All runs with a
    privacy guarantee on the same table may spend ``max_epsilon`` together; None sets no limit.
    ``sites`` are those of the federation, where its start-up kit has no signed list of them.
    ``site_column`` and ``owner`` select this site's rows if one file holds those of several.
    ``format`` has the differences between this site's file and the configuration;
    ``agreed_format`` has those that the configuration itself states for this site.
    """

    data: Path
    _: KW_ONLY
    columns: tuple[str, ...] | None = None
    plan: str | None = None
    max_rounds: int | None = None
    suppress_below: Annotated[int, Field(ge=1)] = 1
    small_groups: SmallGroups = SmallGroups.REFUSE
    minimum_sites: Annotated[int, Field(ge=1)] = MINIMUM_SITES
    max_runs: Annotated[int, Field(ge=1)] = 20
    max_answers: Annotated[int, Field(ge=1)] = 3
    allow_other_sites: bool = False
    max_epsilon: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    sites: tuple[str, ...] | None = None
    owner: str | None = None
    site_column: str | None = None
    format: FormatChanges = NO_CHANGES
    agreed_format: FormatChanges = NO_CHANGES

    @property
    def file_format(self) -> FormatChanges:
        """How the format of this site's file differs from that of the other files."""
        return self.format.over(self.agreed_format)


def read_site_settings(path: Path) -> SiteSettings:
    """Read a site's settings; a relative data path is relative to their folder."""
    if not path.is_file():
        raise InputError(f"{path} does not exist; run 'fedminmax site check' first")
    try:
        settings = TypeAdapter(SiteSettings).validate_json(path.read_bytes())
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        raise InputError(f"{path} is not valid ({where or 'not JSON'}); correct it") from error
    return replace(settings, data=path.parent / settings.data)


def site_settings_text(settings: SiteSettings) -> str:
    """Write a site's settings as JSON."""
    return TypeAdapter(SiteSettings).dump_json(settings, indent=2).decode() + "\n"
