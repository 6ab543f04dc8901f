"""`fedminmax federation status`: the server, its sites and its runs, in a table or as JSON."""

import argparse
import json
import time
from typing import Any

from fedminmax.cli.terminal import highest_risks, print_table, wide_console
from fedminmax.network.flare.federation_file import read_sites_of
from fedminmax.network.flare.session import FederationStatus, RunStatus, federation_status


def show_status(options: argparse.Namespace) -> None:
    """Ask the server for its sites and runs with a person's kit, and print them."""
    sites = read_sites_of(options.kit)
    status = federation_status(options.kit, options.wait)
    if options.json:
        print(json.dumps(_as_json(status, sites)))
        return
    console = wide_console()
    lines = [[site, _heard(status.heard.get(site))] for site in sites]
    print_table(console, "Sites", ["site", "connected"], lines, sentences=1)
    runs = [[run.name, run.status, str(run.round or ""), _risks(run)] for run in status.runs]
    headers = ["run", "status", "round", "highest risks"]
    print_table(console, "Runs", headers, runs, sentences=1)
    for run in status.runs:
        if run.notice:
            console.print(f"{run.name}: {run.notice}")


def _heard(seconds: float | None) -> str:
    return "no" if seconds is None else f"yes, seen {max(0.0, time.time() - seconds):.0f} s ago"


def _risks(run: RunStatus) -> str:
    return ", ".join(f"{name} {risk:.3g}" for name, risk in highest_risks(run.risks.items()))


def _as_json(status: FederationStatus, sites: tuple[str, ...]) -> dict[str, Any]:
    return {
        "sites": {site: status.heard.get(site) for site in sites},
        "runs": [
            {
                "name": run.name,
                "status": run.status,
                "round": run.round,
                "risks": run.risks,
                "notice": run.notice,
            }
            for run in status.runs
        ],
    }
