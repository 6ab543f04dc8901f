"""A site's own log: which questions it allowed, what left in answer, and what it refused.

The log is a file of JSON lines, ``answers.jsonl``, shared by all jobs of the site. A line about a
message is written before the message leaves. It is the administrator's record (``fedminmax site
log``), and it is what limits are counted from.

Rows could be recovered from many answers about the same rows (see docs/threat_model.md), so a site
gives one answer per (data, run, round, phase), in order, whatever was restarted. A server that goes
on after a fault asks again: the same question gets the same answer, which reveals nothing new.
Another one, or another plan, encoding or learning rate for the same run, is refused; where sums are
not masked a few are allowed, since a round that is repeated may be without a site that was away.
The number of runs about the same data is limited, and that of different questions in a run.
"""

import hashlib
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any, Self

from fedminmax.core.bounds import POWER_ITERATIONS
from fedminmax.core.errors import InputError
from fedminmax.core.files import held
from fedminmax.core.json_log import JsonLog
from fedminmax.core.text import counted
from fedminmax.methods.catalogue import CARDS
from fedminmax.methods.method import asks_again
from fedminmax.network.planned_runs import needs_learning_rate
from fedminmax.network.site.requests import COMPARED, Endpoint, Request
from fedminmax.network.site.settings import SiteSettings
from fedminmax.network.wire.codec import RefusedError
from fedminmax.network.wire.plan import NetworkPlan, digest_of
from fedminmax.training.certify import MAX_ROUNDS

# In a kit.
KEPT_FOLDER = "fedminmax_kept"
LEDGER_FILE = "answers.jsonl"
LOCK_TIMEOUT = 10.0
# A reason may quote names that came from the server.
MAX_REASON = 300
# A masked total takes the question itself, and a call to unmask the answers.
CALLS_PER_TOTAL = 2
# Where a site was away, the rounds that a continued run repeats have other models than before.
ROOM_FOR_REPEATS = 2


class Event(Enum):
    """What a line is about.

    An allowed question is written down before the site works on it, what is sent or refused before
    it leaves. Work that failed is said under the masks of a total, and its reason here alone.
    """

    ALLOWED = "allowed"
    FAILED = "failed"
    SENT = "sent"
    REFUSED = "refused"


@dataclass(frozen=True)
class LedgerEntry:
    """A line: when, in which run of which plan on which data, and what happened to which request.

    ``digest`` is the SHA-256 of the message that left, of ``bytes`` bytes; for a question that was
    allowed it is the question's own. ``masked`` is None if the message has no numbers from the
    table. ``reason`` says why a question was refused, as the server was told, or why work failed.
    """

    time: str
    plan: str
    run: str
    asked: Request
    digest: str
    _: KW_ONLY
    event: Event
    data: str
    bytes: int | None = None
    masked: bool | None = None
    reason: str = ""

    @property
    def round(self) -> int:
        """The round of the question."""
        return self.asked.round

    @classmethod
    def from_json(cls, entry: Any) -> Self:
        """Read a line of the log."""
        size, masked = entry.get("bytes"), entry.get("masked")
        when, plan, run, digest = (str(entry[name]) for name in ("time", "plan", "run", "digest"))
        return cls(
            when,
            plan,
            run,
            Request.from_json(entry),
            digest,
            event=Event(entry["event"]),
            data=str(entry["data"]),
            bytes=None if size is None else int(size),
            masked=None if masked is None else bool(masked),
            reason=str(entry.get("reason", "")),
        )

    def as_json(self) -> dict[str, Any]:
        """Return the entry as a line of the log."""
        start = {"time": self.time, "event": self.event.value, "plan": self.plan, "run": self.run}
        line = {**start, "data": self.data, **self.asked.as_json(), "digest": self.digest}
        if self.bytes is not None:
            line |= {"bytes": self.bytes, "masked": self.masked}
        return line | ({"reason": self.reason} if self.reason else {})


@dataclass(frozen=True)
class Limits:
    """How many runs on the same data, different requests about a round, and in a run.

    With ``sync``, an allowed question is on the disk before its answer leaves, even if the power
    fails.
    """

    runs: int
    answers: int
    questions: int
    sync: bool = False


def planned_questions(plan: NetworkPlan) -> int:
    """Return how many requests a site gets at most in a run that nothing disturbs.

    Before the rounds: the plan and the encoding, and directions for the learning rate if it is
    open. Then the rounds with all their phases and their models' validation, the proof, and scores.
    """
    totals = sum(
        run.rounds * (1 + asks_again(CARDS[run.method].build({})) + (plan.validation > 0))
        for run in plan.runs
    )
    totals += MAX_ROUNDS * plan.certify + 1
    others = 2
    if needs_learning_rate(plan.runs):
        # Under a privacy guarantee the rate follows from the noisy census.
        totals += POWER_ITERATIONS * (plan.privacy is None)
        others += 1
    if plan.secure_aggregation is None:
        return totals + others
    # Summary and counts are separate questions, after the keys and everybody's keys.
    return CALLS_PER_TOTAL * (totals + 2) + others + 2


def limits_of(plan: NetworkPlan, settings: SiteSettings) -> Limits:
    """Return what a site allows in a run of this plan."""
    questions = ROOM_FOR_REPEATS * planned_questions(plan)
    # Of masked answers two would be two totals, and with the same noise show their difference.
    answers = settings.max_answers if plan.secure_aggregation is None else 1
    return Limits(settings.max_runs, answers, questions, sync=plan.privacy is not None)


class Ledger:
    """The log of one site in one job.

    Args:
        folder: where the site stores data between rounds.
    """

    def __init__(self, folder: Path) -> None:
        self._log = JsonLog(folder / LEDGER_FILE, LedgerEntry)
        self._run = self._plan = self._data = ""
        self._limits: Limits | None = None
        self._read_until = 0
        self._runs: dict[str, str] = {}
        self._digests: defaultdict[Request, set[str]] = defaultdict(set)
        self._calls: set[Request] = set()

    def begin(self, plan: NetworkPlan, content: Sequence[bytes], data: str, limits: Limits) -> None:
        """Allow a job of this plan on this data, or refuse it.

        ``content`` is the plan as it came, and how this site reads its table.
        """
        self._run, self._plan, self._data = plan.run, digest_of(plan), data
        self._limits = limits
        # What was read before was not known to be of this run.
        self._read_until = 0
        self._digests.clear()
        self._calls.clear()
        self._runs.clear()
        self.note(Request(Endpoint.PREPARE), *content)

    def note(self, asked: Request, *content: bytes | memoryview) -> None:
        """Allow this request about some content and record it, or refuse it."""
        limits = self._limits
        if limits is None:
            raise RefusedError("this site was asked before it had a plan")
        whole = hashlib.sha256()
        for part in content:
            whole.update(memoryview(part).nbytes.to_bytes(8, "little"))
            whole.update(part)
        digest = whole.hexdigest()[:32]
        with self._up_to_date():
            if self._runs.get(self._run, self._data) != self._data:
                raise RefusedError("this site has another table than when this run began; refused")
            runs = [run for run, data in self._runs.items() if data == self._data]
            if self._run not in runs and len(runs) >= limits.runs:
                raise RefusedError(
                    f"this site allows {counted(limits.runs, 'run')} on the same table, and had "
                    "them"
                )
            known = self._digests[asked]
            if digest not in known:
                if len(known) >= limits.answers and asked.question is Endpoint.PREPARE:
                    raise RefusedError(
                        "this run began here with another plan or other settings of this site; "
                        "give the new one another name"
                    )
                if len(known) >= limits.answers:
                    raise RefusedError(
                        f"this site answered {counted(len(known), 'different question')} about "
                        f"{asked} and allows no more"
                    )
                self._check_questions(limits)
            self._add(Event.ALLOWED, asked, digest)

    def check_call(self, asked: Request) -> None:
        """Refuse a request whose content is not compared, if it is new and the run had enough."""
        if self._limits is None or asked.question in COMPARED:
            return
        with self._up_to_date():
            if replace(asked, attempt=0) not in self._calls:
                self._check_questions(self._limits)

    def sent(self, asked: Request, message: bytes, *, masked: bool | None) -> None:
        """Record a message that is about to leave."""
        with self._up_to_date():
            digest = hashlib.sha256(message).hexdigest()
            self._add(Event.SENT, asked, digest, size=len(message), masked=masked)

    def refused(self, asked: Request, reason: str) -> None:
        """Record a refusal that is about to leave, with the reason that the server gets."""
        message = reason.encode()
        with self._up_to_date():
            digest = hashlib.sha256(message).hexdigest()
            short = reason[:MAX_REASON]
            self._add(Event.REFUSED, asked, digest, size=len(message), reason=short)

    def failed(self, asked: Request, reason: str) -> None:
        """Record why an answer could not be computed; the reason does not leave."""
        with self._up_to_date():
            digest = hashlib.sha256(reason.encode()).hexdigest()
            self._add(Event.FAILED, asked, digest, reason=reason[:MAX_REASON])

    def _check_questions(self, limits: Limits) -> None:
        """Refuse one more different question in this run if it had as many as its plan allows."""
        had = sum(map(len, self._digests.values())) + len(self._calls)
        if had >= limits.questions:
            raise RefusedError(
                f"this site answers at most {counted(limits.questions, 'different question')} in "
                "a run of this plan, and had them; refused"
            )

    @contextmanager
    def _up_to_date(self) -> Iterator[None]:
        """Hold the file, and know what this and other jobs have written.

        A line that a crash cut off is removed: what it is about did not leave.
        """
        with held(self._log.path.with_suffix(".lock"), LOCK_TIMEOUT) as ours:
            if not ours:
                raise RefusedError("this site's record of answers is in use; ask again")
            try:
                entries, self._read_until = self._log.read_on(self._read_until)
            except InputError as error:
                raise RefusedError(
                    "this site's record of answers is damaged; its administrator has to look"
                ) from error
            for entry in entries:
                self._count(entry)
            yield

    def _count(self, entry: LedgerEntry) -> None:
        compared = entry.asked.question in COMPARED
        if entry.event is Event.ALLOWED:
            self._runs.setdefault(entry.run, entry.data)
            if entry.run == self._run:
                self._digests[entry.asked].add(entry.digest)
        elif entry.event is Event.SENT and entry.run == self._run and not compared:
            self._calls.add(replace(entry.asked, attempt=0))

    def _add(
        self,
        event: Event,
        asked: Request,
        digest: str,
        *,
        size: int | None = None,
        masked: bool | None = None,
        reason: str = "",
    ) -> None:
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        sync = event is Event.ALLOWED and self._limits is not None and self._limits.sync
        self._log.add(
            LedgerEntry(
                when,
                self._plan,
                self._run,
                asked,
                digest,
                event=event,
                data=self._data,
                bytes=size,
                masked=masked,
                reason=reason,
            ),
            sync=sync,
        )


def read_log(folder: Path) -> list[LedgerEntry]:
    """Return all lines of a site's log; none if it has not been asked anything yet."""
    try:
        return JsonLog(folder / LEDGER_FILE, LedgerEntry).read()
    except InputError as error:
        raise InputError(
            f"{folder / LEDGER_FILE} is damaged, and the site refuses to answer; put back a copy "
            "of it, or remove the lines that are not JSON"
        ) from error
