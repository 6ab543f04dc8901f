"""A site at work: messages in, messages out, and its rows stay where they are.

The same code as in the simulation computes the replies. Nothing here knows how messages travel.
"""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from fedminmax.core.messages import Order, Sums
from fedminmax.data.tables.encoding_json import encoding_from_json
from fedminmax.data.tables.holder_summary import summarise
from fedminmax.federation.group_policy import SiteRows, rows_to_measure
from fedminmax.federation.kept_models import KeptModels
from fedminmax.federation.measure_message import models_from_bytes, score_sums_to_bytes
from fedminmax.federation.network_plan import LARGEST_PLAN, NetworkPlan, plan_from_bytes
from fedminmax.federation.per_holder import answer
from fedminmax.federation.planned_runs import rate_is_open, with_rate
from fedminmax.federation.site_desk import Desk, furnish
from fedminmax.federation.site_rows import read_rows
from fedminmax.federation.site_settings import SiteSettings
from fedminmax.federation.summary_message import summary_to_bytes
from fedminmax.federation.wire import (
    order_from_bytes,
    sums_to_bytes,
    vector_from_bytes,
    vector_to_bytes,
)
from fedminmax.federation.wire_vectors import RefusedError, checked_bytes
from fedminmax.methods.method import AnyMethod, lets_holders_keep, needs_each_reply

SERVER = "the server"
LONGEST_RATE = 30


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
        self._rows: SiteRows | None = None
        self._desk: Desk | None = None
        self._methods: list[AnyMethod[Any]] = []

    def prepare(self, plan: object) -> bytes:
        """Read the table by the plan's schema and tell its summary."""
        self._plan = plan_from_bytes(plan, SERVER)
        if self._name not in self._plan.sites:
            raise RefusedError(f"{SERVER} has a plan without this site, '{self._name}'")
        if not rate_is_open(self._plan.runs):
            self._methods = [run.build() for run in self._plan.runs]
        self._rows = read_rows(self._plan, self._settings, self._name)
        return summary_to_bytes(summarise(self._rows.train, self._plan.schema))

    def encode(self, encoding: object) -> bytes:
        """Encode the rows as all sites do, and tell how many of each group there are."""
        if self._plan is None or self._rows is None:
            raise RefusedError(f"{SERVER} sent an encoding before its plan")
        text = checked_bytes(encoding, LARGEST_PLAN, SERVER).decode(errors="replace")
        agreed = encoding_from_json(text, SERVER)
        if agreed.schema != self._plan.schema:
            raise RefusedError(f"{SERVER} sent an encoding of another schema than its plan's")
        told = rows_to_measure(self._rows.held_out, agreed.groups, self._settings)
        rows = SiteRows(self._rows.train, told)
        self._desk = furnish(self._plan, rows, agreed, self._name)
        group, groups = self._desk.holder.examples.group, len(agreed.groups)
        return vector_to_bytes(torch.bincount(group, minlength=groups))

    def curvature(self, directions: object) -> bytes:
        """Tell each group's sum of x (x . v) for a direction v of its own: power iteration."""
        desk = self._present_desk("a direction")
        groups, features = desk.holder.groups, len(desk.encoding.names)
        like = torch.zeros(groups * (features + 1), dtype=torch.float64)
        by_group = vector_from_bytes(directions, like, SERVER).reshape(groups, -1)
        return vector_to_bytes(desk.sums_along(by_group).flatten())

    def take_rate(self, rate: object) -> bytes:
        """Take the learning rate that the plan left open."""
        desk = self._present_desk("a learning rate")
        word = checked_bytes(rate, LONGEST_RATE, SERVER).decode(errors="replace")
        self._methods = [run.build() for run in with_rate(desk.plan.runs, word)]
        return b""

    def answer(self, run: object, order: object) -> bytes:
        """Do one round's work for one of the plan's runs."""
        started = time.monotonic()
        desk = self._present_desk("an order")
        if not isinstance(run, int) or not 0 <= run < len(self._methods):
            raise RefusedError(f"{SERVER} asks for run {run!r}, which its plan does not have")
        asked = order_from_bytes(order, desk.start, SERVER)
        if asked.moment.round > desk.plan.runs[run].rounds:
            raise RefusedError(f"{SERVER} asks for round {asked.moment.round}, after the last one")
        reply = self._reply(run, asked, desk)
        return sums_to_bytes(reply, desk.start.dtype, time.monotonic() - started)

    def measure(self, models: object) -> bytes:
        """Tell sums of scores of each run's models over the rows that were held out."""
        desk = self._present_desk("models")
        runs = models_from_bytes(models, len(desk.plan.runs), desk.start, SERVER)
        return score_sums_to_bytes(desk.measure(runs))

    def _present_desk(self, what: str) -> Desk:
        if self._desk is None:
            raise RefusedError(f"{SERVER} sent {what} before its encoding")
        return self._desk

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
