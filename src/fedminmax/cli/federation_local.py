"""`fedminmax federation local`: a whole federation on this machine, for one run."""

import re
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.markup import escape

from fedminmax.cli.progress import Display, display
from fedminmax.cli.tables import plain_table, wide_console
from fedminmax.core.errors import InputError
from fedminmax.data.tables.config import TableConfig, read_config
from fedminmax.data.tables.sources import read_source
from fedminmax.federation.agreement import AGREEMENT_FILE, read_agreement
from fedminmax.federation.flare_local import LocalFederation, local_federation
from fedminmax.federation.network_log import NetworkRound
from fedminmax.federation.network_plan import NetworkPlan, PlannedRun
from fedminmax.federation.site_settings import SiteSettings
from fedminmax.report.files import write_text
from fedminmax.report.model_file import FILE_NAME
from fedminmax.studies.network_results import collect_network_run

# How many groups' risks fit beside a bar.
MOST_RISKS = 4
NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9-]+")


@dataclass(frozen=True)
class LocalRequest:
    """What one call is to do."""

    config: Path
    folder: Path
    sites: int | None
    rounds: int | None


def run_local_federation(request: LocalRequest) -> None:
    """Start everything, run the method, collect its results and end everything."""
    config = read_config(request.config)
    if request.rounds:
        config = replace(config, method=replace(config.method, rounds=request.rounds))
    if (request.folder / FILE_NAME).exists():
        raise InputError(f"{request.folder} has a finished run; give another folder with --out")
    settings = _settings_of_sites(config)
    if request.sites not in (None, len(settings)):
        raise InputError(
            f"--sites {request.sites}, but {request.config} has {len(settings)} holders, "
            "and each is a site; leave --sites out, or change the holders"
        )
    plan = _plan(config, tuple(settings), request.config.stem)
    with tempfile.TemporaryDirectory(prefix="fedminmax-") as temporary:
        _say(f"starting a server and {len(settings)} sites ({', '.join(settings)}): half a minute")
        with local_federation(Path(temporary), settings) as federation:
            last = _run_with_bars(federation, plan)
            collect_network_run(federation.results(plan), plan, 0, config, request.folder)
    text = request.config.read_text(encoding="utf-8")
    write_text(request.folder / "config.toml", text)
    _print_run(request.folder, plan, last)


def _settings_of_sites(config: TableConfig) -> dict[str, SiteSettings]:
    """Give every holder of the configuration a site of its own."""
    holders: dict[str, SiteSettings] = {}
    for source in config.training:
        data = source.path.absolute()
        if source.owner is not None:
            holders[source.owner] = SiteSettings(data, owner=source.owner)
            continue
        for part in read_source(source, config).parts:
            holders[part.owner] = SiteSettings(
                data, owner=part.owner, holder_column=config.holder_column
            )
    names = [NOT_IN_A_NAME.sub("-", holder).strip("-").lower() for holder in holders]
    if len({*names, "", "server", "localhost"}) < len(names) + 3:
        names = [f"site-{number}" for number in range(1, len(names) + 1)]
    return dict(zip(names, holders.values(), strict=True))


def _plan(config: TableConfig, sites: tuple[str, ...], name: str) -> NetworkPlan:
    choice = config.method
    run = PlannedRun(
        choice.name, choice.options, choice.rounds, choice.participation, choice.iterate
    )
    return NetworkPlan(
        run=NOT_IN_A_NAME.sub("-", name).strip("-")[:60] or "run",
        sites=sites,
        schema=config.schema,
        model=config.model,
        runs=(run,),
        held_out=config.held_out,
        seed=config.seed,
        delimiter=config.delimiter,
    )


def _run_with_bars(federation: LocalFederation, plan: NetworkPlan) -> NetworkRound:
    """Show each round as it comes, with warnings of who did not take part; return the last."""
    run = plan.runs[0]
    last: NetworkRound | None = None
    warned: set[str] = set()
    with display("federation", run.rounds) as bars:
        bars.start_run(run.method, run.rounds)
        for _, last in federation.run(plan, _say):
            _show(bars, run.method, last, _group_names(federation, plan))
            for reason in set(last.refused.values()) - warned:
                warned.add(reason)
                _say(f"round {last.round} goes on without it: {reason}")
    if last is None:
        raise InputError("the run had no round left to do")
    return last


def _show(bars: Display, method: str, entry: NetworkRound, groups: Sequence[str]) -> None:
    known = [(risk, name) for risk, name in zip(entry.risks, groups, strict=True) if risk]
    worst = sorted(known, reverse=True)[:MOST_RISKS]
    words = ", ".join(f"{name} {risk:.3g}" for risk, name in worst)
    bars.rename_run(escape(f"{method}, {len(entry.took_part)} sites: {words}"))
    bars.show_round(entry.round)
    bars.show_work(entry.round)


def _group_names(federation: LocalFederation, plan: NetworkPlan) -> tuple[str, ...]:
    agreed = read_agreement(federation.results(plan) / AGREEMENT_FILE)
    return () if agreed is None else agreed[0].group_names


def _print_run(folder: Path, plan: NetworkPlan, last: NetworkRound) -> None:
    console = wide_console()
    agreed = read_agreement(folder / AGREEMENT_FILE)
    if agreed is None:
        return
    encoding, counts = agreed
    lines = [
        [
            name,
            f"{sum(of_site[place] for of_site in counts.values()):,}",
            "not seen" if last.risks[place] is None else f"{last.risks[place]:.4f}",
        ]
        for place, name in enumerate(encoding.group_names)
    ]
    title = (
        f"Training risk in round {last.round} of {plan.runs[0].rounds}, over {len(counts)} sites"
    )
    console.print(plain_table(title, ["group", "rows", "risk"], lines))
    for what, name in (("Rounds", "rounds.jsonl"), ("Model", FILE_NAME)):
        console.print(f"{what}: {folder / name}", markup=False, highlight=False)


def _say(words: str) -> None:
    print(f"fedminmax: {words}", file=sys.stderr, flush=True)
