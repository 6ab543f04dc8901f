"""Calls of sites as messages through Flower's ``Grid``: one for each site and question."""

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from fedminmax.core.errors import InputError
from fedminmax.flower.client import MESSAGE, NAME, RECORD, REFUSED
from fedminmax.network.wire.endpoints import Endpoint
from fedminmax.network.wire.transport import NO_LIMITS, Answer, wait_for_all

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
