"""All sites as one sender: what the server learns are masked totals over the sites.

To the rest of the server a masked federation is one site, "all sites", that holds all rows: sums
are all that the methods need, and a total over sites is what one site with their rows would send
(Papadaki et al. 2021, Lemma 2).

Who is in the first total, that of the summaries, is in the run, and is kept on the disk with it:
totals of the same request over two sets of sites would show the difference between the sets. For
the same reason a total that sites have begun to unmask is asked of exactly the same sites again
after a fault, and before the first round nobody may be missing.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedminmax.core.bounds import RowLengths
from fedminmax.core.errors import InputError
from fedminmax.core.messages import Sums, zero_sums
from fedminmax.core.validation import LossSums
from fedminmax.data.tables.agree import Grids
from fedminmax.data.tables.encoding import Encoding, encoding_as_json, row_lengths
from fedminmax.data.tables.site_summary import SiteSummary
from fedminmax.metrics.sums import ScoreSums
from fedminmax.network.secure.fixed_point import FailedSitesError, Layout
from fedminmax.network.secure.layouts import (
    Layouts,
    Sizes,
    cells_layout,
    score_shape,
    sizes_to_bytes,
    summary_layout,
    values_layout,
)
from fedminmax.network.secure.masks import digest
from fedminmax.network.secure.messages import Agreed
from fedminmax.network.secure.session import Terms
from fedminmax.network.secure.totals import (
    MaskedTotal,
    MaskedTotals,
    NoTotalError,
    open_session,
)
from fedminmax.network.server.agree_values import names_of_all
from fedminmax.network.server.masked_memory import MaskedMemory
from fedminmax.network.server.sites import Attendance, Received, RecordT, Reply, SentOrder
from fedminmax.network.wire.codec import RefusedError
from fedminmax.network.wire.endpoints import NO_ARGUMENTS, Endpoint, Question
from fedminmax.network.wire.grids import grids_to_bytes
from fedminmax.network.wire.messages import models_to_bytes, vector_to_bytes
from fedminmax.network.wire.plan import ALL_SITES, NetworkPlan, SecureAggregation, plan_to_bytes
from fedminmax.network.wire.sections import losses_of, scores_of, summary_of, sums_of
from fedminmax.network.wire.summary import summary_from_bytes, summary_to_bytes
from fedminmax.network.wire.transport import Transport, gather
from fedminmax.network.wire.values import check_counts, totals_to_bytes, values_to_bytes

LOG = logging.getLogger("fedminmax.server")


class MaskedSites:
    """Asks all sites what is asked of "all sites".

    Args:
        plan: what is run.
        secure: how its sums are masked.
        transport: how the sites are reached.
        folder: where the server keeps this plan's runs.
    """

    def __init__(
        self, plan: NetworkPlan, secure: SecureAggregation, transport: Transport, folder: Path
    ) -> None:
        self._plan = plan
        self._secure = secure
        self._transport = transport
        self._memory = MaskedMemory(folder)
        self._attendance = Attendance(plan.site_rules)
        self._totals: MaskedTotals | None = None
        self._present: tuple[str, ...] = ()
        self._absent: dict[str, str] = {}
        self._agreed = Agreed(b"")
        self._layouts: Layouts | None = None
        self._directions = 0

    def prepare(self) -> Received[SiteSummary]:
        """Begin a session; the summary of all rows is asked for once in a run."""
        started = self._try(self._begin)
        if started.failures or self._plan.schema.open_columns:
            return Received({}, started.failures)
        return self._try(self._ask_for_summary)

    def _begin(self) -> None:
        plan, content = self._plan, plan_to_bytes(self._plan)
        payload = {"plan": content}
        failures = dict(gather(self._transport(plan.sites, Endpoint.PREPARE, payload)).failures)
        if self._memory.kept.sites:
            late = [site for site in plan.sites if site not in self._memory.kept.sites]
            failures |= {site: f"{site} was not there when this run began" for site in late}
        terms = Terms(plan.run, digest("plan", content).hex(), plan.sites, self._secure.threshold)
        roster, refused = open_session(self._transport, terms, failures=failures)
        self._totals = MaskedTotals(self._transport, roster, self._memory.note_begun)
        self._present, self._absent = roster.sites, dict(refused)
        self._agreed = Agreed(content)

    def _ask_for_summary(self) -> SiteSummary:
        schema = self._plan.schema
        if not self._memory.kept.summary:
            total = self._first_total(Question(Endpoint.SUMMARISE), summary_layout(schema))
            summary = summary_to_bytes(summary_of(total.values, schema)).decode()
            self._memory.keep(replace(self._memory.kept, summary=summary))
        return self._summary()

    def _first_total(self, question: Question, layout: Layout) -> MaskedTotal:
        """Ask for a total; who is in the first one of a run is in the run."""
        if self._memory.kept.sites:
            return self._total_of_all(question, layout)
        total = self._total(question, layout, self._present)
        self._memory.keep(replace(self._memory.kept, sites=total.sites))
        self._present = total.sites
        self._absent |= total.failures
        return total

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
        schema = self._plan.schema
        return self._try(
            lambda: names_of_all(self._transport, self._present, totals, schema), senders
        )

    def take_values(
        self, totals: Tensor, values: Mapping[str, tuple[str, ...]], plan: NetworkPlan
    ) -> Received[SiteSummary]:
        """Send the agreed categories, and return the summary of all rows with them."""
        told = totals_to_bytes(totals), values_to_bytes(values)
        self._tell(Endpoint.TAKE_VALUES, {"totals": told[0], "values": told[1]})
        self._agreed = replace(self._agreed, values=b"".join(told))
        self._plan = plan
        return self._try(self._ask_for_summary)

    def _summary(self) -> SiteSummary:
        content, counted = self._memory.kept.summary.encode(), self._plan.privacy is None
        return summary_from_bytes(content, self._plan.schema, ALL_SITES, counted=counted)

    def count_cells(self, grids: Grids, senders: Sequence[str]) -> Received[Tensor]:
        """Return the total of counts of values in cells."""
        content, stage = grids_to_bytes(grids), len(grids[0].splits)
        payload = {"grids": content, "stage": stage}

        def counts() -> Tensor:
            question = Question(Endpoint.COUNT_CELLS, round=stage)
            total = self._total_of_all(question, cells_layout(grids), payload, content)
            cells: Tensor = total.values["counts"]
            return cells

        return self._try(counts, senders)

    def encode(self, encoding: Encoding, senders: Sequence[str]) -> Received[Tensor]:
        """Let all sites encode; the counts are asked for once in a run."""
        return self._try(lambda: self._encode(encoding), senders)

    def _encode(self, encoding: Encoding) -> Tensor:
        exact, summary = self._plan.privacy is None, self._summary()
        # Under a privacy guarantee the lengths of rows are not needed.
        lengths = row_lengths(summary, encoding) if exact else RowLengths(0.0)
        sizes = Sizes.of(summary.rows, lengths)
        content, told = encoding_as_json(encoding).encode(), sizes_to_bytes(sizes)
        self._tell(Endpoint.ENCODE, {"encoding": content, "sizes": told, "stage": encoding.stage})
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

    def _tell(self, endpoint: Endpoint, payload: Mapping[str, object]) -> None:
        """Tell all sites something; those who do not take it are no longer there."""
        failures = gather(self._transport(self._present, endpoint, payload)).failures
        self._present = tuple(site for site in self._present if site not in failures)
        self._absent |= failures

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
        layout = layouts.proof(order) if sent.proves else layouts.round(sent.method, order)
        question = Question(sent.endpoint, sent.run, order.key.round, order.phase)
        total = self._total_of_a_round(question, layout, sent.payload, sent.message)
        if self._plan.privacy is None:
            sums = replace(sums_of(total.values), rounding=total.rounding)
        else:
            sums = _noisy_sums(total.values)
        slowest = max(total.seconds.values(), default=0.0)
        return Reply(sums, slowest, total.bytes_in, total.bytes_out), total

    def validate(self, sent: SentOrder, senders: Sequence[str]) -> Received[LossSums]:
        """Ask for the total of losses on validation rows."""
        number = sent.order.key.round
        question = Question(Endpoint.VALIDATE, sent.run, number, sent.order.phase)

        def losses() -> tuple[LossSums, MaskedTotal]:
            layout = self._found_layouts().validation(sent.order)
            total = self._total_of_a_round(question, layout, sent.payload, sent.message)
            return losses_of(total.values), total

        return self._try_total(number, losses, senders)

    def measure(
        self, members: Sequence[Tensor], encoding: Encoding, senders: Sequence[str]
    ) -> Received[ScoreSums]:
        """Ask for the total of the scores of each run's models on held-out rows."""
        content = models_to_bytes(members)

        def scores() -> tuple[ScoreSums, MaskedTotal]:
            layout, payload = self._found_layouts().measure(len(members)), {"models": content}
            question = Question(Endpoint.MEASURE)
            total = self._total_of_a_round(question, layout, payload, content)
            return scores_of(total.values, *score_shape(encoding, len(members))), total

        return self._try_total(0, scores, senders)

    def _try_total(
        self,
        number: int,
        ask: Callable[[], tuple[RecordT, MaskedTotal]],
        senders: Sequence[str],
    ) -> Received[RecordT]:
        received = self._try(ask, senders)
        for record, total in received.records.values():
            return Received({ALL_SITES: record}, absent=self._absent_from(total, number))
        return Received({}, received.failures)

    def _try(
        self, ask: Callable[[], RecordT], senders: Sequence[str] = (ALL_SITES,)
    ) -> Received[RecordT]:
        """Return what all sites sent, or why there is no total."""
        try:
            return Received({sender: ask() for sender in senders})
        except FailedSitesError as error:
            # To ask again would get the same answer.
            raise InputError(f"{error}; mend it there and resume the run") from error
        except (NoTotalError, RefusedError) as error:
            return Received({}, {ALL_SITES: str(error)})

    def _found_layouts(self) -> Layouts:
        if self._layouts is None:
            raise RefusedError("the rows of all sites are not encoded yet")
        return self._layouts

    def _total_of_all(
        self,
        question: Question,
        layout: Layout,
        payload: Mapping[str, object] = NO_ARGUMENTS,
        content: bytes = b"",
    ) -> MaskedTotal:
        """Ask before the first round, where nobody of the run may be missing."""
        missing = [site for site in self._memory.kept.sites if site not in self._present]
        if missing:
            reasons = "; ".join(self._absent.get(site, site) for site in missing)
            raise RefusedError(
                f"sites went away before the first round ({reasons}); totals without them would "
                "show their counts: bring them back and resume, or begin a new run without them"
            )
        total = self._total(question, layout, self._present, payload, content)
        if total.sites != self._present:
            reasons = "; ".join(total.failures.values())
            raise RefusedError(f"sites went away before the first round ({reasons}); resume")
        return total

    def _total_of_a_round(
        self, question: Question, layout: Layout, payload: Mapping[str, object], content: bytes
    ) -> MaskedTotal:
        """Ask all who are there; those who were too late before are left out for some rounds."""
        number, needed = question.round, self._needed(question)
        invited = self._invited(needed, number)
        lost = self._attendance.find_gone(self._transport, invited, number)
        asked = tuple(site for site in invited if site not in lost)
        gone = [site for site in needed if site not in asked]
        if gone:
            reasons = "; ".join(self._absent.get(site, site) for site in gone)
            raise RefusedError(
                f"{', '.join(gone)} must be back before round {number} can go on: sites help with "
                f"totals over the same sites alone ({reasons})"
            )
        total = self._total(question, layout, asked, payload, content)
        for site, seconds in total.seconds.items():
            self._attendance.came(site, seconds)
        for site in total.late:
            self._attendance.missed(site, number)
        return total

    def _needed(self, question: Question) -> tuple[str, ...]:
        """Return the sites that a total must be over; none if enough of them are left."""
        if self._secure.same_sites:
            return self._memory.kept.sites
        # Sites that have begun to unmask a total do that for no other set of sites.
        return self._memory.begun(question.topic)

    def _invited(self, needed: Sequence[str], number: int) -> tuple[str, ...]:
        """Return whom to ask; those who were too late before are left out for some rounds."""
        if needed:
            return tuple(site for site in needed if site in self._present)
        away = self._attendance.away(number)
        asked = tuple(site for site in self._present if site not in away)
        return asked if len(asked) >= self._plan.minimum_sites else self._present

    def _total(
        self,
        question: Question,
        layout: Layout,
        sites: Sequence[str],
        payload: Mapping[str, object] = NO_ARGUMENTS,
        content: bytes = b"",
    ) -> MaskedTotal:
        if self._totals is None:
            raise RefusedError("the sites have not sent keys yet")
        try:
            total = self._totals.total(
                question,
                payload,
                self._agreed,
                content,
                layout=layout,
                sites=sites,
                least=self._plan.minimum_sites,
                seconds={site: self._attendance.seconds_for(site) for site in sites},
            )
        except NoTotalError as error:
            for site in error.failures:
                if site in sites:
                    self._attendance.missed(site, question.round)
            LOG.warning("no total of %s: %s", question, error)
            raise
        # Those in the total whose seed had to be put together from shares are not named elsewhere.
        for site in total.sites:
            if site in total.failures:
                LOG.warning("%s: %s", question, total.failures[site])
        return total

    def _absent_from(self, total: MaskedTotal, number: int) -> dict[str, str]:
        """Return why sites of the plan are not in a total."""
        reasons = {**self._absent, **self._attendance.away(number), **total.failures}
        return {
            site: reasons.get(site, f"{site} is not connected")
            for site in self._plan.sites
            if site not in total.sites
        }


def _noisy_sums(values: Mapping[str, Any]) -> Sums:
    """Return a round's noisy sums; the server has yet to complete them."""
    losses = values["losses"]
    return replace(zero_sums(0, len(losses), 0), step=values["step"], group_loss=losses)
