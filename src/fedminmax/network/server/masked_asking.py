"""How masked totals are asked for: of which sites, and when the same ones are asked again.

Who is in the first total, that of the summaries, is in the run, and is kept on the disk with it:
totals of the same request over two sets of sites would show the difference between the sets. For
the same reason a total that sites have begun to unmask is asked of exactly the same sites again
after a fault, and before the first round nobody may be missing. ``MaskedMemory`` has what a
further job of the run needs for that.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from fedminmax.core.errors import InputError
from fedminmax.core.files import JsonLog
from fedminmax.network.secure.fixed_point import FailedSitesError, Layout
from fedminmax.network.secure.layouts import Layouts
from fedminmax.network.secure.masks import digest
from fedminmax.network.secure.messages import Agreed
from fedminmax.network.secure.session import Terms
from fedminmax.network.secure.totals import MaskedTotal, MaskedTotals, NoTotalError, open_session
from fedminmax.network.server.log import Attendance
from fedminmax.network.server.sites import Received, RecordT
from fedminmax.network.wire.calls import NO_ARGUMENTS, Endpoint, Question, Transport, gather
from fedminmax.network.wire.codec import RefusedError, read_record, write_record
from fedminmax.network.wire.plan import ALL_SITES, NetworkPlan, SecureAggregation, plan_to_bytes

LOG = logging.getLogger("fedminmax.server")
MASKED_FILE = "masked.json"
BEGUN_FILE = "unmasked.jsonl"


class MaskedAsking:
    """Asks all sites for masked totals."""

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

    @property
    def layouts(self) -> Layouts:
        """The layouts of answers, once rows are encoded."""
        if self._layouts is None:
            raise RefusedError("the rows of all sites are not encoded yet")
        return self._layouts

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

    def _first_total(self, question: Question, layout: Layout) -> MaskedTotal:
        """Ask for a total; who is in the first one of a run is in the run."""
        if self._memory.kept.sites:
            return self._total_of_all(question, layout)
        total = self._total(question, layout, self._present)
        self._memory.keep(replace(self._memory.kept, sites=total.sites))
        self._present = total.sites
        self._absent |= total.failures
        return total

    def _tell(self, endpoint: Endpoint, payload: Mapping[str, object]) -> None:
        """Tell all sites something; those who do not take it are no longer there."""
        failures = gather(self._transport(self._present, endpoint, payload)).failures
        self._present = tuple(site for site in self._present if site not in failures)
        self._absent |= failures

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
            raise RefusedError(went_away(total.failures))
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


def went_away(failures: Mapping[str, str]) -> str:
    """Say which sites are missing where nobody may be."""
    return f"sites went away before the first round ({'; '.join(failures.values())}); resume"


@dataclass(frozen=True)
class Begun:
    """A total that sites have begun to unmask, and the sites that it is of."""

    question: Question
    sites: tuple[str, ...]

    @property
    def round(self) -> int:
        """The round of the question."""
        return self.question.round

    @classmethod
    def from_json(cls, entry: Any) -> Self:
        """Read a line."""
        return cls(Question(**entry["question"]), tuple(map(str, entry["sites"])))

    def as_json(self) -> dict[str, Any]:
        """Return the total as a line."""
        return {"question": vars(self.question), "sites": self.sites}


@dataclass(frozen=True)
class Kept:
    """Who is in the run, and the totals of the summaries and of the counts, asked for once."""

    sites: tuple[str, ...] = ()
    summary: str = ""
    counts: tuple[float, ...] = ()


class MaskedMemory:
    """The files of one run.

    Sites take masks off a question's total for one set of sites alone. For which sites that has
    begun grows by a line with every question, and a line is on the disk before masks are taken off.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / MASKED_FILE
        self._log = JsonLog(folder / BEGUN_FILE, Begun)
        self.kept = read_record(self._path, Kept, "start a new run") or Kept()
        begun, _ = self._log.read_on(0)
        self._begun = {entry.question: entry.sites for entry in begun}

    def keep(self, kept: Kept) -> None:
        """Write down who is in the run, and what was asked for once."""
        self.kept = kept
        write_record(self._path, kept)

    def begun(self, topic: Question) -> tuple[str, ...]:
        """Return the sites that have begun to unmask this question's total; none if none has."""
        return self._begun.get(topic, ())

    def note_begun(self, topic: Question, sites: tuple[str, ...]) -> None:
        """Write down that these sites begin to unmask a total."""
        if self._begun.get(topic) != sites:
            self._log.add(Begun(topic, sites), sync=True)
            self._begun[topic] = sites
