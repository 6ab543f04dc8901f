"""The server as Flower's ServerApp: it finds the sites, does all rounds, and writes the run folder.

It is the same work as with any transport (``network.server.run``); a run that was stopped goes on
after its last saved round if it is started again with the same ``out``.
"""

import logging
import shutil
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

from fedminmax.config.read import Overrides, TableConfig, read_config
from fedminmax.core.errors import InputError
from fedminmax.findings.disclosure import WITHOUT_AGGREGATION
from fedminmax.flower.client import MESSAGE, NAME, RECORD, REFUSED, run_folder_of
from fedminmax.network.server.log import ProgressReporter
from fedminmax.network.server.run import run_plan
from fedminmax.network.wire.calls import NO_LIMITS, Answer, Endpoint, wait_for_all
from fedminmax.network.wire.plan import NetworkPlan
from fedminmax.network.wire.site_rules import SiteRules
from fedminmax.runs.federation import (
    NETWORK_FOLDER,
    RESUME_FOLDER,
    FederationRun,
    open_federation_run,
    plan_of,
)
from fedminmax.runs.folder import read_results
from fedminmax.runs.network import collect_network_run

POLL_SECONDS = 0.1
MAX_REASON_LENGTH = 300
# A SuperNode asks for messages every few seconds, and starts a process for each.
SECONDS_TO_NAME = 120.0


@dataclass(frozen=True)
class GridTransport:
    """Calls sites by the numbers of their nodes; ``seconds`` is how long a call may take."""

    grid: Grid
    nodes: Mapping[str, int]
    seconds: float

    def __call__(
        self,
        sites: Sequence[str],
        endpoint: Endpoint,
        payload: Mapping[str, Any],
        seconds: Mapping[str, float] = NO_LIMITS,
    ) -> Iterator[Answer]:
        """Call these sites and yield each one's answer as it arrives."""
        limits = {**dict.fromkeys(sites, self.seconds), **seconds}
        sent: dict[str, str] = {}
        for site in sites:
            content = RecordDict({RECORD: ConfigRecord(dict(payload))})
            message = Message(
                content, self.nodes[site], f"query.{endpoint.value}", ttl=limits[site]
            )
            # Of one that cannot be sent there is no number.
            number = next(iter(self.grid.push_messages([message])), None)
            if number is None:
                yield Answer(site, failure=f"{site} is not connected", late=True)
            else:
                sent[number] = site
        own = {site: limits[site] for site in sent.values()}
        yield from wait_for_all(GridArrivals(self.grid, sent), own, self._connected)

    def _connected(self, sites: list[str]) -> set[str]:
        there = {*self.grid.get_node_ids()}
        return {site for site in sites if self.nodes[site] in there}


class GridArrivals:
    """The replies to messages, as they come; ``sent`` are the messages' numbers and sites."""

    def __init__(self, grid: Grid, sent: Mapping[str, str]) -> None:
        self._grid = grid
        self._waiting = dict(sent)
        self._came: deque[Answer] = deque()

    def next_within(self, seconds: float) -> Answer | None:
        """Return the next answer; None if none came within these seconds."""
        until = time.monotonic() + seconds
        while not self._came:
            for reply in self._grid.pull_messages(list(self._waiting)):
                site = self._waiting.pop(reply.metadata.reply_to_message_id)
                self._came.append(_answer_of(site, reply))
            left = until - time.monotonic()
            if not self._came and left <= 0:
                return None
            time.sleep(0.0 if self._came else min(left, POLL_SECONDS))
        return self._came.popleft()


def _answer_of(site: str, reply: Message) -> Answer:
    """Read what came from a site: anything, whatever its type should be."""
    if reply.has_error():
        return Answer(site, failure=f"{site}: {str(reply.error.reason)[:MAX_REASON_LENGTH]}")
    record: Mapping[str, Any] = reply.content.config_records.get(RECORD, {})
    if REFUSED in record:
        return Answer(site, failure=f"{site}: {str(record[REFUSED])[:MAX_REASON_LENGTH]}")
    return Answer(site, record.get(MESSAGE, record.get(NAME)))


def find_sites(grid: Grid, wanted: Sequence[str], least: int, seconds: float) -> dict[str, int]:
    """Wait until these sites are there, or so many of any name; return their nodes by name."""
    until = time.monotonic() + seconds
    named: dict[int, str] = {}
    while True:
        new = {str(node): node for node in grid.get_node_ids() if node not in named}
        asked = GridTransport(grid, new, SECONDS_TO_NAME)
        for answer in asked(list(new), Endpoint.PRESENT, {}):
            if isinstance(answer.message, str):
                named[new[answer.site]] = answer.message
        nodes = {name: node for node, name in sorted(named.items(), key=lambda item: item[1])}
        if len(nodes) < len(named):
            twice = sorted(name for name in nodes if [*named.values()].count(name) > 1)
            raise InputError(
                f"several SuperNodes call themselves '{twice[0]}'; give each a name of its own "
                "with --node-config"
            )
        if {*wanted} <= {*nodes} and len(nodes) >= least:
            return {name: nodes[name] for name in wanted or nodes}
        if time.monotonic() > until:
            raise InputError(
                f"{len(nodes):,} sites are connected ({', '.join(nodes) or 'none'}), expected "
                f"{', '.join(wanted) or f'{least:,}'}; start their SuperNodes, and run again"
            )
        time.sleep(POLL_SECONDS)


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
