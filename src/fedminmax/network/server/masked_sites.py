"""All sites as one site: a transport whose answers are masked totals over the sites.

To the rest of the server a masked federation is a federation of one site, "all sites", that holds
all rows: sums are all that the methods need, and a total over sites is what one site with their
rows would send (Papadaki et al. 2021, Lemma 2). So the totals travel on in the format of a single
reply, and are read and checked as one.

Who is in the first total, that of the summaries, is in the run, and is kept on the disk with it:
totals of the same request over two sets of sites would show the difference between the sets. For
the same reason a total that sites have begun to unmask is asked of exactly the same sites again
after a fault, and before the first round nobody may be missing.
"""

import logging
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from fedminmax.core.bounds import RowLengths
from fedminmax.core.errors import InputError
from fedminmax.core.messages import NOT_ROUNDED
from fedminmax.data.tables.encoding import Encoding, encoding_from_json, row_lengths
from fedminmax.network.planned_runs import with_rate
from fedminmax.network.secure.answers import (
    losses_of,
    reply_of,
    rounding_of,
    scores_of,
    summary_layout,
    summary_of,
)
from fedminmax.network.secure.fixed_point import FailedSitesError, Layout
from fedminmax.network.secure.layouts import Layouts, Sizes, sizes_to_bytes
from fedminmax.network.secure.masks import digest
from fedminmax.network.secure.messages import (
    Agreed,
    Context,
    UnmaskAsk,
    from_bytes,
    question_digest,
)
from fedminmax.network.secure.noisy_answers import noisy_reply_of
from fedminmax.network.secure.session import Terms
from fedminmax.network.server.masked_memory import MaskedMemory
from fedminmax.network.server.masked_totals import (
    MaskedTotal,
    MaskedTotals,
    NoTotalError,
    open_session,
)
from fedminmax.network.server.transport import (
    NO_LIMITS,
    PRESENCE_TIMEOUT,
    Answer,
    Attendance,
    Transport,
    gather,
)
from fedminmax.network.wire.codec import RefusedError
from fedminmax.network.wire.messages import (
    losses_to_bytes,
    models_from_bytes,
    order_from_bytes,
    score_sums_to_bytes,
    sums_to_bytes,
    vector_to_bytes,
)
from fedminmax.network.wire.plan import ALL_SITES, NetworkPlan
from fedminmax.network.wire.summary import summary_from_bytes, summary_to_bytes

LOG = logging.getLogger("fedminmax.server")
SERVER = "the server"


@dataclass
class _Job:
    """What changes during a job."""

    totals: MaskedTotals | None = None
    present: tuple[str, ...] = ()
    agreed: Agreed = field(default_factory=lambda: Agreed(b""))
    layouts: Layouts | None = None
    directions: int = 0
    absent: dict[str, str] = field(default_factory=dict)


class MaskedSites:
    """Asks all sites what is asked of "all sites".

    Args:
        plan: what is run; its sums are masked.
        transport: how the sites are reached.
        folder: where the server keeps this plan's runs.
    """

    def __init__(self, plan: NetworkPlan, transport: Transport, folder: Path) -> None:
        self._plan = plan
        self._transport = transport
        self._memory = MaskedMemory(folder)
        self._attendance = Attendance(plan.site_rules)
        self._job = _Job()

    def __call__(
        self,
        sites: Sequence[str],
        endpoint: str,
        payload: Mapping[str, object],
        seconds: Mapping[str, float] = NO_LIMITS,  # noqa: ARG002 - each site has its own limit
    ) -> Iterator[Answer]:
        """Ask the sites behind "all sites", if that is who is asked."""
        for site in sites:
            try:
                yield replace(self._answer(endpoint, payload), site=site)
            except FailedSitesError as error:
                # To ask again would get the same answer.
                raise InputError(f"{error}; mend it there and resume the run") from error
            except (NoTotalError, RefusedError) as error:
                yield Answer(site, failure=str(error))

    def _answer(self, endpoint: str, payload: Mapping[str, object]) -> Answer:
        if endpoint == "present":
            return Answer(ALL_SITES, b"")
        if endpoint == "prepare":
            return self._prepare(payload)
        if endpoint == "encode":
            return self._encode(payload)
        if endpoint == "take_rate":
            return self._take_rate(payload)
        if endpoint == "curvature":
            return self._curvature(payload)
        if endpoint == "measure":
            return self._measure(payload)
        return self._round(endpoint, payload)

    def _prepare(self, payload: Mapping[str, object]) -> Answer:
        """Begin a session; the summary of all rows is asked for once in a run."""
        plan = self._plan
        if plan.secure_aggregation is None:
            raise RefusedError("the plan's sums are not masked")
        failures = dict(gather(self._transport(plan.sites, "prepare", payload)).failures)
        if self._memory.kept.sites:
            late = [site for site in plan.sites if site not in self._memory.kept.sites]
            failures |= {site: f"{site} was not there when this run began" for site in late}
        content = _bytes(payload["plan"])
        threshold = plan.secure_aggregation.threshold
        terms = Terms(plan.run, digest("plan", content).hex(), plan.sites, threshold)
        roster, refused = open_session(self._transport, terms, failures=failures)
        self._job = _Job(
            MaskedTotals(self._noting, roster),
            roster.sites,
            agreed=Agreed(content),
            absent=dict(refused),
        )
        if not self._memory.kept.summary:
            layout = summary_layout(plan.schema)
            total = self._total(Context("summarise"), {}, layout, roster.sites)
            summary = summary_to_bytes(summary_of(total.values, plan.schema)).decode()
            self._memory.keep(replace(self._memory.kept, sites=total.sites, summary=summary))
            self._job.present = total.sites
            self._job.absent |= total.failures
        return Answer(ALL_SITES, self._memory.kept.summary.encode(), absent=self._job.absent)

    def _encode(self, payload: Mapping[str, object]) -> Answer:
        """Let all sites encode; the counts are asked for once in a run."""
        job, content = self._job, _bytes(payload["encoding"])
        encoding = encoding_from_json(content.decode(), SERVER)
        sizes = self._sizes(encoding)
        told = sizes_to_bytes(sizes)
        sent = {**payload, "sizes": told}
        failures = gather(self._transport(job.present, "encode", sent)).failures
        job.present = tuple(site for site in job.present if site not in failures)
        job.absent |= failures
        job.agreed = replace(job.agreed, encoding=content, sizes=told)
        job.layouts = Layouts(self._plan, encoding, sizes)
        if not self._memory.kept.counts:
            total = self._total_of_all(Context("count_rows"), {}, job.layouts.counts())
            packed = vector_to_bytes(torch.cat([*map(torch.from_numpy, total.values.values())]))
            self._memory.keep(replace(self._memory.kept, counts=b64encode(packed).decode()))
        return Answer(ALL_SITES, b64decode(self._memory.kept.counts), absent=job.absent)

    def _sizes(self, encoding: Encoding) -> Sizes:
        """Return the sizes of all rows; under a privacy guarantee their lengths are not needed."""
        content, counted = self._memory.kept.summary.encode(), self._plan.privacy is None
        summary = summary_from_bytes(content, self._plan.schema, ALL_SITES, counted=counted)
        lengths = row_lengths(summary, encoding) if counted else RowLengths(0.0)
        return Sizes.of(summary.rows, lengths)

    def _take_rate(self, payload: Mapping[str, object]) -> Answer:
        job, rate = self._job, _bytes(payload["rate"])
        failures = gather(self._transport(job.present, "take_rate", payload)).failures
        job.present = tuple(site for site in job.present if site not in failures)
        job.absent |= failures
        plan = replace(self._plan, runs=with_rate(self._plan.runs, rate.decode()))
        job.layouts = replace(self._layouts(), plan=plan)
        job.agreed = replace(job.agreed, rate=rate)
        return Answer(ALL_SITES, b"", absent=job.absent)

    def _curvature(self, payload: Mapping[str, object]) -> Answer:
        self._job.directions += 1
        context = Context("curvature", round=self._job.directions)
        layout, directions = self._layouts().curvature(), _bytes(payload["directions"])
        total = self._total_of_all(context, payload, layout, directions)
        return Answer(ALL_SITES, vector_to_bytes(torch.from_numpy(total.values["sums"])))

    def _round(self, endpoint: str, payload: Mapping[str, object]) -> Answer:
        """Ask about a model: for a round, for a proof, or for losses on validation rows."""
        layouts, run, content = self._layouts(), payload["run"], _bytes(payload["order"])
        order = order_from_bytes(content, layouts.task.initial_parameters, SERVER)
        number = run if isinstance(run, int) else 0
        if endpoint == "validate":
            layout = layouts.validation(order)
        elif endpoint == "certify":
            layout = layouts.proof(order)
        else:
            layout = layouts.round(layouts.plan.runs[number].build(), order)
        context = Context(endpoint, number, order.key.round, order.phase)
        total = self._total_of_a_round(context, payload, layout, content)
        if endpoint == "validate":
            message = losses_to_bytes(losses_of(total.values))
        else:
            slowest = max(total.seconds.values(), default=0.0)
            read = reply_of if self._plan.privacy is None else noisy_reply_of
            message = sums_to_bytes(read(total.values), slowest)
        sums = endpoint != "validate" and self._plan.privacy is None
        return Answer(
            ALL_SITES,
            message,
            absent=self._absent_from(total, order.key.round),
            rounding=rounding_of(layout, len(total.sites)) if sums else NOT_ROUNDED,
            bytes=total.bytes_in,
            further_bytes_out=total.bytes_out,
        )

    def _measure(self, payload: Mapping[str, object]) -> Answer:
        layouts, content = self._layouts(), _bytes(payload["models"])
        like = layouts.task.initial_parameters
        runs = len(models_from_bytes(content, len(layouts.plan.runs), like, SERVER))
        total = self._total_of_a_round(Context("measure"), payload, layouts.measure(runs), content)
        sums = scores_of(total.values, layouts.score_lines, layouts.scores(runs))
        message = score_sums_to_bytes(sums)
        return Answer(ALL_SITES, message, absent=self._absent_from(total, 0))

    def _layouts(self) -> Layouts:
        if self._job.layouts is None:
            raise RefusedError("the rows of all sites are not encoded yet")
        return self._job.layouts

    def _total_of_all(
        self, context: Context, payload: Mapping[str, object], layout: Layout, order: bytes = b""
    ) -> MaskedTotal:
        """Ask before the first round, where nobody of the run may be missing."""
        missing = [site for site in self._memory.kept.sites if site not in self._job.present]
        if missing:
            reasons = "; ".join(self._job.absent.get(site, site) for site in missing)
            raise RefusedError(
                f"sites went away before the first round ({reasons}); totals without them would "
                "show their counts: bring them back and resume, or begin a new run without them"
            )
        total = self._total(context, payload, layout, self._job.present, order)
        if total.sites != self._job.present:
            reasons = "; ".join(total.failures.values())
            raise RefusedError(f"sites went away before the first round ({reasons}); resume")
        return total

    def _total_of_a_round(
        self, context: Context, payload: Mapping[str, object], layout: Layout, order: bytes
    ) -> MaskedTotal:
        """Ask all who are there; those who were too late before are left out for some rounds."""
        number = context.round
        asked = self._there(self._sites_for(context), number)
        gone = [site for site in self._needed(context) if site not in asked]
        if gone:
            reasons = "; ".join(self._job.absent.get(site, site) for site in gone)
            raise RefusedError(
                f"{', '.join(gone)} must be back before round {number} can go on: sites help with "
                f"totals over the same sites alone ({reasons})"
            )
        total = self._total(context, payload, layout, asked, order)
        for site, seconds in total.seconds.items():
            self._attendance.came(site, seconds)
        for site in total.late:
            self._attendance.missed(site, number)
        return total

    def _needed(self, context: Context) -> tuple[str, ...]:
        """Return the sites that a total must be over; none if enough of them are left."""
        masked = self._plan.secure_aggregation
        if masked is not None and masked.same_sites:
            return self._memory.kept.sites
        # Sites that have begun to unmask a total do that for no other set of sites.
        return self._memory.begun(context.topic) or ()

    def _sites_for(self, context: Context) -> tuple[str, ...]:
        """Return whom to ask; those who were too late before are left out for some rounds."""
        present, needed = self._job.present, self._needed(context)
        if needed:
            return tuple(site for site in needed if site in present)
        away = self._attendance.away(context.round)
        asked = tuple(site for site in present if site not in away)
        return asked if len(asked) >= self._plan.minimum_sites else present

    def _there(self, sites: Sequence[str], number: int) -> tuple[str, ...]:
        """Return these sites without those that were too late before and are not connected now."""
        doubtful = [site for site in sites if self._attendance.missed_before(site)]
        if not doubtful:
            return tuple(sites)
        seconds = dict.fromkeys(doubtful, PRESENCE_TIMEOUT)
        there = gather(self._transport(doubtful, "present", {}, seconds)).messages
        gone = [site for site in doubtful if site not in there]
        for site in gone:
            self._attendance.missed(site, number)
        return tuple(site for site in sites if site not in gone)

    def _total(
        self,
        context: Context,
        payload: Mapping[str, object],
        layout: Layout,
        sites: Sequence[str],
        order: bytes = b"",
    ) -> MaskedTotal:
        if self._job.totals is None:
            raise RefusedError("the sites have not sent keys yet")
        seconds = {site: self._attendance.seconds_for(site) for site in sites}
        question = question_digest(self._job.agreed, layout, order)
        try:
            total = self._job.totals.total(
                context,
                payload,
                question,
                layout=layout,
                sites=sites,
                least=self._plan.minimum_sites,
                seconds=seconds,
            )
        except NoTotalError as error:
            for site in error.failures:
                if site in sites:
                    self._attendance.missed(site, context.round)
            LOG.warning("no total of %s: %s", context, error)
            raise
        # Those in the total whose seed had to be put together from shares are not named elsewhere.
        for site in total.sites:
            if site in total.failures:
                LOG.warning("%s: %s", context, total.failures[site])
        return total

    def _absent_from(self, total: MaskedTotal, number: int) -> dict[str, str]:
        """Return why sites of the plan are not in a total."""
        reasons = {**self._job.absent, **self._attendance.away(number), **total.failures}
        return {
            site: reasons.get(site, f"{site} is not connected")
            for site in self._plan.sites
            if site not in total.sites
        }

    def _noting(
        self,
        sites: Sequence[str],
        endpoint: str,
        payload: Mapping[str, object],
        seconds: Mapping[str, float] = NO_LIMITS,
    ) -> Iterator[Answer]:
        """Reach the sites; before masks are taken off, note for which sites that will be."""
        if endpoint == "unmask":
            asked = from_bytes(payload["message"], UnmaskAsk, SERVER)
            order = [site for site in self._plan.sites if site in asked.signatures]
            self._memory.note_begun(asked.context.topic, tuple(order))
        return self._transport(sites, endpoint, payload, seconds)


def _bytes(message: object) -> bytes:
    return message if isinstance(message, bytes) else b""
