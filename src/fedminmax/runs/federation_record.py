"""A run folder's record of its run over a network, so that a later call can continue the run.

The folder belongs to one configuration and one set of sites; the waiting times may change.
"""

import re
import secrets
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter

from fedminmax import __version__
from fedminmax.config.overrides import NO_OVERRIDES, Overrides
from fedminmax.config.read import TableConfig, read_config
from fedminmax.core.errors import InputError
from fedminmax.core.files import write_text
from fedminmax.network.wire.plan import NetworkPlan, plan_adapter, plan_of_config
from fedminmax.network.wire.plan_checks import noise_fault, privacy_fault, secure_aggregation_fault
from fedminmax.network.wire.site_rules import SiteRules
from fedminmax.runs.folder import (
    BASELINE_FOLDER,
    CONFIG_FILE,
    RECORD_FILE,
    claim_folder,
    claim_run,
    read_results,
)

PLACE = "federation"
# Where the participants of a local federation keep what they need to continue.
MEMORY = "memory"
NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9-]+")


@dataclass(frozen=True)
class FederationRecord:
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

    def read_config(self) -> TableConfig:
        """Read the configuration, with the options of the command applied."""
        config = self.overrides.apply(read_config(self.config))
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


def plan_of(record: FederationRecord, config: TableConfig) -> NetworkPlan:
    """Return the plan of this run; refuse one whose sums cannot be masked as it asks for."""
    plan = plan_of_config(config, record.run, record.sites, record.site_rules)
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


def with_masks_decided(
    folder: Path, record: FederationRecord, *, default: bool
) -> FederationRecord:
    """Decide whether sums are masked, if neither the call nor the configuration says it.

    A run that began keeps what it began with, whatever the default is now.
    """
    requested = record.overrides.secure_aggregation
    if requested is None:
        # Whether a privacy guarantee can be kept depends on what is decided here.
        requested = read_config(record.config).secure_aggregation
    if requested is None and (folder / PLACE / RECORD_FILE).exists():
        requested = read_federation_record(folder).overrides.secure_aggregation
    masked = default if requested is None else requested
    return replace(record, overrides=replace(record.overrides, secure_aggregation=masked))


def open_federation_run(folder: Path, record: FederationRecord) -> FederationRecord:
    """Claim the folder for this run, or refuse it; the run keeps the name of an earlier call."""
    plan = plan_of(replace(record, run="", site_rules=SiteRules()), record.read_config())
    identity = plan_adapter().dump_python(plan, mode="json")
    claim_folder(folder, {"version": __version__, "configuration": identity})
    path = folder / PLACE / RECORD_FILE
    with claim_run(folder) as ours:
        if not ours:
            raise InputError(f"another process is opening {folder}; try again")
        name = name_of_run(folder) or _new_name(record.config)
        named = replace(record, run=name)
        files = {path: TypeAdapter(FederationRecord).dump_json(named, indent=2).decode() + "\n"}
        for own in (folder, folder / BASELINE_FOLDER)[: len(plan.runs)]:
            files[own / CONFIG_FILE] = record.config.read_text(encoding="utf-8")
        finished = read_results(folder) is not None
        for file, text in files.items():
            # A finished run keeps the configuration that produced its results.
            if not finished or not file.exists():
                write_text(file, text)
    return named


def read_federation_record(folder: Path) -> FederationRecord:
    """Read a folder's record."""
    path = folder / PLACE / RECORD_FILE
    if not path.is_file():
        raise InputError(
            f"{folder} has no run over a network; give a folder of 'fedminmax federation run'"
        )
    try:
        return TypeAdapter(FederationRecord).validate_json(path.read_bytes())
    except ValueError as error:
        raise InputError(f"{path} is damaged; start a new run in another folder") from error


def name_of_run(folder: Path) -> str:
    """Return the name of the run that began in this folder; none if none did."""
    begun = (folder / PLACE / RECORD_FILE).exists()
    return read_federation_record(folder).run if begun else ""


def plain_name(name: str) -> str:
    """Return a name reduced to letters, digits and -.

    >>> plain_name("St. Mary's (Ward 2)")
    'St-Mary-s-Ward-2'
    """
    return NOT_IN_A_NAME.sub("-", name).strip("-")


def _new_name(config: Path) -> str:
    """Return a name that no other run at the server has."""
    stem = plain_name(config.stem)[:40] or "run"
    return f"{stem}-{secrets.token_hex(4)}"
