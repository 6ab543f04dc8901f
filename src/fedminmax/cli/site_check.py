"""`fedminmax site check`: what would leave this site, in plain words."""

from pathlib import Path

from fedminmax.cli.tables import plain_table, wide_console
from fedminmax.core.errors import InputError
from fedminmax.data.tables.config import read_config
from fedminmax.federation.flare_kits import settle_site, site_name
from fedminmax.federation.site_check import agree_to, check_site
from fedminmax.federation.site_settings import SiteSettings, SmallGroups


def check(
    kit: Path, config: Path, data: Path, minimum_group: int, small_groups: SmallGroups
) -> None:
    """Read the table, show what would leave, and note what the site agrees to in its kit."""
    site = site_name(kit)
    if not config.is_file():
        raise InputError(
            f"{config} does not exist; ask the coordinator for the agreed configuration, and put "
            "it there or name it with --config"
        )
    agreed = read_config(config)
    settings = SiteSettings(data.absolute(), minimum_group=minimum_group, small_groups=small_groups)
    settings = agree_to(agreed, settings, site)
    found = check_site(agreed, settings, site)
    settle_site(kit, settings)
    console = wide_console()
    lines = [[name, f"{rows:,}"] for name, rows in found.groups.items()]
    console.print(plain_table(f"Training rows at {site}", ["group", "rows"], lines))
    if found.hidden:
        hidden = ", ".join(f"{name} ({rows:,} rows)" for name, rows in found.hidden.items())
        console.print(f"Merged, and not told by name: {hidden}.", markup=False, highlight=False)
    for words in found.leaves:
        console.print(f"Leaves {site} {words}.", markup=False, highlight=False)
    console.print(
        f"Stays at {site}: every row, the file's name and path, all logs.",
        f"Noted in {kit / 'local'}; to take part: fedminmax site start --kit {kit}",
        sep="\n",
        markup=False,
        highlight=False,
    )
