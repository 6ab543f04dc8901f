"""A run over a network, as its folder records it, so that a later call can continue the run.

The folder belongs to one configuration and one set of sites; the waiting times may change.
"""

import hashlib
import re
import secrets
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter

from fedminmax import __version__
from fedminmax.config.file_format import changes_between
from fedminmax.config.read import NO_OVERRIDES, Overrides, TableConfig, read_config
from fedminmax.core.errors import InputError
from fedminmax.core.files import write_text
from fedminmax.data.tables.sources import read_source
from fedminmax.network.site.settings import SiteSettings
from fedminmax.network.wire.codec import adapter_of, read_record
from fedminmax.network.wire.plan import (
    MIN_MASKED_SITES,
    NetworkPlan,
    noise_fault,
    plan_of_config,
    privacy_fault,
    secure_aggregation_fault,
)
from fedminmax.network.wire.site_rules import MINIMUM_SITES, SiteRules
from fedminmax.runs.folder import (
    BASELINE_FOLDER,
    CONFIG_FILE,
    RECORD_FILE,
    claim_folder,
    claim_run,
    read_results,
)

NETWORK_FOLDER = "federation"
# Where the participants of a local federation keep what they need to continue.
RESUME_FOLDER = "memory"
# The digest of the tables of a run on one machine.
TABLES_FILE = "tables.txt"
NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9-]+")


@dataclass(frozen=True)
class FederationRun:
    """One run: its name at the server, its configuration and kit, and the sites that take part.

    Without a kit, server and sites are processes of this machine. ``secure_aggregation`` is None
    until it is decided.
    """

    run: str
    config: Path
    _: KW_ONLY
    kit: Path | None
    sites: tuple[str, ...]
    site_rules: SiteRules
    overrides: Overrides = NO_OVERRIDES
    settings: tuple[str, ...] = ()

    def read_config(self) -> TableConfig:
        """Read the configuration, with the options of the command applied."""
        config = self.overrides.apply(read_config(self.config, self.settings))
        if self.kit is not None:
            check_for_sites(config)
        return config


def check_for_sites(config: TableConfig) -> None:
    """Refuse a configuration whose privacy guarantee cannot be kept between real sites."""
    if config.privacy is not None and config.privacy.limit is not None:
        raise InputError(
            "[privacy] limit is kept beside the files that this computer reads, and between sites "
            "each has its own ('fedminmax site check --max-epsilon'); remove it"
        )
    _check_promise(plan_of_config(config, "", (), SiteRules()))


def _check_promise(plan: NetworkPlan) -> None:
    fault = privacy_fault(plan)
    if fault is not None:
        raise InputError(f"[privacy]: {fault}")


def plan_of(run: FederationRun, config: TableConfig) -> NetworkPlan:
    """Return the plan of this run; refuse one whose sums cannot be masked as it asks for."""
    plan = plan_of_config(config, run.run, run.sites, run.site_rules)
    _check_promise(plan)
    fault = secure_aggregation_fault(plan)
    if fault is not None:
        raise InputError(
            f"secure_aggregation: {fault}; correct that, or write secure_aggregation = false in "
            "[federation] of the configuration: the server then sees every site's replies, and "
            "every site has to check it again"
        )
    fault = noise_fault(plan)
    if fault is not None:
        raise InputError(f"[privacy]: {fault}")
    return plan


def decide_masking(
    folder: Path, run: FederationRun, config: TableConfig, *, default: bool
) -> FederationRun:
    """Decide whether sums are masked, if neither the call nor the configuration says it.

    A run that began keeps what it began with, whatever the default is now.
    """
    requested = config.secure_aggregation
    if requested is None and (folder / NETWORK_FOLDER / RECORD_FILE).exists():
        requested = read_federation_run(folder).overrides.secure_aggregation
    masked = default if requested is None else requested
    return replace(run, overrides=replace(run.overrides, secure_aggregation=masked))


def mask_if_possible(
    folder: Path, run: FederationRun, config: TableConfig
) -> tuple[FederationRun, str | None]:
    """Mask sums on one machine, too, unless the user forbids it or the plan cannot be masked.

    Also return why they cannot, if that is not simply because of too few sites.
    """
    masked = replace(config, secure_aggregation=True)
    fault = secure_aggregation_fault(plan_of_config(masked, "", run.sites, run.site_rules))
    decided = decide_masking(folder, run, config, default=fault is None)
    is_told = not decided.overrides.secure_aggregation and len(run.sites) >= MIN_MASKED_SITES
    return decided, fault if is_told else None


def open_federation_run(folder: Path, record: FederationRun) -> FederationRun:
    """Claim the folder for this run, or refuse it; the run keeps the name of an earlier call."""
    plan = plan_of(replace(record, run="", site_rules=SiteRules()), record.read_config())
    identity = adapter_of(NetworkPlan).dump_python(plan, mode="json")
    claim_folder(folder, {"version": __version__, "configuration": identity})
    path = folder / NETWORK_FOLDER / RECORD_FILE
    with claim_run(folder) as ours:
        if not ours:
            raise InputError(f"another process is opening {folder}; try again")
        name = (
            name_of_run(folder)
            or f"{slug(record.config.stem)[:40] or 'run'}-{secrets.token_hex(4)}"
        )
        named = replace(record, run=name)
        files = {path: TypeAdapter(FederationRun).dump_json(named, indent=2).decode() + "\n"}
        for own in (folder, folder / BASELINE_FOLDER)[: len(plan.runs) or len(plan.audit)]:
            files[own / CONFIG_FILE] = record.read_config().text
        finished = read_results(folder) is not None
        for file, text in files.items():
            # A finished run keeps the configuration that produced its results.
            if not finished or not file.exists():
                write_text(file, text)
    return named


def read_federation_run(folder: Path) -> FederationRun:
    """Read a folder's record."""
    path = folder / NETWORK_FOLDER / RECORD_FILE
    record = read_record(path, FederationRun, "start a new run in another folder")
    if record is None:
        raise InputError(
            f"{folder} has no run over a network; give a folder of 'fedminmax federation run'"
        )
    return record


def name_of_run(folder: Path) -> str:
    """Return the name of the run that began in this folder; none if none did."""
    begun = (folder / NETWORK_FOLDER / RECORD_FILE).exists()
    return read_federation_run(folder).run if begun else ""


def slug(name: str) -> str:
    """Return a name reduced to letters, digits and -.

    >>> slug("St. Mary's (Ward 2)")
    'St-Mary-s-Ward-2'
    """
    return NOT_IN_A_NAME.sub("-", name).strip("-")


def check_same_tables(folder: Path, config: TableConfig) -> None:
    """Refuse a folder whose run had other tables: here all of them are known."""
    path, here = folder / NETWORK_FOLDER / TABLES_FILE, _digest_of_tables(config)
    if path.exists() and path.read_text(encoding="utf-8").strip() != here:
        raise InputError(
            f"{folder} has a run on other tables: a site's file has changed since; choose "
            "another folder with --out"
        )
    if not path.exists() and read_results(folder) is None:
        write_text(path, f"{here}\n")


def _digest_of_tables(config: TableConfig) -> str:
    """Return a digest of all files, with whose they are."""
    digest = hashlib.sha256()
    for source in (*config.training, *config.test):
        digest.update(
            f"{source.owner}:{hashlib.sha256(source.path.read_bytes()).hexdigest()}".encode()
        )
    return digest.hexdigest()[:16]


def settings_of_sites(config: TableConfig) -> dict[str, SiteSettings]:
    """Return the settings of each site of the configuration."""
    sites: dict[str, SiteSettings] = {}
    for source in config.training:
        data = source.path.absolute()
        if source.owner is not None:
            changes = changes_between(config.format, source.format or config.format)
            sites[source.owner] = SiteSettings(data, owner=source.owner, format=changes)
            continue
        for part in read_source(source, config).parts:
            sites[part.owner] = SiteSettings(data, owner=part.owner, site_column=config.site_column)
    # A federation of one site is the user's own choice here.
    minimum = min(MINIMUM_SITES, len(sites))
    settings_of = [replace(settings, minimum_sites=minimum) for settings in sites.values()]
    names = [slug(site).lower() for site in sites]
    if len({*names, "", "server", "localhost"}) < len(names) + 3:
        names = [f"site-{number}" for number in range(1, len(names) + 1)]
    return dict(zip(names, settings_of, strict=True))
