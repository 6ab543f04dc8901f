"""A working site: messages in, messages out; its rows never leave it.

The rows are encoded as at all sites (``EncodedSite``). The same code as in the simulation computes
the replies, and nothing here knows how messages travel. Questions must come in order, and every
answer is noted in the site's own ledger before it is given.

Where the plan asks for masked sums, ``prepare`` and ``encode`` return nothing by themselves: every
answer is masked (``site.masking``) and comes with a ``secure`` part that says for which sites. How
it is rounded the site computes itself, from what all sites agreed on (``secure.layouts``).
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedminmax.core.bounds import POWER_ITERATIONS, UNKNOWN_LENGTHS
from fedminmax.core.messages import Sums
from fedminmax.data.tables.encoding import encoding_from_json, has_expected_knots
from fedminmax.data.tables.site_summary import SiteSummary, summarise, without_counts
from fedminmax.methods.method import AnyMethod
from fedminmax.network.planned_runs import needs_learning_rate, with_rate
from fedminmax.network.secure.answers import (
    Values,
    losses_values,
    scores_values,
    summary_layout,
    summary_values,
)
from fedminmax.network.secure.layouts import Layouts, Sizes, sizes_from_bytes
from fedminmax.network.secure.masks import digest
from fedminmax.network.secure.session import Terms
from fedminmax.network.secure.site import SecureSite
from fedminmax.network.site.encoded_site import EncodedSite, encode_site, list_rows, reply_to
from fedminmax.network.site.ledger import Ledger, limits_of
from fedminmax.network.site.masking import (
    Credentials,
    MaskedAnswers,
    checked_values,
    encode_for_masks,
)
from fedminmax.network.site.order_checks import check_after, check_models, check_order
from fedminmax.network.site.policy import SiteRows, check_plan, read_rows, rows_to_measure
from fedminmax.network.site.privacy import (
    PrivateAnswers,
    check_range,
    reading_rules,
    table_digest,
)
from fedminmax.network.site.requests import Endpoint, Request
from fedminmax.network.site.settings import SiteSettings
from fedminmax.network.wire.codec import RefusedError, checked_bytes
from fedminmax.network.wire.messages import (
    losses_to_bytes,
    models_from_bytes,
    order_from_bytes,
    score_sums_to_bytes,
    sums_to_bytes,
    vector_from_bytes,
    vector_to_bytes,
)
from fedminmax.network.wire.plan import NetworkPlan
from fedminmax.network.wire.plan_checks import MAX_PLAN_BYTES, plan_from_bytes
from fedminmax.network.wire.summary import summary_to_bytes
from fedminmax.training.certify import MAX_ROUNDS, prover_for

SERVER = "the server"
MAX_RATE_BYTES = 30


class Site:
    """One site in one job.

    Args:
        name: the site's name in the federation.
        settings: where its table is, and what it allows.
        folder: where it may store data between rounds.
        roster: the sites of the federation, as its authority signed them.
        credentials: the key that the site's masks are signed with; None if it has none.
    """

    def __init__(
        self,
        name: str,
        settings: SiteSettings,
        folder: Path,
        roster: Sequence[str],
        credentials: Credentials | None = None,
    ) -> None:
        self._name = name
        self._settings = settings
        self._folder = folder
        self.ledger = Ledger(folder)
        self._roster = roster
        self._credentials = credentials
        self._masked: MaskedAnswers | None = None
        self._private: PrivateAnswers | None = None
        self._summary: SiteSummary | None = None
        self._plan: NetworkPlan | None = None
        self._rows: SiteRows | None = None
        self._encoded_site: EncodedSite | None = None
        self._methods: list[AnyMethod[Any]] = []
        self._curvatures = 0
        self._direction = b""
        self._lengths = UNKNOWN_LENGTHS
        # The same order may be repeated, but not an earlier one.
        self._latest: Request | None = None

    def prepare(self, plan: object) -> bytes:
        """Read the table with the plan's schema and return its summary."""
        came = plan_from_bytes(plan, SERVER)
        if self._name not in came.sites:
            raise RefusedError(f"{SERVER} has a plan without this site, '{self._name}'")
        # Limits, methods and noise of one plan must not be applied to rows prepared for another.
        if self._plan not in (None, came):
            raise RefusedError(f"{SERVER} sent a second plan")
        methods = [] if needs_learning_rate(came.runs) else [run.build() for run in came.runs]
        check_plan(came, self._settings, self._roster)
        content = checked_bytes(plan, MAX_PLAN_BYTES, SERVER)
        data = table_digest(self._settings)
        told = (content, reading_rules(self._settings).encode())
        self.ledger.begin(came, told, data, limits_of(came, self._settings))
        rows = read_rows(came, self._settings, self._name)
        summary = summarise(rows.train, came.schema)
        private = None
        if came.privacy is not None:
            private = PrivateAnswers(came, self._settings, self._folder)
            private.check(len(rows.train))
            summary = without_counts(summary)
        masked = None if came.secure_aggregation is None else self._new_session(came, content, data)
        self._plan, self._rows, self._summary = came, rows, summary
        self._private, self._masked = private, masked
        self._methods = methods or self._methods
        return summary_to_bytes(summary) if masked is None else b""

    def _new_session(self, plan: NetworkPlan, content: bytes, data: str) -> MaskedAnswers:
        if self._credentials is None or plan.secure_aggregation is None:
            raise RefusedError("this site has no key to sign masks with; copy its kit")
        threshold = plan.secure_aggregation.threshold
        terms = Terms(plan.run, digest("plan", content).hex(), plan.sites, threshold)
        secure = SecureSite(
            self._credentials.identity,
            self._credentials.authority,
            terms,
            self._folder,
            data=data,
            allows_other_sets=self._settings.allow_other_sites,
        )
        return MaskedAnswers(secure, content, self.ledger)

    def keys(self) -> bytes:
        """Return this job's keys for masks."""
        return self._masks().site.keys()

    def set_roster(self, roster: object) -> bytes:
        """Take all sites' keys for masks."""
        return self._masks().site.set_roster(roster)

    def unmask(self, message: object) -> bytes:
        """Help to take the masks off a total of answers that all sites have signed."""
        return self._masks().site.unmask(message)

    def trace(self, message: object) -> bytes:
        """Help to find out who masked wrongly."""
        return self._masks().site.trace(message)

    def _masks(self) -> MaskedAnswers:
        if self._masked is None:
            raise RefusedError(f"{SERVER} asks for masks, which its plan does not have")
        return self._masked

    def summarise(self, secure: object) -> bytes:
        """Return the masked summary of the table."""
        masked = self._masks()
        if self._plan is None or self._summary is None:
            raise RefusedError(f"{SERVER} asks for a summary before its plan")
        summary, schema = self._summary, self._plan.schema
        asked, layout = Request(Endpoint.SUMMARISE), summary_layout(schema)
        return masked.answer(secure, asked, layout, lambda: summary_values(summary, schema))

    def count_rows(self, secure: object) -> bytes:
        """Return the masked counts by group."""
        masked, private = self._masks(), self._private
        encoded_site = self._present("a question")
        if private is not None:
            private.begin()

        def values() -> Values:
            if private is not None:
                return private.census(encoded_site, masked.agreed.encoding)
            return {"counts": self._counts().numpy()}

        return masked.answer(secure, Request(Endpoint.COUNT_ROWS), masked.layouts.counts(), values)

    def encode(self, encoding: object, sizes: object = b"") -> bytes:
        """Encode the rows as all sites do, and return the counts by group.

        ``sizes`` are those of all sites' rows, where sums are masked.
        """
        if self._plan is None or self._rows is None or self._summary is None:
            raise RefusedError(f"{SERVER} sent an encoding before its plan")
        if self._encoded_site is not None:
            raise RefusedError(f"{SERVER} sent a second encoding")
        content = checked_bytes(encoding, MAX_PLAN_BYTES, SERVER)
        agreed = encoding_from_json(content.decode(errors="replace"), SERVER)
        if agreed.schema != self._plan.schema:
            raise RefusedError(f"{SERVER} sent an encoding of another schema than its plan's")
        if not has_expected_knots(agreed, splines=self._plan.model.is_spline):
            raise RefusedError(f"{SERVER} sent an encoding with knots of its own; refused")
        told = checked_bytes(sizes, MAX_PLAN_BYTES, SERVER)
        known = Sizes() if self._masked is None else sizes_from_bytes(told, SERVER)
        self.ledger.note(Request(Endpoint.ENCODE), content, told)
        disclosed = rows_to_measure(self._rows.held_out, agreed.group_numbers, self._settings)
        rows = SiteRows(self._rows.train, disclosed, validation=self._rows.validation)
        list_rows(self._folder, rows, self._plan, self._settings.owner or self._name)
        if self._masked is None:
            self._encoded_site = encode_site(self._plan, rows, agreed, self._name)
            return vector_to_bytes(self._counts())
        own = encode_for_masks(self._plan, rows, agreed, self._name, self._summary)
        self._encoded_site, self._lengths = own.site, own.lengths
        self._masked.agree(Layouts(self._plan, agreed, known), content, told, own.failure)
        return b""

    def _counts(self) -> Tensor:
        """Return training rows by group, and validation rows if the plan sets any aside."""
        encoded_site = self._present("a question")
        counts = encoded_site.train_counts
        if encoded_site.plan.validation:
            counts = torch.cat([counts, encoded_site.validation_counts])
        return counts

    def curvature(self, directions: object, secure: object = None) -> bytes:
        """Return each group's sum of x (x . v) for its own direction v, for power iteration."""
        encoded_site = self._present("a direction")
        if not needs_learning_rate(encoded_site.plan.runs) or self._methods:
            raise RefusedError(f"{SERVER} asks for curvature, but the learning rate is set")
        if self._private is not None:
            raise RefusedError(f"{SERVER} asks for curvature, which [privacy] does not cover")
        content = checked_bytes(directions, MAX_PLAN_BYTES, SERVER)
        again = self._masked is not None and content == self._direction
        if self._curvatures == POWER_ITERATIONS and not again:
            raise RefusedError(f"{SERVER} asks for curvature more than {POWER_ITERATIONS} times")
        groups, features = encoded_site.data.groups, len(encoded_site.encoding.names)
        like = torch.zeros(groups * (features + 1), dtype=torch.float64)
        by_group = vector_from_bytes(directions, like, SERVER).reshape(groups, -1)
        if not again:
            self._curvatures, self._direction = self._curvatures + 1, content
        asked = Request(Endpoint.CURVATURE, round=self._curvatures)
        self.ledger.note(asked, *_content(by_group))
        if self._masked is None:
            return vector_to_bytes(encoded_site.sums_along(by_group).flatten())
        return self._masked.answer(
            secure,
            asked,
            self._masked.layouts.curvature(),
            lambda: {"sums": encoded_site.sums_along(by_group).flatten().numpy()},
            content,
        )

    def take_rate(self, rate: object) -> bytes:
        """Set the learning rate that the plan left open."""
        encoded_site = self._present("a learning rate")
        if self._methods:
            raise RefusedError(f"{SERVER} sent a learning rate, but it is set")
        content = checked_bytes(rate, MAX_RATE_BYTES, SERVER)
        word = content.decode(errors="replace")
        methods = [run.build() for run in with_rate(encoded_site.plan.runs, word)]
        self.ledger.note(Request(Endpoint.TAKE_RATE), content)
        self._methods = methods
        if self._masked is not None:
            self._masked.agree_on_rate(content)
        return b""

    def answer(self, run: object, order: object, secure: object = None) -> bytes:
        """Do one round's work for one of the plan's runs."""
        started = time.monotonic()
        encoded_site = self._present("an order")
        if not isinstance(run, int) or not 0 <= run < len(self._methods):
            raise RefusedError(f"{SERVER} asks for run {run!r}, which its plan does not have")
        came = order_from_bytes(order, encoded_site.start, SERVER)
        asked = Request(Endpoint.ANSWER, run, round=came.key.round, phase=came.phase)
        check_order(asked, came, encoded_site.plan)
        check_after(asked, self._latest)
        method, content = self._methods[run], _content(came.parameters, came.weights)
        if self._private is not None:
            # A rate that the plan leaves open decides answers, too.
            content.append(memoryview(repr(method).encode()))
            check_range(came)
            self._private.begin()
        self.ledger.note(asked, *content)
        self._latest = asked

        def reply() -> Sums:
            state = self._folder / f"{encoded_site.plan.run}-{run}"
            own = reply_to(method, came, encoded_site, state)
            if encoded_site.plan.validation and came.phase == 0:
                own = replace(own, validation=encoded_site.validation_losses(came.parameters))
            return own

        if self._masked is None:
            return sums_to_bytes(reply(), time.monotonic() - started)
        layout = self._masked.layouts.round(method, came)

        def values() -> Values:
            if self._private is not None:
                asked_for = b"".join(content)
                return self._private.reply(encoded_site, method, came, reply(), asked_for)
            return checked_values(method, came, reply(), encoded_site, self._lengths)

        return self._masked.answer(secure, asked, layout, values, _bytes(order))

    def validate(self, run: object, order: object, secure: object = None) -> bytes:
        """Return the losses of a run's last model on validation rows."""
        encoded_site = self._present("a model to validate")
        if not encoded_site.plan.validation:
            raise RefusedError(f"{SERVER} asks for validation, which its plan does not have")
        if not isinstance(run, int) or not 0 <= run < len(self._methods):
            raise RefusedError(f"{SERVER} asks for run {run!r}, which its plan does not have")
        came = order_from_bytes(order, encoded_site.start, SERVER)
        if not 1 <= came.key.round <= encoded_site.plan.runs[run].rounds + 1 or came.phase:
            raise RefusedError(f"{SERVER} asks to validate round {came.key.round}")
        asked = Request(Endpoint.VALIDATE, run, round=came.key.round)
        self.ledger.note(asked, *_content(came.parameters))
        if self._masked is None:
            return losses_to_bytes(encoded_site.validation_losses(came.parameters))
        return self._masked.answer(
            secure,
            asked,
            self._masked.layouts.validation(came),
            lambda: losses_values(encoded_site.validation_losses(came.parameters)),
            _bytes(order),
        )

    def certify(self, run: object, order: object, secure: object = None) -> bytes:
        """Return sums by group for a proof of how good the first run's model is."""
        started = time.monotonic()
        encoded_site = self._present("a model to certify")
        if not encoded_site.plan.certify or run != 0 or not self._methods:
            raise RefusedError(f"{SERVER} asks for a proof, which its plan does not have")
        came = order_from_bytes(order, encoded_site.start, SERVER)
        if not 1 <= came.key.round <= MAX_ROUNDS or came.phase:
            raise RefusedError(f"{SERVER} asks for round {came.key.round} of a proof")
        asked = Request(Endpoint.CERTIFY, round=came.key.round)
        check_after(asked, self._latest)
        self.ledger.note(asked, *_content(came.parameters))
        self._latest = asked
        prover = prover_for(encoded_site.workspace.linear, encoded_site.data.groups)

        def reply() -> Sums:
            state = self._folder / f"{encoded_site.plan.run}-0"
            return reply_to(prover, came, encoded_site, state)

        if self._masked is None:
            return sums_to_bytes(reply(), time.monotonic() - started)
        return self._masked.answer(
            secure,
            asked,
            self._masked.layouts.proof(came),
            lambda: checked_values(prover, came, reply(), encoded_site, self._lengths),
            _bytes(order),
        )

    def measure(self, models: object, secure: object = None) -> bytes:
        """Return sums of scores of each run's models over the held-out rows."""
        encoded_site = self._present("models")
        runs = models_from_bytes(models, len(encoded_site.plan.runs), encoded_site.start, SERVER)
        check_models(runs, self._methods, encoded_site.plan)
        asked = Request(Endpoint.MEASURE)
        self.ledger.note(asked, *_content(*runs))
        if self._private is not None:
            self._private.forget_key()
        if self._masked is None:
            return score_sums_to_bytes(encoded_site.measure(runs))
        return self._masked.answer(
            secure,
            asked,
            self._masked.layouts.measure(len(runs)),
            lambda: scores_values(encoded_site.measure(runs)),
            _bytes(models),
        )

    def _present(self, what: str) -> EncodedSite:
        if self._encoded_site is None:
            raise RefusedError(f"{SERVER} sent {what} before its encoding")
        return self._encoded_site


def _content(*vectors: Tensor) -> list[memoryview]:
    """Return the numbers of a request, independent of how they were encoded."""
    return [vector.reshape(-1).contiguous().numpy().data for vector in vectors]


def _bytes(message: object) -> bytes:
    """Return a message that was read before, as it came."""
    return message if isinstance(message, bytes) else b""
