"""A site's own settings: where its table is and what it allows. They never travel."""

from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from fedminmax.core.errors import InputError

SETTINGS_FILE = "fedminmax.json"


@dataclass(frozen=True)
class SiteSettings:
    """The table, and this site's policy.

    ``columns`` are those that the site agreed to have read; None allows any. A group with fewer
    rows than ``minimum_group`` is not told of: the site refuses to take part. ``holder_column``
    and ``owner`` choose this site's rows where one file holds those of several.
    """

    data: Path
    columns: tuple[str, ...] | None = None
    minimum_group: int = 1
    owner: str | None = None
    holder_column: str | None = None


def read_site_settings(path: Path) -> SiteSettings:
    """Read a site's settings; a relative data path is looked for beside them."""
    if not path.is_file():
        raise InputError(f"{path} does not exist; write this site's settings there")
    try:
        settings = TypeAdapter(SiteSettings).validate_json(path.read_bytes())
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        raise InputError(f"{path} is not valid ({where or 'not JSON'}); correct it") from error
    return SiteSettings(
        path.parent / settings.data,
        settings.columns,
        settings.minimum_group,
        settings.owner,
        settings.holder_column,
    )


def site_settings_text(settings: SiteSettings) -> str:
    """Write a site's settings as JSON."""
    return TypeAdapter(SiteSettings).dump_json(settings, indent=2).decode() + "\n"
