"""A site as Flower's ClientApp: a message is one question of the server, its reply the answer.

Flower starts a process for each message, and in its simulation sends it to any of several: nothing
stays in memory from one to the next. What site and server agreed on (plan, encoding, learning rate)
is kept in the node's state (``Context.state``), and each process takes it again, as it came, before
it answers. Everything else that a site remembers is in its folder, as with any other transport: its
journal, in which the same question about the same content may come again.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from numpy.typing import ArrayLike

from fedminmax.network.site.agreeing import SERVER
from fedminmax.network.site.journal import KEPT_FOLDER, Journal
from fedminmax.network.site.settings import SETTINGS_FILE, SiteSettings, read_site_settings
from fedminmax.network.site.site import FAILED, AnsweringSite, Site, read_call, refuse
from fedminmax.network.wire.calls import ARGUMENTS, Endpoint
from fedminmax.network.wire.codec import RefusedError
from fedminmax.network.wire.plan import NetworkPlan, plan_from_bytes
from fedminmax.runs.federation import NETWORK_FOLDER, RESUME_FOLDER

# The name of our record in a message and in a node's state.
RECORD = "fedminmax"
# The keys of a reply: the answer, or why there is none; the name of a site that is present.
MESSAGE, REFUSED, NAME = "message", "refused", "site"
ROWS_FILE = "rows.parquet"
# What later questions build on, and which of the earlier ones each makes superfluous.
SUPERSEDED: Mapping[Endpoint, frozenset[Endpoint]] = {
    Endpoint.PREPARE: frozenset(Endpoint),
    Endpoint.TAKE_VALUES: frozenset(),
    Endpoint.COUNT_CELLS: frozenset(),
    Endpoint.ENCODE: frozenset({Endpoint.COUNT_CELLS}),
    Endpoint.CURVATURE: frozenset(),
    Endpoint.TAKE_RATE: frozenset({Endpoint.CURVATURE}),
}
LOG = logging.getLogger("fedminmax.site")
UNPREPARED = "this site was asked before it could prepare; start the run again"
NOT_CONFIGURED = (
    "this SuperNode names no table or no folder of its own; start it with --node-config "
    '\'site="NAME" data="TABLE" folder="FOLDER"\''
)
Payload = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Rows:
    """A site's records: the columns of ``x`` are the configuration's features, in its order.

    ``group`` has one column for each sensitive attribute of the configuration.
    """

    x: ArrayLike
    y: ArrayLike
    group: ArrayLike


def own_table(context: Context) -> Path:
    """Return the table that the SuperNode's administrator named."""
    if "data" not in context.node_config:
        raise RefusedError(NOT_CONFIGURED)
    return Path(str(context.node_config["data"]))


Load = Callable[[Context], Rows | Path]


def client_app(load: Load = own_table) -> ClientApp:
    """Return a ClientApp that answers for the records, or the table, that ``load`` returns."""

    def answer(message: Message, context: Context) -> Message:
        endpoint = Endpoint(message.metadata.message_type.rpartition(".")[2])
        if endpoint is Endpoint.PRESENT:
            record: Payload = {NAME: name_of(context)}
        else:
            payload = dict(message.content.config_records.get(RECORD, {}))
            came = _answer(endpoint, payload, context, load)
            record = {REFUSED: came} if isinstance(came, str) else {MESSAGE: came}
        return Message(RecordDict({RECORD: ConfigRecord(record)}), reply_to=message)

    app = ClientApp()
    for endpoint in (Endpoint.PRESENT, *ARGUMENTS):
        app.query(endpoint.value)(answer)
    return app


def name_of(context: Context) -> str:
    """Return the site's name; in the simulation it has the number of its part."""
    number = int(context.node_config.get("partition-id", 0)) + 1
    return str(context.node_config.get("site", f"site-{number}"))


def run_folder_of(context: Context) -> Path:
    """Return the folder that a run writes."""
    return Path(str(context.run_config.get("out", "runs/flower"))).absolute()


def _folder_of(context: Context) -> Path:
    """Return where a site keeps its journal: a part of a simulation in the folder of the run."""
    if "folder" in context.node_config:
        return Path(str(context.node_config["folder"]))
    if "partition-id" not in context.node_config:
        raise RefusedError(NOT_CONFIGURED)
    return run_folder_of(context) / NETWORK_FOLDER / RESUME_FOLDER / "sites" / name_of(context)


def _answer(endpoint: Endpoint, payload: Payload, context: Context, load: Load) -> bytes | str:
    """Answer one question, or say why not; whatever else goes wrong stays in this site's log."""
    # As between our own sites: rounding does not depend on how many threads a machine has.
    torch.set_num_threads(1)
    agreed = [] if endpoint is Endpoint.PREPARE else _agreed(context)
    asked = [*agreed, (endpoint, payload)]
    try:
        folder = _folder_of(context)
    except RefusedError as error:
        return str(error)
    try:
        site = _site(folder, _plan(*asked[0]), context, load)
        for earlier, arguments in agreed:
            getattr(site, earlier)(**read_call(earlier, arguments).arguments)
    except RefusedError as error:
        LOG.warning("refused: %s", error)
        return refuse(Journal(folder / KEPT_FOLDER), endpoint, str(error))
    except Exception:
        LOG.exception("the site cannot answer")
        return refuse(Journal(folder / KEPT_FOLDER), endpoint, FAILED)
    answer = AnsweringSite(site).answer(endpoint, payload)
    if isinstance(answer, bytes) and endpoint in SUPERSEDED:
        _keep(context, asked)
    return answer


def _plan(first: Endpoint, payload: Payload) -> NetworkPlan:
    """Return the plan, which comes first."""
    if first is not Endpoint.PREPARE:
        raise RefusedError(UNPREPARED)
    return plan_from_bytes(payload.get("plan"), SERVER)


def _site(folder: Path, plan: NetworkPlan, context: Context, load: Load) -> Site:
    """Return the site as it is before a run; the plan's sites are all that it knows of others."""
    came = load(context)
    path = came if isinstance(came, Path) else _write_rows(folder / ROWS_FILE, came, plan)
    settings = SiteSettings(path)
    if (folder / SETTINGS_FILE).exists():
        settings = replace(read_site_settings(folder / SETTINGS_FILE), data=path)
    return Site(name_of(context), settings, folder / KEPT_FOLDER, plan.sites)


def _write_rows(path: Path, rows: Rows, plan: NetworkPlan) -> Path:
    """Write records as a table with the columns of a plan."""
    x, group = np.asarray(rows.x), np.asarray(rows.group)
    group = group.reshape(len(group), -1)
    features = [feature.column for feature in plan.schema.features]
    protected = [entry.column for entry in plan.schema.protected]
    for name, came, wanted in (("x", x, features), ("group", group, protected)):
        if came.shape[1:] != (len(wanted),):
            raise RefusedError(
                f"{name} has the shape {came.shape}, but the configuration has "
                f"{len(wanted):,} columns for it; give one for each, in its order"
            )
    columns: dict[str, Any] = dict(zip(features, x.T, strict=True))
    columns |= dict(zip(protected, group.T, strict=True))
    columns[plan.schema.target.column] = np.asarray(rows.y)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    beside = path.with_suffix(".partial")
    pl.DataFrame(columns).write_parquet(beside)
    return beside.replace(path)


def _agreed(context: Context) -> list[tuple[Endpoint, Payload]]:
    """Return the questions that later ones build on, in the order in which they came."""
    kept = sorted(context.state.config_records.items())
    return [
        (Endpoint(name.split()[2]), dict(record))
        for name, record in kept
        if name.startswith(f"{RECORD} ")
    ]


def _keep(context: Context, asked: Iterable[tuple[Endpoint, Payload]]) -> None:
    """Remember questions, without those that the last one makes superfluous."""
    *earlier, last = asked
    left = [*((name, own) for name, own in earlier if name not in SUPERSEDED[last[0]]), last]
    for name in [name for name in context.state if name.startswith(f"{RECORD} ")]:
        del context.state[name]
    for number, (endpoint, payload) in enumerate(left):
        context.state[f"{RECORD} {number:03} {endpoint}"] = ConfigRecord(payload)
