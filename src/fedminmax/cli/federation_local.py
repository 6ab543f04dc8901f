"""`fedminmax federation local`: a whole federation on this machine, for one run."""

import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from fedminmax.cli.federation_follow import follow
from fedminmax.cli.federation_run import print_finished
from fedminmax.cli.say import say
from fedminmax.core.counted import counted
from fedminmax.core.errors import InputError
from fedminmax.data.tables.config import TableConfig
from fedminmax.data.tables.file_format import changes_between
from fedminmax.data.tables.sources import read_source
from fedminmax.federation.flare_local import local_federation
from fedminmax.federation.network_plan import MINIMUM_SITES, SiteRules
from fedminmax.federation.site_settings import SiteSettings
from fedminmax.report.table_results import read_results
from fedminmax.studies.federation_record import (
    PLACE,
    FederationRecord,
    open_federation_run,
    plain_name,
    plan_of,
)
from fedminmax.studies.network_folder import collect_network_run

MEMORY = "memory"


@dataclass(frozen=True)
class LocalRequest:
    """What one call is to do."""

    config: Path
    folder: Path
    sites: int | None
    rounds: int | None
    site_rules: SiteRules
    validation: float | None
    patience: int | None
    compress: bool = False
    gap: float | None = None
    certify: bool = False


def run_local_federation(request: LocalRequest) -> None:
    """Start everything, run the method, collect its results and end everything."""
    blank = FederationRecord(
        "",
        request.config.absolute(),
        None,
        (),
        request.rounds,
        request.site_rules,
        request.validation,
        request.patience,
        request.compress,
        request.gap,
        request.certify,
    )
    config = blank.read_config()
    settings = _settings_of_sites(config)
    if request.sites not in (None, len(settings)):
        raise InputError(
            f"--sites {request.sites}, but {request.config} has "
            f"{counted(len(settings), 'holder')}, "
            "and each is a site; leave --sites out, or change the holders"
        )
    record = open_federation_run(request.folder, replace(blank, sites=tuple(settings)))
    if read_results(request.folder) is None:
        _run(request.folder, record, config, settings)
    print_finished(request.folder)


def _run(
    folder: Path, record: FederationRecord, config: TableConfig, settings: dict[str, SiteSettings]
) -> None:
    plan = plan_of(record, config)
    memory = folder / PLACE / MEMORY
    with tempfile.TemporaryDirectory(prefix="fedminmax-") as temporary:
        say(
            f"starting a server and {counted(len(settings), 'site')} ({', '.join(settings)}): "
            "half a minute"
        )
        with local_federation(Path(temporary), settings, memory=memory) as federation:
            follow(federation.run(plan), plan)
            collect_network_run(federation.fetched(plan), plan, config, folder)
    # It was for going on, and the run is done.
    shutil.rmtree(memory)


def _settings_of_sites(config: TableConfig) -> dict[str, SiteSettings]:
    """Give every holder of the configuration a site of its own."""
    holders: dict[str, SiteSettings] = {}
    for source in config.training:
        data = source.path.absolute()
        if source.owner is not None:
            changes = changes_between(config.format, source.format or config.format)
            holders[source.owner] = SiteSettings(data, owner=source.owner, format=changes)
            continue
        for part in read_source(source, config).parts:
            holders[part.owner] = SiteSettings(
                data, owner=part.owner, holder_column=config.holder_column
            )
    # A federation of one holder is the user's own choice here.
    minimum = min(MINIMUM_SITES, len(holders))
    own = [replace(settings, minimum_sites=minimum) for settings in holders.values()]
    names = [plain_name(holder).lower() for holder in holders]
    if len({*names, "", "server", "localhost"}) < len(names) + 3:
        names = [f"site-{number}" for number in range(1, len(names) + 1)]
    return dict(zip(names, own, strict=True))
