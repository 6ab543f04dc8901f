"""All sites as one holder: a transport whose answers are masked totals over the sites.

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

from fedminmax.data.tables.encoding import encoding_from_json
from fedminmax.federation.planned_runs import with_rate
from fedminmax.federation.secure.answers import (
    COUNT_ROWS,
    SUMMARISE,
    losses_of,
    reply_of,
    scores_of,
    summary_layout,
    summary_of,
)
from fedminmax.federation.secure.fixed_point import Layout
from fedminmax.federation.secure.messages import Context, UnmaskAsk, from_bytes, order_hash
from fedminmax.federation.secure.noisy_answers import noisy_reply_of
from fedminmax.federation.secure.session import Terms
from fedminmax.federation.server.everyone import Everyone, everyone_of, layout_of_counts
from fedminmax.federation.server.masked_memory import MaskedMemory
from fedminmax.federation.server.masked_totals import (
    MaskedTotal,
    MaskedTotals,
    NoTotalError,
    open_session,
)
from fedminmax.federation.server.transport import (
    NO_LIMITS,
    PRESENCE_TIMEOUT,
    Answer,
    Attendance,
    Transport,
    gather,
)
from fedminmax.federation.wire.codec import RefusedError
from fedminmax.federation.wire.messages import (
    losses_to_bytes,
    models_from_bytes,
    order_from_bytes,
    score_sums_to_bytes,
    sums_to_bytes,
    vector_to_bytes,
)
from fedminmax.federation.wire.plan import ALL_SITES, NetworkPlan, digest_of
from fedminmax.federation.wire.summary import summary_to_bytes

LOG = logging.getLogger("fedminmax.server")
SERVER = "the server"


@dataclass
class _Job:
    """What changes during a job."""

    totals: MaskedTotals | None = None
    present: tuple[str, ...] = ()
    everyone: Everyone | None = None
    directions: int = 0
    absent: dict[str, str] = field(default_factory=dict)


class OneHolder:
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
        if plan.secure_sums is None:
            raise RefusedError("the plan's sums are not masked")
        failures = dict(gather(self._transport(plan.sites, "prepare", payload)).failures)
        if self._memory.kept.sites:
            late = [site for site in plan.sites if site not in self._memory.kept.sites]
            failures |= {site: f"{site} was not there when this run began" for site in late}
        terms = Terms(plan.run, digest_of(plan), plan.sites, plan.secure_sums.threshold)
        roster, refused = open_session(self._transport, terms, failures=failures)
        self._job = _Job(MaskedTotals(self._noting, roster), roster.sites, absent=dict(refused))
        if not self._memory.kept.summary:
            order = order_hash(digest_of(plan).encode())
            layout = summary_layout(plan.schema)
            total = self._total(Context(SUMMARISE), {}, order, layout, roster.sites)
            summary = summary_to_bytes(summary_of(total.values, plan.schema)).decode()
            self._memory.keep(replace(self._memory.kept, sites=total.sites, summary=summary))
            self._job.present = total.sites
            self._job.absent |= total.failures
        return Answer(ALL_SITES, self._memory.kept.summary.encode(), absent=self._job.absent)

    def _encode(self, payload: Mapping[str, object]) -> Answer:
        """Let all sites encode; the counts are asked for once in a run."""
        job, plan = self._job, self._plan
        failures = gather(self._transport(job.present, "encode", payload)).failures
        job.present = tuple(site for site in job.present if site not in failures)
        job.absent |= failures
        content = payload["encoding"]
        text = content.decode() if isinstance(content, bytes) else ""
        encoding = encoding_from_json(text, SERVER)
        if not self._memory.kept.counts:
            layout, order = layout_of_counts(plan, encoding), order_hash(text.encode())
            total = self._total_of_all(Context(COUNT_ROWS), {}, order, layout)
            packed = vector_to_bytes(torch.cat([*map(torch.from_numpy, total.values.values())]))
            self._memory.keep(replace(self._memory.kept, counts=b64encode(packed).decode()))
        message = b64decode(self._memory.kept.counts)
        job.everyone = everyone_of(plan, encoding, message, self._memory.kept.summary.encode())
        return Answer(ALL_SITES, message, absent=job.absent)

    def _take_rate(self, payload: Mapping[str, object]) -> Answer:
        job, rate = self._job, payload["rate"]
        failures = gather(self._transport(job.present, "take_rate", payload)).failures
        job.present = tuple(site for site in job.present if site not in failures)
        job.absent |= failures
        if job.everyone is not None and isinstance(rate, bytes):
            plan = replace(self._plan, runs=with_rate(self._plan.runs, rate.decode()))
            job.everyone = replace(job.everyone, plan=plan)
        return Answer(ALL_SITES, b"", absent=job.absent)

    def _curvature(self, payload: Mapping[str, object]) -> Answer:
        everyone, directions = self._everyone(), payload["directions"]
        self._job.directions += 1
        layout = everyone.curvature_layout()
        context = Context("curvature", round=self._job.directions)
        order = order_hash(directions if isinstance(directions, bytes) else b"")
        total = self._total_of_all(context, payload, order, layout)
        return Answer(ALL_SITES, vector_to_bytes(torch.from_numpy(total.values["sums"])))

    def _round(self, endpoint: str, payload: Mapping[str, object]) -> Answer:
        """Ask about a model: for a round, for a proof, or for losses on validation rows."""
        everyone, run, content = self._everyone(), payload["run"], payload["order"]
        order = order_from_bytes(content, everyone.task.initial_parameters, SERVER)
        number = run if isinstance(run, int) else 0
        layout = everyone.round_layout(endpoint, number, order)
        context = Context(endpoint, number, order.key.round, order.phase)
        sent = order_hash(content if isinstance(content, bytes) else b"")
        total = self._total_of_a_round(context, payload, sent, layout)
        if endpoint == "validate":
            message = losses_to_bytes(losses_of(total.values))
        else:
            slowest = max(total.seconds.values(), default=0.0)
            read = reply_of if self._plan.privacy is None else noisy_reply_of
            message = sums_to_bytes(read(total.values), slowest)
        absent = self._absent_from(total, order.key.round)
        return Answer(
            ALL_SITES,
            message,
            absent=absent,
            bytes=total.bytes_in,
            further_bytes_out=total.bytes_out,
        )

    def _measure(self, payload: Mapping[str, object]) -> Answer:
        everyone, content = self._everyone(), payload["models"]
        like = everyone.task.initial_parameters
        runs = len(models_from_bytes(content, len(everyone.plan.runs), like, SERVER))
        order = order_hash(content if isinstance(content, bytes) else b"")
        layout = everyone.scores_layout(runs)
        total = self._total_of_a_round(Context("measure"), payload, order, layout)
        sums = scores_of(total.values, everyone.score_lines, everyone.scores(runs))
        message = score_sums_to_bytes(sums)
        return Answer(ALL_SITES, message, absent=self._absent_from(total, 0))

    def _everyone(self) -> Everyone:
        if self._job.everyone is None:
            raise RefusedError("the rows of all sites are not counted yet")
        return self._job.everyone

    def _total_of_all(
        self, context: Context, payload: Mapping[str, object], order: bytes, layout: Layout
    ) -> MaskedTotal:
        """Ask before the first round, where nobody of the run may be missing."""
        missing = [site for site in self._memory.kept.sites if site not in self._job.present]
        if missing:
            reasons = "; ".join(self._job.absent.get(site, site) for site in missing)
            raise RefusedError(
                f"sites went away before the first round ({reasons}); totals without them would "
                "show their counts: bring them back and resume, or begin a new run without them"
            )
        total = self._total(context, payload, order, layout, self._job.present)
        if total.sites != self._job.present:
            reasons = "; ".join(total.failures.values())
            raise RefusedError(f"sites went away before the first round ({reasons}); resume")
        return total

    def _total_of_a_round(
        self, context: Context, payload: Mapping[str, object], order: bytes, layout: Layout
    ) -> MaskedTotal:
        """Ask all who are there; those who were too late before are left out for some rounds."""
        number = context.round
        begun = self._memory.begun(context.topic)
        if begun is not None:
            asked = self._there(begun, number)
            if asked != begun:
                gone = ", ".join(site for site in begun if site not in asked)
                raise RefusedError(
                    f"{gone} must be back before round {number} can go on: its masks were being "
                    "taken off with them, and sites do that for no other set of sites"
                )
        else:
            away = self._attendance.away(number)
            asked = tuple(site for site in self._job.present if site not in away)
            if len(asked) < self._plan.minimum_sites:
                asked = self._job.present
            asked = self._there(asked, number)
        total = self._total(context, payload, order, layout, asked)
        for site, seconds in total.seconds.items():
            self._attendance.came(site, seconds)
        for site in total.late:
            self._attendance.missed(site, number)
        return total

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
        order: bytes,
        layout: Layout,
        sites: Sequence[str],
    ) -> MaskedTotal:
        if self._job.totals is None:
            raise RefusedError("the sites have not sent keys yet")
        seconds = {site: self._attendance.seconds_for(site) for site in sites}
        try:
            total = self._job.totals.total(
                context, payload, order, layout=layout, sites=sites, seconds=seconds
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
