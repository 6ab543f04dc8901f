"""A site at work: messages in, messages out, and its rows stay where they are.

The same code as in the simulation computes the replies. Nothing here knows how messages travel.
"""

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedminmax.core.examples import Examples, check_examples
from fedminmax.core.messages import Order, Sums
from fedminmax.core.task import check_fit
from fedminmax.core.work_size import choose_rows_per_chunk
from fedminmax.core.workspace import Workspace
from fedminmax.data.tables.encode import encode
from fedminmax.data.tables.encoding_json import encoding_from_json
from fedminmax.data.tables.holder_summary import summarise
from fedminmax.data.tables.parse_rows import ParsedRows
from fedminmax.federation.kept_models import KeptModels
from fedminmax.federation.network_plan import LARGEST_PLAN, NetworkPlan, plan_from_bytes, task_of
from fedminmax.federation.per_holder import NOTHING, answer
from fedminmax.federation.site_rows import check_groups, read_training_rows
from fedminmax.federation.site_settings import SiteSettings
from fedminmax.federation.summary_message import summary_to_bytes
from fedminmax.federation.wire import order_from_bytes, sums_to_bytes, vector_to_bytes
from fedminmax.federation.wire_vectors import RefusedError, checked_bytes
from fedminmax.methods.method import AnyMethod, Holder, lets_holders_keep, needs_each_reply

SERVER = "the server"


@dataclass(frozen=True, eq=False)
class Desk:
    """What a site needs to answer orders: its encoded rows as a holder, buffers, theta^0."""

    plan: NetworkPlan
    holder: Holder
    workspace: Workspace
    start: Tensor


class Site:
    """One site in one job.

    Args:
        name: the site's name in the federation.
        settings: where its table is, and what it allows.
        folder: where it may keep things between rounds.
    """

    def __init__(self, name: str, settings: SiteSettings, folder: Path) -> None:
        self._name = name
        self._settings = settings
        self._folder = folder
        self._plan: NetworkPlan | None = None
        self._rows: ParsedRows | None = None
        self._desk: Desk | None = None
        self._methods: list[AnyMethod[Any]] = []

    def prepare(self, plan: object) -> bytes:
        """Read the table by the plan's schema and tell its summary."""
        self._plan = plan_from_bytes(plan, SERVER)
        if self._name not in self._plan.sites:
            raise RefusedError(f"{SERVER} has a plan without this site, '{self._name}'")
        self._methods = [run.build() for run in self._plan.runs]
        self._rows = read_training_rows(self._plan, self._settings, self._name)
        summary = summarise(self._rows, self._plan.schema)
        check_groups(summary, self._settings)
        return summary_to_bytes(summary)

    def encode(self, encoding: object) -> bytes:
        """Encode the rows as all sites do, and tell how many of each group there are."""
        if self._plan is None or self._rows is None:
            raise RefusedError(f"{SERVER} sent an encoding before its plan")
        text = checked_bytes(encoding, LARGEST_PLAN, SERVER).decode(errors="replace")
        agreed = encoding_from_json(text, SERVER)
        if agreed.schema != self._plan.schema:
            raise RefusedError(f"{SERVER} sent an encoding of another schema than its plan's")
        task = task_of(self._plan, agreed)
        own = encode(self._rows, agreed, self._name)
        own = _checked(own, self._plan.precision.dtype, self._name)
        if len(own):
            check_fit(task, own, self._name)
        self._desk = Desk(
            self._plan,
            Holder(
                number=self._plan.sites.index(self._name),
                examples=own,
                holders=len(self._plan.sites),
                groups=len(agreed.groups),
                rows_per_chunk=choose_rows_per_chunk(task, own) if len(own) else 1,
                kept=NOTHING,
            ),
            Workspace(task),
            task.initial_parameters,
        )
        return vector_to_bytes(torch.bincount(own.group, minlength=len(agreed.groups)))

    def answer(self, run: object, order: object) -> bytes:
        """Do one round's work for one of the plan's runs."""
        started = time.monotonic()
        if self._desk is None:
            raise RefusedError(f"{SERVER} sent an order before its encoding")
        if not isinstance(run, int) or not 0 <= run < len(self._methods):
            raise RefusedError(f"{SERVER} asks for run {run!r}, which its plan does not have")
        precision = self._desk.start.dtype
        reply = self._reply(run, order_from_bytes(order, self._desk.start, SERVER), self._desk)
        return sums_to_bytes(reply, precision, time.monotonic() - started)

    def _reply(self, run: int, order: Order, desk: Desk) -> Sums:
        method = self._methods[run]
        if lets_holders_keep(method):
            kept = KeptModels(self._folder / f"{desk.plan.run}-{run}")
            before = kept.before(order.moment.round, method.start_keeping(desk.start))
            holder = replace(desk.holder, kept=before)
            reply, own = method.local_and_keep(order, holder, desk.workspace)
            kept.keep(order.moment.round, own)
            return reply
        if needs_each_reply(method):
            return method.local(order, desk.holder, desk.workspace)
        return answer(method, order, desk.holder, desk.workspace)


def _checked(rows: Examples, precision: torch.dtype, site: str) -> Examples:
    y = rows.y.to(precision) if rows.y.is_floating_point() else rows.y
    return check_examples(rows.x.to(precision), y, rows.group, site)
