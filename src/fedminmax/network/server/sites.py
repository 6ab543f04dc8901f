"""The sites as the server asks them: records go out and come back, and bytes exist only below.

``PlainSites`` asks every site and reads each one's answer. ``server.masked_sites`` asks for masked
totals, which read like the answers of one sender, "all sites". Whether the numbers can be true is
for the server to check; here a message is only read.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from operator import itemgetter
from typing import Any, Generic, TypeVar

from torch import Tensor

from fedminmax.config.schema import Schema
from fedminmax.core.bounds import RowLimits
from fedminmax.core.messages import Census, Order, Sums
from fedminmax.core.validation import LossSums
from fedminmax.data.tables.agree import Grids
from fedminmax.data.tables.encoding import Encoding
from fedminmax.data.tables.encoding_json import encoding_as_json
from fedminmax.data.tables.site_summary import SiteSummary
from fedminmax.methods.method import AnyMethod
from fedminmax.network.secure.fixed_point import Kind, Layout
from fedminmax.network.secure.layouts import (
    Layouts,
    Sizes,
    cells_layout,
    measured_shape,
    values_layout,
)
from fedminmax.network.server.log import Attendance
from fedminmax.network.wire import messages
from fedminmax.network.wire.calls import NO_ARGUMENTS, Endpoint, Question, Transport, gather
from fedminmax.network.wire.codec import RefusedError, checked_bytes, record_to_bytes
from fedminmax.network.wire.plan import NetworkPlan, plan_to_bytes
from fedminmax.network.wire.sections import (
    Sections,
    SumsOfModels,
    losses_of,
    summary_from_bytes,
    sums_of_models,
)
from fedminmax.network.wire.values import (
    Pairs,
    Values,
    names_from_bytes,
    totals_to_bytes,
)

RecordT = TypeVar("RecordT")


@dataclass(frozen=True, eq=False)
class Received(Generic[RecordT]):
    """What each sender sent, why others sent nothing, and whose message could not be read.

    ``absent`` are the sites that are not in a masked total, each with the reason.
    """

    records: Mapping[str, RecordT]
    failures: Mapping[str, str] = field(default_factory=dict)
    _: KW_ONLY
    unreadable: Mapping[str, str] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)

    @property
    def reasons(self) -> dict[str, str]:
        """Why senders are without a record."""
        return {**self.failures, **self.unreadable}


@dataclass(frozen=True, eq=False)
class Reply:
    """A sender's sums, the seconds it computed, and the bytes that came and went per site.

    ``bytes_out`` are those that a site was sent besides the order.
    """

    sums: Sums
    seconds: float
    bytes_in: int
    bytes_out: int = 0


@dataclass(frozen=True, eq=False)
class SentOrder:
    """An order for one of the plan's runs: of a round, or of the proof that follows the run.

    ``limits`` are what one row can do at its model. With ``validates`` replies have the losses on
    validation rows. With ``pairs``, of an additive model's columns, the order is not one of a run,
    but asks for sums that smoothing is chosen from.
    """

    run: int
    method: AnyMethod[Any]
    order: Order
    census: Census
    limits: RowLimits
    _: KW_ONLY
    proves: bool = False
    validates: bool = False
    pairs: Pairs | None = None

    @cached_property
    def message(self) -> bytes:
        """The order as it is sent; the same for all tries at a round."""
        return messages.order_to_bytes(self.order)

    @property
    def endpoint(self) -> Endpoint:
        """What is asked of a site."""
        if self.pairs is not None:
            return Endpoint.SMOOTH
        return Endpoint.CERTIFY if self.proves else Endpoint.ANSWER

    @property
    def content(self) -> bytes:
        """What masks depend on."""
        return self.message + (b"" if self.pairs is None else record_to_bytes(self.pairs, Pairs))

    @property
    def payload(self) -> dict[str, object]:
        """What a site gets."""
        if self.pairs is not None:
            return {"order": self.message, "pairs": record_to_bytes(self.pairs, Pairs)}
        return {"run": self.run, "order": self.message}


def stage_of(encoding: Encoding, start: Tensor | None) -> dict[str, object]:
    """Return what sites get besides an encoding: its stage, and where an additive model starts."""
    begin = {} if start is None else {"start": messages.vector_to_bytes(start)}
    return {"stage": encoding.stage, **begin}


@dataclass(frozen=True, eq=False)
class Query(Generic[RecordT]):
    """A question whose answer is numbers, in the sections of a layout, and how they are read.

    ``content`` is what masks depend on. Whether the numbers can be true is for others to check.
    """

    question: Question
    arguments: Mapping[str, object]
    content: bytes
    layout: Layout
    record_of: Callable[[Sections], RecordT]


def values_query(schema: Schema) -> Query[Tensor]:
    """Ask for counts by bucket of the values of columns without a list."""
    question = Question(Endpoint.COUNT_VALUES)
    return Query(question, NO_ARGUMENTS, b"", values_layout(schema), itemgetter("counts"))


def cells_query(grids: Grids) -> Query[Tensor]:
    """Ask for counts of values in the cells of the last refinement of grids, in turn."""
    content, stage = record_to_bytes(grids, Grids), len(grids[0].splits)
    question = Question(Endpoint.COUNT_CELLS, round=stage)
    arguments = {"grids": content, "stage": stage}
    return Query(question, arguments, content, cells_layout(grids), itemgetter("counts"))


def curvature_query(layouts: Layouts, directions: Tensor, number: int) -> Query[Tensor]:
    """Ask for each group's sum of x (x . v) for its own direction v, for this ``number``th time."""
    content = messages.vector_to_bytes(directions.flatten())
    return Query(
        Question(Endpoint.CURVATURE, round=number),
        {"directions": content},
        content,
        layouts.curvature(),
        lambda sections: sections["sums"].reshape_as(directions),
    )


def validation_query(layouts: Layouts, sent: SentOrder) -> Query[LossSums]:
    """Ask for the losses of the order's model on validation rows."""
    order = sent.order
    question = Question(Endpoint.VALIDATE, sent.run, order.key.round, order.phase)
    return Query(question, sent.payload, sent.content, layouts.validation(order), losses_of)


def models_query(layouts: Layouts, members: Sequence[Tensor]) -> Query[SumsOfModels]:
    """Ask for sums of each run's models: of scores on held-out rows, and by code of training."""
    content = messages.models_to_bytes(members)
    shape = measured_shape(layouts.plan, layouts.encoding, len(members))
    return Query(
        Question(Endpoint.MEASURE),
        {"models": content},
        content,
        layouts.measure(len(members)),
        lambda sections: sums_of_models(sections, shape),
    )


def _numbers_from_bytes(message: object, layout: Layout, sender: str) -> Sections:
    """Read the sections of a layout as they are, not rounded."""
    vectors = {
        section.name: messages.counts(section.length)
        if section.kind is Kind.COUNT
        else messages.reals(section.length)
        for section in layout.sections
    }
    limit = 8 * sum(section.length for section in layout.sections) + messages.HEADER_BYTES
    return messages.sections_from_bytes(message, vectors, limit, sender)[0]


class PlainSites:
    """Sites whose answers the server sees one by one; ``senders`` are their names."""

    def __init__(self, plan: NetworkPlan, transport: Transport) -> None:
        self._plan = plan
        self._transport = transport
        self._attendance = Attendance(plan.site_rules)
        self._layouts: Layouts | None = None

    @property
    def layouts(self) -> Layouts:
        """The layouts of answers, once rows are encoded."""
        if self._layouts is None:
            raise RefusedError("the rows of all sites are not encoded yet")
        return self._layouts

    def prepare(self) -> Received[SiteSummary]:
        """Send the plan, and return summaries of training rows if it lists all categories."""
        schema, payload = self._plan.schema, {"plan": plan_to_bytes(self._plan)}
        if schema.open_columns:
            answers = gather(self._transport(self._plan.sites, Endpoint.PREPARE, payload))
            return Received({}, answers.failures)
        return self._ask_all(
            self._plan.sites,
            Endpoint.PREPARE,
            payload,
            lambda message, site: summary_from_bytes(message, schema, site),
        )

    def name_values(
        self, totals: Tensor, senders: Sequence[str]
    ) -> Received[Mapping[str, tuple[str, ...]]]:
        """Return the values that each site has, and that are common by these totals."""
        payload = {"totals": totals_to_bytes(totals)}
        return self._ask_all(
            senders,
            Endpoint.NAME_VALUES,
            payload,
            lambda message, site: names_from_bytes(message, totals, self._plan.schema, site),
        )

    def take_values(
        self, totals: Tensor, values: Mapping[str, tuple[str, ...]], plan: NetworkPlan
    ) -> Received[SiteSummary]:
        """Send the agreed categories, and return summaries with them."""
        self._plan = plan
        return self._ask_all(
            plan.sites,
            Endpoint.TAKE_VALUES,
            {"totals": totals_to_bytes(totals), "values": record_to_bytes(values, Values)},
            lambda message, site: summary_from_bytes(message, plan.schema, site),
        )

    def encode(
        self, encoding: Encoding, senders: Sequence[str], start: Tensor | None = None
    ) -> Received[Tensor]:
        """Send the encoding, and return rows by group; noisy sums under a privacy guarantee.

        An additive model has a ``start`` besides, once its smoothing is chosen.
        Where rows are set aside for validation, their counts follow those of the training rows.
        """
        # Nothing is rounded, so sizes do not matter.
        self._layouts = layouts = Layouts(self._plan, encoding, Sizes())
        content = encoding_as_json(encoding).encode()
        question = Question(Endpoint.ENCODE, round=encoding.stage)
        arguments = {"encoding": content, **stage_of(encoding, start)}
        read: Callable[[Sections], Tensor] = itemgetter("counts")
        return self.query(Query(question, arguments, content, layouts.counts(), read), senders)

    def take_rate(self, rate: str, senders: Sequence[str]) -> Mapping[str, str]:
        """Send the learning rate that the plan left open; return who did not take it, and why."""
        payload = {"rate": rate.encode()}
        return gather(self._transport(senders, Endpoint.TAKE_RATE, payload)).failures

    def away(self, number: int) -> dict[str, str]:
        """Return the sites that are not asked in this round, each with the reason."""
        return self._attendance.away(number)

    def ask(self, sent: SentOrder, senders: Sequence[str]) -> Received[Reply]:
        """Send an order, and read each reply as it arrives."""
        number = sent.order.key.round
        gone = self._attendance.find_gone(self._transport, senders, number)
        failures = {site: f"{site} is not connected" for site in gone}
        asked = [site for site in senders if site not in gone]
        if not asked:
            return Received({}, failures)
        limit = messages.max_reply_bytes(sent.method, sent.order.parameters, sent.census)
        seconds = {site: self._attendance.seconds_for(site) for site in asked}
        started, replies, unreadable = time.monotonic(), {}, {}
        for answer in self._transport(asked, sent.endpoint, sent.payload, seconds):
            site = answer.site
            if answer.failure is not None:
                failures[site] = answer.failure
                if answer.late:
                    self._attendance.missed(site, number)
                continue
            self._attendance.came(site, time.monotonic() - started)
            try:
                content = checked_bytes(answer.message, limit, site)
                sums, took = messages.sums_from_bytes(
                    content,
                    sent.order.parameters,
                    groups=sent.census.groups,
                    limit=limit,
                    sender=site,
                    validates=sent.validates,
                )
                replies[site] = Reply(sums, took, len(content))
            except RefusedError as error:
                unreadable[site] = str(error)
        return Received(replies, failures, unreadable=unreadable)

    def query(self, query: Query[RecordT], senders: Sequence[str]) -> Received[RecordT]:
        """Ask for numbers."""
        return self._ask_all(
            senders,
            query.question.endpoint,
            query.arguments,
            lambda message, site: query.record_of(_numbers_from_bytes(message, query.layout, site)),
        )

    def _ask_all(
        self,
        sites: Sequence[str],
        endpoint: Endpoint,
        payload: Mapping[str, object],
        read: Callable[[object, str], RecordT],
    ) -> Received[RecordT]:
        """Ask all of these, and read their answers in the order of the sites."""
        answers = gather(self._transport(sites, endpoint, payload))
        records, unreadable = {}, {}
        for site in (site for site in sites if site in answers.messages):
            try:
                records[site] = read(answers.messages[site], site)
            except RefusedError as error:
                unreadable[site] = str(error)
        return Received(records, answers.failures, unreadable=unreadable)
