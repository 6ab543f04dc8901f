"""A site at work: messages in, messages out, and its rows stay where they are.

The same code as in the simulation computes the replies. Nothing here knows how messages travel.
Whatever is asked comes in order, and every answer is noted in the site's own ledger before it is
given.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedminmax.core.messages import Order, Sums
from fedminmax.core.safe_rate import POWER_ITERATIONS
from fedminmax.data.tables.encoding_json import encoding_from_json
from fedminmax.data.tables.held_out import ListedRows, write_held_out
from fedminmax.data.tables.holder_summary import summarise
from fedminmax.federation.certify import MAX_ROUNDS, prover_for
from fedminmax.federation.group_policy import SiteRows, rows_to_measure
from fedminmax.federation.kept_models import KeptModels
from fedminmax.federation.lighter_replies import (
    Lighter,
    lighter_part,
    round_curvature,
    round_step,
)
from fedminmax.federation.measure_message import (
    models_from_bytes,
    score_sums_to_bytes,
)
from fedminmax.federation.network_plan import (
    LARGEST_PLAN,
    NetworkPlan,
    digest_of,
    plan_from_bytes,
)
from fedminmax.federation.per_holder import answer
from fedminmax.federation.planned_runs import rate_is_open, with_rate
from fedminmax.federation.site_desk import Desk, furnish
from fedminmax.federation.site_ledger import Asked, Ledger, Question
from fedminmax.federation.site_rows import read_rows
from fedminmax.federation.site_settings import SiteSettings
from fedminmax.federation.summary_message import summary_to_bytes
from fedminmax.federation.wire import (
    losses_to_bytes,
    order_from_bytes,
    sums_to_bytes,
    vector_from_bytes,
    vector_to_bytes,
)
from fedminmax.federation.wire_vectors import RefusedError, checked_bytes
from fedminmax.methods.method import (
    AnyMethod,
    asks_again,
    lets_holders_keep,
    needs_each_reply,
)
from fedminmax.methods.weighted_fits import max_members

SERVER = "the server"
LONGEST_RATE = 30
# No method asks a third question in a round.
MAX_PHASE = 1


class Site:
    """One site in one job.

    Args:
        name: the site's name in the federation.
        settings: where its table is, and what it allows.
        folder: where it may keep things between rounds.
        roster: the sites of the federation, as its authority signed them; None if unknown.
    """

    def __init__(
        self,
        name: str,
        settings: SiteSettings,
        folder: Path,
        roster: Sequence[str] | None = None,
    ) -> None:
        self._name = name
        self._settings = settings
        self._folder = folder
        self._roster = roster
        self._plan: NetworkPlan | None = None
        self._rows: SiteRows | None = None
        self._desk: Desk | None = None
        self._methods: list[AnyMethod[Any]] = []
        self._ledger: Ledger | None = None
        self._curvatures = 0
        # The same order may come again, an earlier one may not.
        self._latest: Asked | None = None

    def prepare(self, plan: object) -> bytes:
        """Read the table by the plan's schema and tell its summary."""
        self._plan = plan_from_bytes(plan, SERVER)
        if self._name not in self._plan.sites:
            raise RefusedError(f"{SERVER} has a plan without this site, '{self._name}'")
        if not rate_is_open(self._plan.runs):
            self._methods = [run.build() for run in self._plan.runs]
        self._rows = read_rows(self._plan, self._settings, self._name, self._roster)
        self._ledger = Ledger(
            self._folder,
            self._plan.run,
            digest_of(self._plan),
            self._settings.max_runs,
            self._settings.max_answers,
        )
        return summary_to_bytes(summarise(self._rows.train, self._plan.schema))

    def encode(self, encoding: object) -> bytes:
        """Encode the rows as all sites do, and tell how many of each group there are."""
        if self._plan is None or self._rows is None or self._ledger is None:
            raise RefusedError(f"{SERVER} sent an encoding before its plan")
        if self._desk is not None:
            raise RefusedError(f"{SERVER} sent a second encoding")
        content = checked_bytes(encoding, LARGEST_PLAN, SERVER)
        agreed = encoding_from_json(content.decode(errors="replace"), SERVER)
        if agreed.schema != self._plan.schema:
            raise RefusedError(f"{SERVER} sent an encoding of another schema than its plan's")
        self._ledger.note(Asked(Question.ENCODE), content)
        told = rows_to_measure(self._rows.held_out, agreed.group_numbers, self._settings)
        rows = SiteRows(self._rows.train, told, validation=self._rows.validation)
        self._list_rows(rows, self._plan)
        self._desk = furnish(self._plan, rows, agreed, self._name)
        group, groups = self._desk.holder.examples.group, len(agreed.groups)
        counts = torch.bincount(group, minlength=groups)
        if self._plan.validation:
            counts = torch.cat([counts, self._desk.validation_counts])
        return vector_to_bytes(counts)

    def _list_rows(self, rows: SiteRows, plan: NetworkPlan) -> None:
        """Write down, for the site's own eyes, which of its rows the figures rest on."""
        owner = self._settings.owner or self._name
        held_out = ListedRows(plan.held_out, {owner: rows.held_out.numbers})
        own = {} if rows.validation is None else {owner: rows.validation.numbers}
        set_aside = ListedRows(plan.validation, own)
        if len(held_out) or len(set_aside):
            path = self._folder / f"held_out-{digest_of(plan)[:16]}.json"
            write_held_out(path, plan.seed, held_out, set_aside)

    def curvature(self, directions: object) -> bytes:
        """Tell each group's sum of x (x . v) for a direction v of its own: power iteration."""
        desk, ledger = self._present("a direction")
        if not rate_is_open(desk.plan.runs) or self._methods:
            raise RefusedError(f"{SERVER} asks for curvature, but the learning rate is set")
        if self._curvatures == POWER_ITERATIONS:
            raise RefusedError(f"{SERVER} asks for curvature more than {POWER_ITERATIONS} times")
        groups, features = desk.holder.groups, len(desk.encoding.names)
        like = torch.zeros(groups * (features + 1), dtype=torch.float64)
        by_group = vector_from_bytes(directions, like, SERVER).reshape(groups, -1)
        self._curvatures += 1
        asked = Asked(Question.CURVATURE, round=self._curvatures)
        ledger.note(asked, *_content(by_group))
        return vector_to_bytes(desk.sums_along(by_group).flatten())

    def take_rate(self, rate: object) -> bytes:
        """Take the learning rate that the plan left open."""
        desk, _ = self._present("a learning rate")
        if self._methods:
            raise RefusedError(f"{SERVER} sent a learning rate, but it is set")
        word = checked_bytes(rate, LONGEST_RATE, SERVER).decode(errors="replace")
        self._methods = [run.build() for run in with_rate(desk.plan.runs, word)]
        return b""

    def answer(self, run: object, order: object) -> bytes:
        """Do one round's work for one of the plan's runs."""
        started = time.monotonic()
        desk, ledger = self._present("an order")
        if not isinstance(run, int) or not 0 <= run < len(self._methods):
            raise RefusedError(f"{SERVER} asks for run {run!r}, which its plan does not have")
        came = order_from_bytes(order, desk.start, SERVER)
        asked = Asked(Question.ANSWER, run, came.moment.round, came.phase)
        self._check_order(asked, came, desk)
        ledger.note(asked, *_content(came.parameters, came.weights))
        self._latest = asked
        reply = self._lighter(run, self._methods[run], came, self._reply(run, came, desk), desk)
        if desk.plan.validation and came.phase == 0:
            reply = replace(reply, validation=desk.validation_losses(came.parameters))
        return sums_to_bytes(reply, time.monotonic() - started)

    def validate(self, run: object, order: object) -> bytes:
        """Tell the losses of a run's last model on validation rows."""
        desk, ledger = self._present("a model to validate")
        if not desk.plan.validation:
            raise RefusedError(f"{SERVER} asks for validation, which its plan does not have")
        if not isinstance(run, int) or not 0 <= run < len(self._methods):
            raise RefusedError(f"{SERVER} asks for run {run!r}, which its plan does not have")
        came = order_from_bytes(order, desk.start, SERVER)
        if not 1 <= came.moment.round <= desk.plan.runs[run].rounds + 1 or came.phase:
            raise RefusedError(f"{SERVER} asks to validate round {came.moment.round}")
        asked = Asked(Question.VALIDATE, run, came.moment.round)
        ledger.note(asked, *_content(came.parameters))
        return losses_to_bytes(desk.validation_losses(came.parameters))

    def certify(self, run: object, order: object) -> bytes:
        """Tell sums by group for a proof of how good the first run's answer is."""
        started = time.monotonic()
        desk, ledger = self._present("a model to certify")
        if not desk.plan.certify or run != 0 or not self._methods:
            raise RefusedError(f"{SERVER} asks for a proof, which its plan does not have")
        came = order_from_bytes(order, desk.start, SERVER)
        if not 1 <= came.moment.round <= MAX_ROUNDS or came.phase:
            raise RefusedError(f"{SERVER} asks for round {came.moment.round} of a proof")
        asked = Asked(Question.CERTIFY, round=came.moment.round)
        self._check_after_latest(asked)
        ledger.note(asked, *_content(came.parameters))
        self._latest = asked
        prover = prover_for(desk.workspace.linear, desk.holder.groups)
        reply = answer(prover, came, desk.holder, desk.workspace)
        return sums_to_bytes(
            self._lighter(0, prover, came, reply, desk), time.monotonic() - started
        )

    def measure(self, models: object) -> bytes:
        """Tell sums of scores of each run's models over the rows that were held out."""
        desk, ledger = self._present("models")
        runs = models_from_bytes(models, len(desk.plan.runs), desk.start, SERVER)
        for members, method, planned in zip(runs, self._methods, desk.plan.runs, strict=True):
            most = max_members(method, planned.rounds)
            if len(members) > most:
                raise RefusedError(
                    f"{SERVER} sent {len(members)} models of {planned.method}, which has {most}"
                )
        ledger.note(Asked(Question.MEASURE), *_content(*runs))
        return score_sums_to_bytes(desk.measure(runs))

    def _present(self, what: str) -> tuple[Desk, Ledger]:
        if self._desk is None or self._ledger is None:
            raise RefusedError(f"{SERVER} sent {what} before its encoding")
        return self._desk, self._ledger

    def _check_order(self, asked: Asked, came: Order, desk: Desk) -> None:
        """Refuse an order that no server that keeps to the plan would send now."""
        planned, method = desk.plan.runs[asked.number], self._methods[asked.number]
        if not 1 <= asked.round <= planned.rounds:
            raise RefusedError(f"{SERVER} asks for round {asked.round} of {planned.rounds}")
        if asked.phase > (MAX_PHASE if asks_again(method) else 0):
            raise RefusedError(f"{SERVER} asks {planned.method} too often in a round")
        if came.moment.seed != desk.plan.seed:
            raise RefusedError(f"{SERVER} sent another seed than its plan's")
        self._check_after_latest(asked)

    def _check_after_latest(self, asked: Asked) -> None:
        if self._latest is not None and asked.is_before(self._latest):
            raise RefusedError(f"{SERVER} asks for {asked} after {self._latest}")

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

    def _lighter(
        self, run: int, method: AnyMethod[Any], order: Order, reply: Sums, desk: Desk
    ) -> Sums:
        """Round what the plan lets travel in fewer bytes; keep what that left out of a step."""
        linear = desk.workspace.linear
        part = lighter_part(method, linear, compress=desk.plan.compress)
        if part is Lighter.STEP:
            kept = KeptModels(self._folder / f"{desk.plan.run}-{run}-rounding")
            before = kept.before(order.moment.round, torch.zeros_like(desk.start).double())
            reply, left_out = round_step(reply, before)
            kept.keep(order.moment.round, left_out)
        elif part is Lighter.CURVATURE and linear is not None:
            reply = round_curvature(reply, linear)
        return reply


def _content(*vectors: Tensor) -> list[memoryview]:
    """Return the numbers that were asked about, whatever bytes carried them."""
    return [vector.reshape(-1).contiguous().numpy().data for vector in vectors]
