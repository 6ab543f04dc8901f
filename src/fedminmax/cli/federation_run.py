"""`fedminmax federation run | resume | stop`: the coordinator's side of a run between sites."""

from dataclasses import dataclass
from pathlib import Path

from fedminmax.cli.federation_follow import follow
from fedminmax.cli.say import say
from fedminmax.cli.trained_table import print_trained
from fedminmax.core.errors import InputError
from fedminmax.federation.federation_file import read_sites_of
from fedminmax.federation.flare_coordinator import RESULTS, Coordinator
from fedminmax.federation.network_plan import SiteRules
from fedminmax.federation.participants import Elsewhere
from fedminmax.report.table_results import read_results
from fedminmax.studies.federation_record import (
    PLACE,
    FederationRecord,
    open_federation_run,
    plan_of,
    read_federation_record,
)
from fedminmax.studies.network_folder import collect_network_run
from fedminmax.studies.table_runs import BASELINE_FOLDER


@dataclass(frozen=True)
class RunRequest:
    """What one call is to do; ``wait`` is how long to wait for server and sites, in seconds."""

    config: Path
    kit: Path
    folder: Path
    sites: tuple[str, ...] | None
    rounds: int | None
    site_rules: SiteRules
    wait: float
    validation: float | None
    patience: int | None
    compress: bool = False
    gap: float | None = None
    certify: bool = False


def run_federation(request: RunRequest) -> None:
    """Begin a run, or go on with the one that this folder has."""
    known = read_sites_of(request.kit)
    sites = request.sites or known
    for site in sites:
        if site not in known:
            raise InputError(f"site '{site}' is not in this federation: {', '.join(known)}")
        if sites.count(site) > 1:
            raise InputError(f"site '{site}' is there twice in --sites; name it once")
    record = FederationRecord(
        "",
        request.config.absolute(),
        request.kit.absolute(),
        sites,
        request.rounds,
        request.site_rules,
        request.validation,
        request.patience,
        request.compress,
        request.gap,
        request.certify,
    )
    _open_and_finish(request.folder, record, request.wait)


def resume_run(folder: Path, wait: float) -> None:
    """Go on with a run, wherever it is."""
    _open_and_finish(folder, read_federation_record(folder), wait)


def stop_run(folder: Path, wait: float) -> None:
    """Stop a run at the server."""
    coordinator = _coordinator(folder, read_federation_record(folder), wait)
    say(f"{coordinator.stop(folder / PLACE)}; 'fedminmax federation resume {folder}' goes on")


def _open_and_finish(folder: Path, record: FederationRecord, wait: float) -> None:
    for source in record.read_config().test:
        if not source.path.is_file():
            raise InputError(f"test file {source.path} does not exist; give it, or remove it")
    _finish(folder, open_federation_run(folder, record), wait)


def _finish(folder: Path, record: FederationRecord, wait: float) -> None:
    config = record.read_config()
    place = folder / PLACE
    if read_results(folder) is None:
        coordinator = _coordinator(folder, record, wait)
        plan = plan_of(record, config)
        try:
            follow(coordinator.run(plan, place), plan)
        except KeyboardInterrupt:
            say(
                f"the run goes on at the server; 'fedminmax federation resume {folder}' follows "
                f"it, 'fedminmax federation stop {folder}' ends it"
            )
            raise
        collect_network_run(place / RESULTS, plan, config, folder)
    print_finished(folder)


def print_finished(folder: Path) -> None:
    """Print the table of a finished run and its baseline."""
    results = [read_results(folder), read_results(folder / BASELINE_FOLDER)]
    print_trained(folder, [own for own in results if own is not None])


def _coordinator(folder: Path, record: FederationRecord, wait: float) -> Coordinator:
    if record.kit is None:
        raise InputError(
            f"{folder} is a run of 'fedminmax federation local', which ends with its command; "
            "call that again to go on"
        )
    return Coordinator(record.kit, Elsewhere(), wait)
