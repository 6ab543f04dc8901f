"""All sites as one sender: what the server learns are masked totals over the sites.

To the rest of the server a masked federation is one site, "all sites", that holds all rows: sums
are all that the methods need, and a total over sites is what one site with their rows would send
(Papadaki et al. 2021, Lemma 2).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import torch
from torch import Tensor

from fedminmax.core.bounds import RowLengths
from fedminmax.core.messages import zero_sums
from fedminmax.data.tables.encoding import Encoding
from fedminmax.data.tables.encoding_json import encoding_as_json
from fedminmax.data.tables.site_summary import SiteSummary, row_lengths
from fedminmax.network.secure.layouts import (
    Layouts,
    Sizes,
    summary_layout,
)
from fedminmax.network.secure.totals import MaskedTotal
from fedminmax.network.server.masked_asking import MaskedAsking, went_away
from fedminmax.network.server.sites import (
    PlainSites,
    Query,
    Received,
    RecordT,
    Reply,
    SentOrder,
    stage_of,
)
from fedminmax.network.wire.calls import Endpoint, Question
from fedminmax.network.wire.codec import RefusedError, record_to_bytes
from fedminmax.network.wire.plan import ALL_SITES, NetworkPlan
from fedminmax.network.wire.sections import (
    summary_from_bytes,
    summary_of,
    summary_to_bytes,
    sums_of,
)
from fedminmax.network.wire.values import (
    Values,
    totals_to_bytes,
)


class MaskedSites(MaskedAsking):
    """Asks all sites what is asked of "all sites"."""

    def prepare(self) -> Received[SiteSummary]:
        """Begin a session; the summary of all rows is asked for once in a run."""
        started = self._try(self._begin)
        if started.failures or self._plan.schema.open_columns:
            return Received({}, started.failures)
        return self._try(self._ask_for_summary)

    def _ask_for_summary(self) -> SiteSummary:
        schema = self._plan.schema
        if not self._memory.kept.summary:
            total = self._first_total(Question(Endpoint.SUMMARISE), summary_layout(schema))
            summary = summary_to_bytes(summary_of(total.values, schema)).decode()
            self._memory.keep(replace(self._memory.kept, summary=summary))
        return self._summary()

    def name_values(
        self, totals: Tensor, senders: Sequence[str]
    ) -> Received[Mapping[str, tuple[str, ...]]]:
        """Return the common values of all sites; they are not masked, and nobody may be missing."""

        def names() -> Mapping[str, tuple[str, ...]]:
            plain = PlainSites(self._plan, self._transport)
            named = plain.name_values(totals, self._present)
            if named.failures:
                raise RefusedError(went_away(named.failures))
            if named.unreadable:
                raise RefusedError("; ".join(named.unreadable.values()))
            return {
                column: tuple(sorted({v for own in named.records.values() for v in own[column]}))
                for column in self._plan.schema.open_columns
            }

        return self._try(names, senders)

    def take_values(
        self, totals: Tensor, values: Mapping[str, tuple[str, ...]], plan: NetworkPlan
    ) -> Received[SiteSummary]:
        """Send the agreed categories, and return the summary of all rows with them."""
        told = totals_to_bytes(totals), record_to_bytes(values, Values)
        self._tell(Endpoint.TAKE_VALUES, {"totals": told[0], "values": told[1]})
        self._agreed = replace(self._agreed, values=b"".join(told))
        self._plan = plan
        return self._try(self._ask_for_summary)

    def _summary(self) -> SiteSummary:
        content, counted = self._memory.kept.summary.encode(), self._plan.privacy is None
        return summary_from_bytes(content, self._plan.schema, ALL_SITES, counted=counted)

    def encode(
        self, encoding: Encoding, senders: Sequence[str], start: Tensor | None = None
    ) -> Received[Tensor]:
        """Let all sites encode; the counts are asked for once in a run."""
        return self._try(lambda: self._encode(encoding, start), senders)

    def _encode(self, encoding: Encoding, start: Tensor | None) -> Tensor:
        exact, summary = self._plan.privacy is None, self._summary()
        # Under a privacy guarantee the lengths of rows are not needed.
        lengths = row_lengths(summary, encoding) if exact else RowLengths(0.0)
        sizes = Sizes.of(summary.rows, lengths)
        content, told = encoding_as_json(encoding).encode(), record_to_bytes(sizes)
        payload = {"encoding": content, "sizes": told, **stage_of(encoding, start)}
        self._tell(Endpoint.ENCODE, payload)
        self._agreed = replace(self._agreed, encoding=content, sizes=told)
        self._layouts = layouts = Layouts(self._plan, encoding, sizes)
        if not self._memory.kept.counts:
            total = self._total_of_all(Question(Endpoint.COUNT_ROWS), layouts.counts())
            counts = torch.cat(list(total.values.values())).tolist()
            self._memory.keep(replace(self._memory.kept, counts=tuple(counts)))
        precision = torch.int64 if exact else torch.float64
        return torch.tensor(self._memory.kept.counts, dtype=precision)

    def take_rate(self, rate: str, senders: Sequence[str]) -> Mapping[str, str]:
        """Send the learning rate that the plan left open."""
        if senders:
            self._tell(Endpoint.TAKE_RATE, {"rate": rate.encode()})
            self._agreed = replace(self._agreed, rate=rate.encode())
        return {}

    def away(self, number: int) -> dict[str, str]:  # noqa: ARG002 - who is asked is decided here
        """Return the senders that are not asked in this round: all sites always are."""
        return {}

    def ask(self, sent: SentOrder, senders: Sequence[str]) -> Received[Reply]:
        """Ask for the total of a round, or of a proof."""
        return self._try_total(sent.order.key.round, lambda: self._ask(sent), senders)

    def _ask(self, sent: SentOrder) -> tuple[Reply, MaskedTotal]:
        order, layouts = sent.order, self.layouts
        if sent.pairs is not None:
            layout = layouts.smoothing(sent.method, order, sent.pairs)
        else:
            layout = layouts.proof(order) if sent.proves else layouts.round(sent.method, order)
        question = Question(sent.endpoint, sent.run, order.key.round, order.phase)
        total = self._total_of_a_round(question, layout, sent.payload, sent.content)
        if self._plan.privacy is None:
            sums = replace(sums_of(total.values), rounding=total.rounding)
        else:
            # The server has yet to complete them.
            losses, step = total.values["losses"], total.values["step"]
            sums = replace(zero_sums(0, len(losses), 0), step=step, group_loss=losses)
        slowest = max(total.seconds.values(), default=0.0)
        return Reply(sums, slowest, total.bytes_in, total.bytes_out), total

    def query(self, query: Query[RecordT], senders: Sequence[str]) -> Received[RecordT]:
        """Ask for the total of numbers."""
        question, layout = query.question, query.layout
        arguments, content = query.arguments, query.content

        def record() -> tuple[RecordT, MaskedTotal]:
            if question.endpoint is Endpoint.COUNT_VALUES:
                total = self._first_total(question, layout)
            elif question.endpoint in (Endpoint.COUNT_CELLS, Endpoint.CURVATURE):
                total = self._total_of_all(question, layout, arguments, content)
            else:
                total = self._total_of_a_round(question, layout, arguments, content)
            return query.record_of(dict(total.values)), total

        return self._try_total(question.round, record, senders)


# All that a server asks: a masked federation is one sender, "all sites".
Sites: TypeAlias = PlainSites | MaskedSites
