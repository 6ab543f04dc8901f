"""A site before the first round: it takes a plan, and agrees on how rows are encoded.

Every question is noted in the site's own journal before it is answered, and one with other content
is another question: there is one answer in a run, or a few without masks. Where sums are masked,
``prepare`` and ``encode`` return nothing by themselves, and every question comes with an ``Ask``
that says for which sites. How an answer is rounded the site computes itself, from what all sites
agreed on (``secure.layouts``).
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedminmax.config.planned_runs import needs_learning_rate, with_rate
from fedminmax.config.schema import Schema
from fedminmax.core.bounds import POWER_ITERATIONS, UNKNOWN_LENGTHS
from fedminmax.core.errors import InputError
from fedminmax.data.tables.agree import Grids, count_grids
from fedminmax.data.tables.agreed_values import check_totals, common_values, complete, with_values
from fedminmax.data.tables.codes import check_own_codes
from fedminmax.data.tables.encoding import lengths_with
from fedminmax.data.tables.encoding_json import encoding_from_json
from fedminmax.data.tables.site_summary import summarise
from fedminmax.methods.method import AnyMethod, lets_sites_keep
from fedminmax.network.secure.layouts import (
    Layouts,
    cells_layout,
    sizes_from_bytes,
    summary_layout,
    values_layout,
)
from fedminmax.network.secure.messages import Ask, UnmaskAsk
from fedminmax.network.site import policy
from fedminmax.network.site.encoded_site import (
    EncodedSite,
    encode_site,
    list_rows,
    read_smoothing_question,
    reply_to,
    started_at,
)
from fedminmax.network.site.journal import Journal
from fedminmax.network.site.policy import SiteRows
from fedminmax.network.site.privacy import reading_rules, table_digest
from fedminmax.network.site.sender import (
    Asked,
    Credentials,
    MaskedSender,
    Prepared,
    check_before_masking,
    encode_for_masks,
    new_sender,
    prepared,
)
from fedminmax.network.site.settings import SiteSettings
from fedminmax.network.wire.calls import Endpoint, Question
from fedminmax.network.wire.codec import RefusedError, checked_bytes, record_to_bytes
from fedminmax.network.wire.messages import vector_from_bytes
from fedminmax.network.wire.plan import MAX_PLAN_BYTES, digest_of, plan_from_bytes
from fedminmax.network.wire.sections import (
    Sections,
    sections_of_summary,
    sections_of_sums,
    summary_to_bytes,
)
from fedminmax.network.wire.values import (
    Values,
    by_column,
    check_counts,
    check_names,
    counts_of,
    grids_from_bytes,
    totals_from_bytes,
    values_from_bytes,
)

SERVER = "the server"
MAX_RATE_BYTES = 30


class AgreeingSite:
    """One site in one job, up to the first round.

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
        self._roster = roster
        self._credentials = credentials
        self.journal = Journal(folder)
        self._prepared: Prepared | None = None
        self._encoded_site: EncodedSite | None = None
        self._grids: Grids = ()
        self._methods: Sequence[AnyMethod[Any]] = ()
        # Where the site keeps what each run leaves from round to round, if its method does.
        self._states: Sequence[Path | None] = ()
        self._curvatures = 0
        self._direction = b""
        self._lengths = UNKNOWN_LENGTHS
        # The same order may be repeated, but not an earlier one.
        self._latest: Question | None = None

    @property
    def is_masked(self) -> bool:
        """Whether numbers leave under masks."""
        return self._prepared is not None and isinstance(self._prepared.sender, MaskedSender)

    def prepare(self, plan: object) -> bytes:
        """Read the table with the plan's schema and return its summary."""
        came = plan_from_bytes(plan, SERVER)
        if self._name not in came.sites:
            raise RefusedError(f"{SERVER} has a plan without this site, '{self._name}'")
        # Limits, methods and noise of one plan must not be applied to rows prepared for another.
        if self._prepared is not None and self._prepared.came != came:
            raise RefusedError(f"{SERVER} sent a second plan")
        methods = [] if needs_learning_rate(came.runs) else [run.build() for run in came.runs]
        policy.check_plan(came, self._settings, self._roster)
        content = checked_bytes(plan, MAX_PLAN_BYTES, SERVER)
        data, rules = table_digest(self._settings), reading_rules(self._settings).encode()
        limits = policy.limits_of(came, self._settings)
        self.journal.begin(came.run, digest_of(came), data, limits, content, rules)
        sender = new_sender(came, content, self._credentials, self.journal)
        self._prepared = prepared(came, self._settings, self._name, self._folder, sender)
        if methods:
            self._take_methods(came.run, methods)
        # A summary needs the categories that the plan leaves open.
        hides = self.is_masked or bool(came.schema.open_columns)
        return b"" if hides else summary_to_bytes(self._prepared.summary)

    def keys(self) -> bytes:
        """Return this job's keys for masks."""
        return self._masks().site.keys()

    def set_roster(self, roster: object) -> bytes:
        """Take all sites' keys for masks."""
        return self._masks().site.set_roster(roster)

    def unmask(self, asked: UnmaskAsk) -> bytes:
        """Help to take the masks off a total of answers that all sites have signed."""
        return self._masks().site.unmask(asked)

    def trace(self, question: Question) -> bytes:
        """Help to find out who masked wrongly."""
        return self._masks().site.trace(question)

    def _masks(self) -> MaskedSender:
        if self._prepared is None or not isinstance(self._prepared.sender, MaskedSender):
            raise RefusedError(f"{SERVER} asks for masks, which its plan does not have")
        return self._prepared.sender

    def _job(self, what: str, *, is_open: bool = False) -> Prepared:
        """Return the job, whose categories are all agreed on unless it ``is_open``."""
        if self._prepared is None:
            raise RefusedError(f"{SERVER} sent {what} before its plan")
        if bool(self._prepared.plan.schema.open_columns) != is_open:
            when = "after" if is_open else "before"
            raise RefusedError(f"{SERVER} sent {what} {when} the lists of categories")
        return self._prepared

    def count_values(self, ask: Ask | None = None) -> bytes:
        """Return the counts by bucket of values of columns without a list."""
        job = self._job("a question about values", is_open=True)
        schema = job.plan.schema
        counts = counts_of(job.rows.train.features, schema)
        asked = Asked(Question(Endpoint.COUNT_VALUES), ask=ask)
        return job.sender.send(asked, lambda: {"counts": counts}, values_layout(schema))

    def name_values(self, totals: object) -> bytes:
        """Name this site's values that are common enough by these totals, of each open column."""
        job = self._job("totals of values", is_open=True)
        schema, rows = job.plan.schema, job.rows.train.features
        claimed = _claimed(job, totals)
        self.journal.allow(Question(Endpoint.NAME_VALUES), bytes_of(totals))
        names = {
            column: common_values(rows, column, counts)
            for column, counts in by_column(claimed, schema).items()
        }
        return record_to_bytes(names, Values)

    def take_values(self, totals: object, values: object) -> bytes:
        """Take the agreed categories of columns without a list; return the summary with them."""
        job = self._job("lists of categories", is_open=True)
        before = job.plan.schema
        lists = values_from_bytes(values, before, SERVER)
        check_names(lists, _claimed(job, totals), before, SERVER)
        told, content = bytes_of(totals), bytes_of(values)
        self.journal.allow(Question(Endpoint.TAKE_VALUES), told, content)
        schema = with_values(before, {column: [own] for column, own in lists.items()})
        rows, plan = completed_rows(job.rows, schema), replace(job.plan, schema=schema)
        summary = summarise(rows.train, schema)
        check_own_codes(summary, schema, self._settings.owner or self._name)
        if isinstance(job.sender, MaskedSender):
            job.sender.agree_on_values(told + content)
        self._prepared = replace(job, plan=plan, rows=rows, summary=summary)
        return b"" if self.is_masked else summary_to_bytes(summary)

    def summarise(self, ask: Ask | None = None) -> bytes:
        """Return the masked summary of the table."""
        masked, job = self._masks(), self._job("a question")
        asked = Asked(Question(Endpoint.SUMMARISE), ask=ask)
        return masked.send(
            asked,
            lambda: sections_of_summary(job.summary, job.plan.schema),
            summary_layout(job.plan.schema),
        )

    def count_rows(self, ask: Ask | None = None) -> bytes:
        """Return the masked counts by group."""
        masked, (job, encoded_site) = self._masks(), self._ready("a question")
        private = job.private
        if private is not None:
            private.begin()

        def counts() -> Sections:
            if private is not None:
                return private.census(encoded_site, masked.agreed.encoding)
            return {"counts": encoded_site.counts}

        asked = Asked(Question(Endpoint.COUNT_ROWS), ask=ask)
        return masked.send(asked, counts, Layouts.counts)

    def count_cells(self, grids: object, stage: object, ask: Ask | None = None) -> bytes:
        """Return how many values of number columns are in the cells of grids."""
        job = self._job("grids")
        if not job.plan.model.has_codes or self._encoded_site is not None:
            raise RefusedError(f"{SERVER} sent grids, which its plan does not have now")
        came = grids_from_bytes(grids, job.plan.schema, self._grids, SERVER)
        question = Question(Endpoint.COUNT_CELLS, round=len(came[0].splits))
        policy.check_stage(question, stage)
        self.journal.allow(question, bytes_of(grids))
        self._grids = came

        def counts() -> Sections:
            quantities = job.rows.train.features.quantities
            return {"counts": torch.from_numpy(count_grids(quantities, came))}

        asked = Asked(question, bytes_of(grids), ask)
        return job.sender.send(asked, counts, cells_layout(came))

    def encode(
        self, encoding: object, sizes: object = b"", stage: object = 0, start: object = b""
    ) -> bytes:
        """Encode the rows as all sites do, and return the counts by group.

        ``sizes`` are those of all sites' rows, where sums are masked. The encoding of an additive
        model comes a second time, as ``stage`` 1, with smoothing and pairs, and with the model that
        training starts from; that of a network on effects with these.
        """
        job = self._job("an encoding")
        content = checked_bytes(encoding, MAX_PLAN_BYTES, SERVER)
        agreed = encoding_from_json(content.decode(errors="replace"), SERVER)
        before = None if self._encoded_site is None else self._encoded_site.encoding
        policy.check_encoding(agreed, job.plan, before)
        told = checked_bytes(sizes, MAX_PLAN_BYTES, SERVER)
        all_sizes = sizes_from_bytes(told, SERVER) if self.is_masked else None
        question = Question(Endpoint.ENCODE, round=agreed.stage)
        policy.check_stage(question, stage)
        begin = checked_bytes(start, MAX_PLAN_BYTES, SERVER)
        self.journal.allow(question, content, told, begin)
        disclosed = policy.rows_to_measure(job.rows.held_out, agreed.group_numbers, self._settings)
        rows = policy.SiteRows(job.rows.train, disclosed, validation=job.rows.validation)
        list_rows(self._folder, rows, job.plan, self._settings.owner or self._name)
        if all_sizes is None:
            encoded_site = started_at(
                encode_site(job.plan, rows, agreed, self._name), begin, SERVER
            )
            self._encoded_site = encoded_site
            counts = {"counts": encoded_site.counts}
            return job.sender.send(Asked(question), lambda: counts, Layouts.counts)
        encoded = encode_for_masks(job.plan, rows, agreed, self._name, job.summary)
        self._encoded_site = started_at(encoded.site, begin, SERVER)
        self._lengths = encoded.lengths
        layouts = Layouts(job.plan, agreed, all_sizes)
        self._masks().agree(layouts, content, told, encoded.failure)
        return b""

    def smooth(self, order: object, pairs: object, ask: Ask | None = None) -> bytes:
        """Return sums of the plain mean fit, from which smoothing and pairs are chosen."""
        job, encoded_site = self._ready("a question about smoothing")
        came = read_smoothing_question(order, pairs, encoded_site, SERVER)
        self.journal.allow(came.question, *content_of(came.order.parameters), bytes_of(pairs))

        def sections() -> Sections:
            reply = reply_to(came.method, came.order, came.site)
            if self.is_masked:
                lengths = lengths_with(self._lengths, encoded_site.encoding, came.site.encoding)
                check_before_masking(came.method, came.order, reply, came.site, lengths)
            return sections_of_sums(reply)

        asked = Asked(came.question, bytes_of(order) + bytes_of(pairs), ask)
        return job.sender.send(
            asked, sections, lambda layouts: layouts.smoothing(came.method, came.order, came.pairs)
        )

    def curvature(self, directions: object, ask: Ask | None = None) -> bytes:
        """Return each group's sum of x (x . v) for its own direction v, for power iteration."""
        job, encoded_site = self._ready("a direction")
        if not needs_learning_rate(encoded_site.plan.runs) or self._methods:
            raise RefusedError(f"{SERVER} asks for curvature, but the learning rate is set")
        if job.private is not None:
            raise RefusedError(f"{SERVER} asks for curvature, which [privacy] does not cover")
        content = checked_bytes(directions, MAX_PLAN_BYTES, SERVER)
        again = self.is_masked and content == self._direction
        if self._curvatures == POWER_ITERATIONS and not again:
            raise RefusedError(f"{SERVER} asks for curvature more than {POWER_ITERATIONS} times")
        groups, features = encoded_site.data.groups, len(encoded_site.encoding.names)
        like = torch.zeros(groups * (features + 1), dtype=torch.float64)
        by_group = vector_from_bytes(directions, like, SERVER).reshape(groups, -1)
        if not again:
            self._curvatures, self._direction = self._curvatures + 1, content
        question = Question(Endpoint.CURVATURE, round=self._curvatures)
        self.journal.allow(question, *content_of(by_group))
        return job.sender.send(
            Asked(question, content, ask),
            lambda: {"sums": encoded_site.sums_along(by_group).flatten()},
            Layouts.curvature,
        )

    def take_rate(self, rate: object) -> bytes:
        """Set the learning rate that the plan left open."""
        job, _ = self._ready("a learning rate")
        if self._methods:
            raise RefusedError(f"{SERVER} sent a learning rate, but it is set")
        content = checked_bytes(rate, MAX_RATE_BYTES, SERVER)
        word = content.decode(errors="replace")
        methods = [run.build() for run in with_rate(job.plan.runs, word)]
        self.journal.allow(Question(Endpoint.TAKE_RATE), content)
        self._take_methods(job.plan.run, methods)
        if self.is_masked:
            self._masks().agree_on_rate(content)
        return b""

    def _take_methods(self, run: str, methods: Sequence[AnyMethod[Any]]) -> None:
        """Take the methods of the runs, once all their options are known."""
        self._methods = methods
        self._states = [
            self._folder / f"{run}-{number}" if lets_sites_keep(method) else None
            for number, method in enumerate(methods)
        ]

    def _ready(self, what: str) -> tuple[Prepared, EncodedSite]:
        if self._prepared is None or self._encoded_site is None:
            raise RefusedError(f"{SERVER} sent {what} before its encoding")
        return self._prepared, self._encoded_site


def content_of(*vectors: Tensor) -> list[memoryview]:
    """Return the numbers of a request, independent of how they were encoded."""
    return [vector.reshape(-1).contiguous().numpy().data for vector in vectors]


def bytes_of(message: object) -> bytes:
    """Return a message that was read before, as it came."""
    return message if isinstance(message, bytes) else b""


def completed_rows(rows: SiteRows, schema: Schema) -> SiteRows:
    """Return rows whose codes count the agreed categories."""
    validation = None if rows.validation is None else complete(rows.validation, schema)
    train, held_out = complete(rows.train, schema), complete(rows.held_out, schema)
    return replace(rows, train=train, held_out=held_out, validation=validation)


def _claimed(job: Prepared, message: object) -> Tensor:
    """Return the totals that the server claims; refuse those that would open too many buckets."""
    plan = job.plan
    totals = totals_from_bytes(message, plan.schema, SERVER)
    check_counts(totals, plan.schema, plan.site_rules.max_rows * len(plan.sites), SERVER)
    try:
        for column, counts in by_column(totals, plan.schema).items():
            check_totals(counts, column)
    except InputError as error:
        raise RefusedError(f"{SERVER} sent totals by which {error}") from error
    return totals
