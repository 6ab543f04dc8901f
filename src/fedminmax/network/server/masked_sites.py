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
from fedminmax.core.validation import LossSums
from fedminmax.data.tables.agree import Grids
from fedminmax.data.tables.encoding import Encoding
from fedminmax.data.tables.encoding_json import encoding_as_json
from fedminmax.data.tables.site_summary import SiteSummary, row_lengths
from fedminmax.network.secure.layouts import (
    Layouts,
    Sizes,
    cells_layout,
    measured_shape,
    summary_layout,
    values_layout,
)
from fedminmax.network.secure.totals import MaskedTotal
from fedminmax.network.server.masked_asking import MaskedAsking, went_away
from fedminmax.network.server.sites import PlainSites, Received, Reply, SentOrder, stage_of
from fedminmax.network.wire.calls import Endpoint, Question
from fedminmax.network.wire.codec import RefusedError, record_to_bytes
from fedminmax.network.wire.messages import models_to_bytes, vector_to_bytes
from fedminmax.network.wire.plan import ALL_SITES, NetworkPlan
from fedminmax.network.wire.sections import (
    SumsOfModels,
    losses_of,
    summary_from_bytes,
    summary_of,
    summary_to_bytes,
    sums_of,
    sums_of_models,
)
from fedminmax.network.wire.values import (
    Values,
    check_counts,
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

    def count_values(self) -> Received[Tensor]:
        """Return the total of counts by bucket of the values of columns without a list."""
        schema, plan = self._plan.schema, self._plan

        def counts() -> Tensor:
            total = self._first_total(Question(Endpoint.COUNT_VALUES), values_layout(schema))
            buckets: Tensor = total.values["counts"]
            most = plan.site_rules.max_rows * plan.max_sites_per_reply
            check_counts(buckets, schema, most, ALL_SITES)
            return buckets

        return self._try(counts)

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

    def count_cells(self, grids: Grids, senders: Sequence[str]) -> Received[Tensor]:
        """Return the total of counts of values in cells."""
        content, stage = record_to_bytes(grids, Grids), len(grids[0].splits)
        payload = {"grids": content, "stage": stage}

        def counts() -> Tensor:
            question = Question(Endpoint.COUNT_CELLS, round=stage)
            total = self._total_of_all(question, cells_layout(grids), payload, content)
            cells: Tensor = total.values["counts"]
            return cells

        return self._try(counts, senders)

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

    def curvature(self, directions: Tensor, senders: Sequence[str]) -> Received[Tensor]:
        """Return each group's sum of x (x . v) for its own direction v."""
        self._directions += 1
        question = Question(Endpoint.CURVATURE, round=self._directions)
        content = vector_to_bytes(directions.flatten())

        def sums() -> Tensor:
            layout, payload = self._found_layouts().curvature(), {"directions": content}
            total = self._total_of_all(question, layout, payload, content)
            along: Tensor = total.values["sums"]
            return along.reshape_as(directions)

        return self._try(sums, senders)

    def away(self, number: int) -> dict[str, str]:  # noqa: ARG002 - who is asked is decided here
        """Return the senders that are not asked in this round: all sites always are."""
        return {}

    def ask(self, sent: SentOrder, senders: Sequence[str]) -> Received[Reply]:
        """Ask for the total of a round, or of a proof."""
        return self._try_total(sent.order.key.round, lambda: self._ask(sent), senders)

    def _ask(self, sent: SentOrder) -> tuple[Reply, MaskedTotal]:
        order, layouts = sent.order, self._found_layouts()
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

    def validate(self, sent: SentOrder, senders: Sequence[str]) -> Received[LossSums]:
        """Ask for the total of losses on validation rows."""
        number = sent.order.key.round
        question = Question(Endpoint.VALIDATE, sent.run, number, sent.order.phase)

        def losses() -> tuple[LossSums, MaskedTotal]:
            layout = self._found_layouts().validation(sent.order)
            total = self._total_of_a_round(question, layout, sent.payload, sent.content)
            return losses_of(total.values), total

        return self._try_total(number, losses, senders)

    def measure(
        self, members: Sequence[Tensor], encoding: Encoding, senders: Sequence[str]
    ) -> Received[SumsOfModels]:
        """Ask for the totals of each run's models: on held-out rows, and by code of training."""
        content = models_to_bytes(members)

        shape = measured_shape(self._plan, encoding, len(members))

        def scores() -> tuple[SumsOfModels, MaskedTotal]:
            layout, payload = self._found_layouts().measure(len(members)), {"models": content}
            question = Question(Endpoint.MEASURE)
            total = self._total_of_a_round(question, layout, payload, content)
            return sums_of_models(total.values, shape), total

        return self._try_total(0, scores, senders)

    def _found_layouts(self) -> Layouts:
        if self._layouts is None:
            raise RefusedError("the rows of all sites are not encoded yet")
        return self._layouts


# All that a server asks: a masked federation is one sender, "all sites".
Sites: TypeAlias = PlainSites | MaskedSites
