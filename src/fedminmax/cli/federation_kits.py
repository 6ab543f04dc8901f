"""`fedminmax federation create`: a folder with a kit for every participant.

Kits of three sites or more say that sums are masked unless the agreed configuration forbids it, to
the coordinator as to the sites: a site that checked a configuration as masked refuses any other
plan.
"""

import argparse
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fedminmax.cli.options import check_parents
from fedminmax.config.read import Overrides, read_config
from fedminmax.core.errors import InputError
from fedminmax.core.text import counted
from fedminmax.findings.privacy import WITHOUT_AGGREGATION, with_aggregation
from fedminmax.network.flare.federation_file import (
    read_federation_file,
    write_masked_by_default,
    write_sites_of,
)
from fedminmax.network.flare.kits import NO_REQUESTS, provision, site_readme
from fedminmax.network.flare.requests import read_requests
from fedminmax.network.wire.plan import MIN_MASKED_SITES, threshold_for
from fedminmax.network.wire.site_rules import SiteRules
from fedminmax.runs.federation import FederationRun, check_for_sites, plan_of

AGREED_FILE = "fedminmax.toml"


def create_federation(options: argparse.Namespace) -> None:
    """Make the kits in a temporary folder and move them into place, with the configuration.

    With a folder of requests, all sites have made their keys themselves.
    """
    folder, config, requests = options.out, options.config, options.requests
    described = read_federation_file(options.file)
    asked = NO_REQUESTS if requests is None else read_requests(requests, described.sites)
    by_default = len(described.sites) >= MIN_MASKED_SITES
    # The least sites in a total; None if sums are not masked.
    threshold = threshold_for(len(described.sites)) if by_default else None
    if config is not None:
        threshold = _check_agreed(config, described.sites, by_default=by_default)
    if folder.exists():
        raise InputError(f"{folder} exists; give another folder with --out: keys are made once")
    check_parents(folder, "--out")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".kits-") as temporary:
        staged = Path(temporary) / "kits"
        staged.mkdir(mode=0o700)
        made = Path(temporary) / "made"
        host, port = described.host, described.port
        kits = provision(
            made,
            host=host,
            port=port,
            sites=described.sites,
            people=described.people,
            requests=asked,
        )
        kits.server.rename(staged / "server")
        for room, owners in (("sites", kits.sites), ("people", kits.people)):
            (staged / room).mkdir()
            for name, kit in owners.items():
                kit.rename(staged / room / name)
        for person in described.people:
            write_sites_of(staged / "people" / person, described.sites)
        for kit in (*(staged / "sites").iterdir(), *(staged / "people").iterdir()):
            write_masked_by_default(kit, masked=by_default)
        kits.authority.rename(staged / "authority")
        for site in described.sites:
            text = site_readme(
                site, host, port, has_key=site not in asked, masked=threshold is not None
            )
            (staged / "sites" / site / "README.md").write_text(text, encoding="utf-8")
            if config is not None:
                shutil.copyfile(config, staged / "sites" / site / AGREED_FILE)
        staged.rename(folder)
    print(
        f"{folder}: kits for the server, {counted(len(described.sites), 'site')} and "
        f"{counted(len(described.people), 'person', 'people')}; hand over each folder privately"
    )
    print(_masks_of_kits(len(described.sites), threshold))


def _check_agreed(path: Path, sites: Sequence[str], *, by_default: bool) -> int | None:
    """Refuse a configuration that cannot run between these sites; return its masks' threshold."""
    config = read_config(path)
    masked = by_default if config.secure_aggregation is None else config.secure_aggregation
    check_for_sites(replace(config, secure_aggregation=masked))
    record = FederationRun(
        "",
        path,
        kit=None,
        sites=tuple(sites),
        site_rules=SiteRules(),
        overrides=Overrides(secure_aggregation=masked),
    )
    plan = plan_of(record, record.read_config())
    return None if plan.secure_aggregation is None else plan.secure_aggregation.threshold


def _masks_of_kits(sites: int, threshold: int | None) -> str:
    if threshold is not None:
        return (
            f"secure aggregation: {with_aggregation(threshold)}; secure_aggregation = false in "
            "[federation] of the configuration turns it off"
        )
    few = sites < MIN_MASKED_SITES
    too_few = f" (it needs at least {MIN_MASKED_SITES} sites)" if few else ""
    return f"NO secure aggregation: {WITHOUT_AGGREGATION}{too_few}"
