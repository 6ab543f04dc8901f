"""`fedminmax federation`: make kits, run between sites or on one machine, ask for the status.

- `create` makes a folder with a kit for every participant. Kits of three sites or more say that
  sums are masked unless the agreed configuration forbids it, to the coordinator as to the sites: a
  site that checked a configuration as masked refuses any other plan;
- `run`, `resume` and `stop` are the coordinator's side of a run between sites;
- `local` starts a whole federation on this machine, for one run;
- `status` shows the server, its sites and its runs, in a table or as JSON.

During a run each round is shown as it arrives: risks, weights, and which sites answered or did not.
"""

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path

from fedminmax.cli.audit import print_audit
from fedminmax.cli.main import say
from fedminmax.cli.options import check_parents, given, overrides_of
from fedminmax.cli.site import AGREED_FILE
from fedminmax.cli.terminal import display, highest_risks, print_table, wide_console
from fedminmax.cli.trained import print_trained
from fedminmax.config.read import Overrides, TableConfig, read_config
from fedminmax.core.errors import InputError
from fedminmax.core.text import counted, upper_text
from fedminmax.findings.disclosure import WITHOUT_AGGREGATION, guarantee_words, with_aggregation
from fedminmax.methods.card import Weights
from fedminmax.methods.catalogue import CARDS
from fedminmax.network.flare.coordinator import RESULTS, Coordinator
from fedminmax.network.flare.federation_file import (
    masked_by_default,
    read_federation_file,
    read_requests,
    read_sites_of,
    write_masked_by_default,
    write_sites_of,
)
from fedminmax.network.flare.kits import NO_REQUESTS, provision, site_readme
from fedminmax.network.flare.local import local_federation
from fedminmax.network.flare.session import (
    Unsupervised,
    federation_status,
)
from fedminmax.network.server.log import Event, LiveRound, Notice
from fedminmax.network.site.settings import SiteSettings
from fedminmax.network.wire.plan import MIN_MASKED_SITES, NetworkPlan, threshold_for
from fedminmax.network.wire.site_rules import SiteRules
from fedminmax.runs.federation import (
    NETWORK_FOLDER,
    RESUME_FOLDER,
    FederationRun,
    check_for_sites,
    check_same_tables,
    decide_masking,
    mask_if_possible,
    name_of_run,
    open_federation_run,
    plan_of,
    read_federation_run,
    settings_of_sites,
)
from fedminmax.runs.folder import BASELINE_FOLDER, read_results
from fedminmax.runs.network import collect_network_run
from fedminmax.runs.privacy import check_limit, spend, spent_on_files
from fedminmax.training.round_record import RoundRecord


def say_what_protects(plan: NetworkPlan) -> None:
    """Say before the first round whether sums are masked, and what is promised about rows."""
    if plan.secure_aggregation is not None:
        say(f"secure aggregation: {with_aggregation(plan.secure_aggregation.threshold)}")
    else:
        say(f"NO secure aggregation: {WITHOUT_AGGREGATION}")
    if plan.privacy is not None:
        say(f"{guarantee_words(plan.privacy)}; the sites add the noise")


def follow(events: Generator[Event], plan: NetworkPlan) -> None:
    """Show progress; warn once about absent sites and unseen groups.

    Any exception here, such as a closed pipe, closes the events and with them the connection;
    otherwise its threads would keep the command alive forever.
    """
    warned: set[str] = set()
    before = [sum(run.rounds for run in plan.runs[:number]) for number in range(len(plan.runs))]
    work = sum(run.rounds for run in plan.runs)
    with closing(events), display("federation", work) as bars:
        for event in events:
            if isinstance(event, Notice):
                say(event.words)
                continue
            entry = event.round
            bars.describe(_state(plan, event))
            bars.show_work(before[event.run] + entry.round)
            for warning in _warnings(entry, event.groups):
                if warning not in warned:
                    warned.add(warning)
                    say(f"round {entry.round}: {warning}")


def _state(plan: NetworkPlan, live: LiveRound) -> str:
    """Say how far a run is: round, sites that answered, highest risks."""
    method, entry, groups = plan.runs[live.run].method, live.round, live.groups
    over_groups = CARDS[method].weights is Weights.GROUPS and len(entry.weights) == len(groups)
    weights = dict(zip(groups, entry.weights, strict=True)) if over_groups else {}
    risks = highest_risks(live.risks.items(), weights)
    if entry.certificate is not None:
        risks += f"; gap {upper_text(entry.certificate.gap, 1)}"
    answered = f"{len(entry.sites.took_part)} of {len(plan.sites)} sites"
    return f"{method}, round {entry.round:,}, {answered}: {risks}"


def _warnings(entry: RoundRecord, groups: Sequence[str]) -> Iterator[str]:
    for reason in entry.sites.refused.values():
        yield f"continues without it: {reason}"
    for group in entry.unseen:
        yield f"no site that answered has group '{groups[group]}': its weight is kept"


def audit_federation(options: argparse.Namespace) -> None:
    """Measure predictions that the sites have, or continue with that."""
    if not read_config(options.config).audit:
        raise InputError(
            f"{options.config} has no section [audit]; name the columns of predictions there, or "
            "train with 'fedminmax federation run'"
        )
    run_federation(options)


def run_federation(options: argparse.Namespace) -> None:
    """Start a run, or continue the one in this folder."""
    members = read_sites_of(options.kit)
    sites = tuple(options.sites or members)
    for site in sites:
        if site not in members:
            raise InputError(f"site '{site}' is not in this federation: {', '.join(members)}")
        if sites.count(site) > 1:
            raise InputError(f"site '{site}' appears twice in --sites; name it once")
    folder, record = run_folder_of(options), _run_of(options, sites)
    default = masked_by_default(options.kit)
    # Whether a privacy guarantee can be kept depends on what is decided here.
    config = record.overrides.apply(read_config(options.config))
    record = decide_masking(folder, record, config, default=default)
    _open_and_finish(folder, record, options.wait)


def _run_of(options: argparse.Namespace, sites: tuple[str, ...]) -> FederationRun:
    return FederationRun(
        "",
        options.config.absolute(),
        kit=options.kit.absolute() if "kit" in options else None,
        sites=sites,
        site_rules=SiteRules(**given(options, SiteRules)),
        settings=tuple(getattr(options, "settings", ())),
        overrides=overrides_of(options),
    )


def run_folder_of(options: argparse.Namespace) -> Path:
    """Return the run folder, by default named after the configuration."""
    return options.out or Path("runs", f"{options.config.stem}-federation")


def resume_run(options: argparse.Namespace) -> None:
    """Continue a run, whatever its state."""
    _open_and_finish(options.folder, read_federation_run(options.folder), options.wait)


def stop_run(options: argparse.Namespace) -> None:
    """Stop a run at the server."""
    folder = options.folder
    coordinator = _coordinator(folder, read_federation_run(folder), options.wait)
    stopped = coordinator.stop(folder / NETWORK_FOLDER)
    say(f"{stopped}; 'fedminmax federation resume {folder}' continues it")


def _open_and_finish(folder: Path, record: FederationRun, wait: float) -> None:
    for source in record.read_config().test:
        if not source.path.is_file():
            raise InputError(f"test file {source.path} does not exist; give it, or remove it")
    _finish(folder, open_federation_run(folder, record), wait)


def _finish(folder: Path, record: FederationRun, wait: float) -> None:
    config = record.read_config()
    network_folder = folder / NETWORK_FOLDER
    if read_results(folder) is None:
        coordinator = _coordinator(folder, record, wait)
        plan = plan_of(record, config)
        try:
            say_what_protects(plan)
            follow(coordinator.run(plan, network_folder), plan)
        except KeyboardInterrupt:
            say(
                f"the run continues at the server; 'fedminmax federation resume {folder}' follows "
                f"it, 'fedminmax federation stop {folder}' ends it"
            )
            raise
        collect_network_run(network_folder / RESULTS, plan, config, folder)
    print_finished(folder)


def print_finished(folder: Path) -> None:
    """Print the table of a finished run and its baseline."""
    both = [read_results(folder), read_results(folder / BASELINE_FOLDER)]
    results = [model for model in both if model is not None]
    if results and results[0].is_audit:
        print_audit(folder, results)
    else:
        print_trained(folder, results)


def _coordinator(folder: Path, record: FederationRun, wait: float) -> Coordinator:
    if record.kit is None:
        raise InputError(
            f"{folder} is a run of 'fedminmax federation local', which ends with its command; "
            "run it again to continue"
        )
    return Coordinator(record.kit, Unsupervised(), wait)


def run_local_federation(options: argparse.Namespace) -> None:
    """Start server and sites, run the method, collect its results and stop all processes."""
    folder, blank = run_folder_of(options), _run_of(options, ())
    config = blank.read_config()
    settings = settings_of_sites(config)
    if config.privacy is not None:
        check_limit(config, name_of_run(folder))
    run, fault = mask_if_possible(folder, replace(blank, sites=tuple(settings)), config)
    if fault is not None:
        say(f"sums cannot be masked: {fault}")
    run = open_federation_run(folder, run)
    check_same_tables(folder, config)
    if read_results(folder) is None:
        _run(folder, run, run.overrides.apply(config), settings)
    else:
        say(f"{folder} is finished: nothing is trained again")
    print_finished(folder)


def _run(
    folder: Path, record: FederationRun, config: TableConfig, settings: dict[str, SiteSettings]
) -> None:
    plan = plan_of(record, config)
    memory = folder / NETWORK_FOLDER / RESUME_FOLDER
    if config.privacy is not None:
        spend(config, plan.run)
    with tempfile.TemporaryDirectory(prefix="fedminmax-") as temporary:
        say(
            f"starting a server and {counted(len(settings), 'site')} ({', '.join(settings)}): "
            "takes half a minute"
        )
        with local_federation(Path(temporary), settings, memory=memory) as federation:
            say_what_protects(plan)
            follow(federation.run(plan), plan)
            spent = None if config.privacy is None else spent_on_files(config)
            collect_network_run(federation.fetched(plan), plan, config, folder, spent)
    # Only needed to continue, and the run is finished.
    shutil.rmtree(memory)


def show_status(options: argparse.Namespace) -> None:
    """Ask the server for its sites and runs with a person's kit, and print them."""
    sites = read_sites_of(options.kit)
    status = federation_status(options.kit, options.wait)
    if options.json:
        heard = {site: status.heard.get(site) for site in sites}
        print(json.dumps({"sites": heard, "runs": list(map(asdict, status.runs))}))
        return
    console = wide_console()
    lines = [[site, _heard(status.heard.get(site))] for site in sites]
    print_table(console, "Sites", ["site", "connected"], lines, sentences=1)
    runs = [
        [run.name, run.status, str(run.round or ""), highest_risks(run.risks.items())]
        for run in status.runs
    ]
    headers = ["run", "status", "round", "highest risks"]
    print_table(console, "Runs", headers, runs, sentences=1)
    for run in status.runs:
        if run.notice:
            console.print(f"{run.name}: {run.notice}")


def _heard(seconds: float | None) -> str:
    return "no" if seconds is None else f"yes, seen {max(0.0, time.time() - seconds):.0f} s ago"


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
