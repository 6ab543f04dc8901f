"""The server as Flower's ServerApp: it finds the sites, does all rounds, and writes the run folder.

It is the same work as with any transport (``network.server.run``); a run that was stopped goes on
after its last saved round if it is started again with the same ``out``.
"""

import logging
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedminmax.config.read import Overrides, TableConfig, read_config
from fedminmax.core.errors import InputError
from fedminmax.findings.disclosure import WITHOUT_AGGREGATION
from fedminmax.flower.client import run_folder_of
from fedminmax.flower.grid import GridTransport, find_sites
from fedminmax.network.server.news import ProgressReporter
from fedminmax.network.server.run import run_plan
from fedminmax.network.wire.endpoints import Endpoint
from fedminmax.network.wire.plan import NetworkPlan
from fedminmax.network.wire.site_rules import SiteRules
from fedminmax.network.wire.transport import NO_LIMITS, Answer
from fedminmax.runs.federation import (
    NETWORK_FOLDER,
    RESUME_FOLDER,
    FederationRun,
    open_federation_run,
    plan_of,
)
from fedminmax.runs.folder import read_results
from fedminmax.runs.network import collect_network_run

LOG = logging.getLogger("flwr.fedminmax")
SECONDS_TO_CONNECT = 600.0
NOT_MASKED = (
    "secure_aggregation = true is not offered with Flower, which ends a site's process, and with "
    "it the keys of its masks, after each message; write false in [federation] if the server may "
    "see every site's sums, or use 'fedminmax federation'"
)


def server_app(config: Path) -> ServerApp:
    """Return a ServerApp that runs a configuration; its paths of tables are not used."""

    def main(grid: Grid, context: Context) -> None:
        try:
            run(grid, context, config)
        except InputError as error:
            LOG.error("error: %s", error)  # noqa: TRY400 - Flower writes the traceback
            raise

    app = ServerApp()
    app.main()(main)
    return app


def run(grid: Grid, context: Context, path: Path) -> None:
    """Do one run, from wherever it is."""
    folder, config = run_folder_of(context), read_config(path)
    if config.secure_aggregation:
        raise InputError(NOT_MASKED)
    nodes = _sites(grid, context)
    record = FederationRun(
        "",
        path,
        kit=None,
        sites=tuple(nodes),
        site_rules=SiteRules(),
        overrides=Overrides(secure_aggregation=False),
    )
    record = open_federation_run(folder, record)
    config = record.read_config()
    if read_results(folder) is None:
        LOG.info("NO secure aggregation: %s", WITHOUT_AGGREGATION)
        _train(GridTransport(grid, nodes, record.site_rules.reply_timeout), record, config, folder)
    LOG.info("the run is in %s; fedminmax report %s shows it", folder, folder)


def _sites(grid: Grid, context: Context) -> dict[str, int]:
    """Find the sites that ``sites`` names, or so many of them; by default all that there are."""
    wanted = context.run_config.get("sites", 0)
    if isinstance(wanted, str):
        names = [name.strip() for name in wanted.split(",")]
        return find_sites(grid, names, len(names), SECONDS_TO_CONNECT)
    return find_sites(grid, (), max(int(wanted), 1), SECONDS_TO_CONNECT)


def _train(
    transport: GridTransport, record: FederationRun, config: TableConfig, folder: Path
) -> None:
    plan = plan_of(record, config)
    memory = folder / NETWORK_FOLDER / RESUME_FOLDER
    place = memory / "server"
    outcome = run_plan(plan, Told(transport, plan, ProgressReporter(plan, place)), place)
    if outcome.error is not None:
        raise InputError(outcome.error)
    for reason in (*outcome.refused.values(), *outcome.unmeasured.values()):
        LOG.warning("%s", reason)
    collect_network_run(place, plan, config, folder)
    # Only needed to continue, and the run is finished.
    shutil.rmtree(memory)


class Told:
    """A transport that writes to the log which rounds are done, and what is asked now."""

    def __init__(
        self, transport: GridTransport, plan: NetworkPlan, reporter: ProgressReporter
    ) -> None:
        self._transport, self._plan, self._reporter = transport, plan, reporter
        self._seen = [0] * len(plan.runs)

    def __call__(
        self,
        sites: Sequence[str],
        endpoint: Endpoint,
        payload: Mapping[str, object],
        seconds: Mapping[str, float] = NO_LIMITS,
    ) -> Iterator[Answer]:
        """Call these sites and yield each one's answer as it arrives."""
        for live in self._reporter.collect(self._seen).live_rounds:
            self._seen[live.run] = live.round.round
            risks = ", ".join(f"{name} {risk:.3g}" for name, risk in live.risks.items())
            planned = self._plan.runs[live.run]
            LOG.info(
                "%s, round %d of %d: %s", planned.method, live.round.round, planned.rounds, risks
            )
        LOG.info("asking %d sites: %s", len(sites), endpoint)
        return self._transport(sites, endpoint, payload, seconds)
