"""A site's own log: which questions it allowed, what left in answer, and what it refused.

The log is a file of JSON lines, ``answers.jsonl``, shared by all jobs of the site. A line about a
message is written before the message leaves. It is the administrator's record (``fedminmax site
log``), and it is what limits are counted from.

Rows could be recovered from many answers about the same rows (see docs/threat_model.md), so a site
gives one answer per (run, round, phase), in order. A server that goes on after a fault asks again:
the same question gets the same answer, which reveals nothing new. Other questions about a round
that was answered are limited, and so is the number of different questions in a run.
"""

import hashlib
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, asdict, dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any, Self

from fedminmax.core.bounds import POWER_ITERATIONS
from fedminmax.core.errors import InputError
from fedminmax.core.files import held
from fedminmax.core.json_log import JsonLog
from fedminmax.core.text import counted
from fedminmax.federation.certify import MAX_ROUNDS
from fedminmax.federation.planned_runs import needs_learning_rate
from fedminmax.federation.site.settings import SiteSettings
from fedminmax.federation.wire.codec import RefusedError
from fedminmax.federation.wire.plan import NetworkPlan
from fedminmax.methods.catalogue import CARDS
from fedminmax.methods.method import asks_again

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


class Endpoint(Enum):
    """What a server may request; each value is the name of the site's function."""

    PREPARE = "prepare"
    KEYS = "keys"
    SET_ROSTER = "set_roster"
    SUMMARISE = "summarise"
    ENCODE = "encode"
    COUNT_ROWS = "count_rows"
    CURVATURE = "curvature"
    TAKE_RATE = "take_rate"
    ANSWER = "answer"
    VALIDATE = "validate"
    CERTIFY = "certify"
    MEASURE = "measure"
    UNMASK = "unmask"


# Those whose content is compared with what was asked before; the others are the same every time.
COMPARED = frozenset(
    {
        Endpoint.ENCODE,
        Endpoint.CURVATURE,
        Endpoint.ANSWER,
        Endpoint.VALIDATE,
        Endpoint.CERTIFY,
        Endpoint.MEASURE,
    }
)


@dataclass(frozen=True)
class Request:
    """One request: ``number`` is the run among the plan's, ``round`` counts from 1.

    For requests outside the rounds, ``round`` counts how often they came in this job. What is said
    about a masked answer has the question that was answered in ``about``; ``attempt`` counts how
    often that was masked.
    """

    question: Endpoint
    number: int = 0
    _: KW_ONLY
    round: int = 0
    phase: int = 0
    about: Endpoint | None = None
    attempt: int = 0

    def is_before(self, other: "Request") -> bool:
        """Return whether this request comes before another one of the same job.

        A run's model is certified after its last round.
        """
        own, others = (
            (a.number, a.question is Endpoint.CERTIFY, a.round, a.phase) for a in (self, other)
        )
        return own < others

    def __str__(self) -> str:
        if self.question is Endpoint.ANSWER:
            return f"round {self.round}, question {self.phase + 1}, of run {self.number + 1}"
        if self.question is Endpoint.CERTIFY:
            return f"round {self.round} of the proof of run {self.number + 1}"
        return f"'{self.question.value}'"

    @classmethod
    def from_json(cls, entry: Any) -> Self:
        """Read the request of a line."""
        number, round_, phase = (int(entry[name]) for name in ("number", "round", "phase"))
        about = entry.get("about")
        return cls(
            Endpoint(entry["question"]),
            number,
            round=round_,
            phase=phase,
            about=None if about is None else Endpoint(about),
            attempt=int(entry.get("attempt", 0)),
        )

    def as_json(self) -> dict[str, Any]:
        """Return the request as part of a line; what does not apply to it is left out."""
        unused = {name for name in ("about", "attempt") if not getattr(self, name)}
        entries = {name: value for name, value in asdict(self).items() if name not in unused}
        return {
            name: value.value if isinstance(value, Endpoint) else value
            for name, value in entries.items()
        }


class Event(Enum):
    """What a line is about.

    An allowed question is written down before the site works on it, what is sent or refused before
    it leaves. Lines of earlier versions do not name their event: the question was answered, and
    the size of the answer is not known.
    """

    ANSWERED = "answered"
    ALLOWED = "allowed"
    SENT = "sent"
    REFUSED = "refused"


@dataclass(frozen=True)
class LedgerEntry:
    """A line: when, in which run of which plan, and what happened to which request.

    ``digest`` is the SHA-256 of the message that left, of ``bytes`` bytes; for a question that was
    allowed it is the question's own. ``masked`` is None if the message has no numbers from the
    table. ``reason`` says why a question was refused, as the server was told.
    """

    time: str
    plan: str
    run: str
    asked: Request
    digest: str
    _: KW_ONLY
    event: Event = Event.ANSWERED
    bytes: int | None = None
    masked: bool | None = None
    reason: str = ""

    @property
    def round(self) -> int:
        """The round of the question."""
        return self.asked.round

    @property
    def left(self) -> bool:
        """Whether a message left the site."""
        return self.event is not Event.ALLOWED

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
            event=Event(entry.get("event", Event.ANSWERED.value)),
            bytes=None if size is None else int(size),
            masked=None if masked is None else bool(masked),
            reason=str(entry.get("reason", "")),
        )

    def as_json(self) -> dict[str, Any]:
        """Return the entry as a line of the log."""
        start = {"time": self.time, "event": self.event.value, "plan": self.plan, "run": self.run}
        line = {**start, **self.asked.as_json(), "digest": self.digest}
        if self.bytes is not None:
            line |= {"bytes": self.bytes, "masked": self.masked}
        return line | ({"reason": self.reason} if self.reason else {})


@dataclass(frozen=True)
class Limits:
    """How many runs of a plan, different requests about a round, and different ones in a run.

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
        # Under a promise of privacy the rate follows from the noisy census.
        totals += POWER_ITERATIONS * (plan.privacy is None)
        others += 1
    if plan.secure_sums is None:
        return totals + others
    # Summary and counts are separate questions, after the keys and everybody's keys.
    return CALLS_PER_TOTAL * (totals + 2) + others + 2


def limits_of(plan: NetworkPlan, settings: SiteSettings) -> Limits:
    """Return what a site allows in a run of this plan."""
    questions = ROOM_FOR_REPEATS * planned_questions(plan)
    if plan.privacy is not None:
        # Two orders with the same noise would show the difference of their answers.
        return Limits(settings.max_runs, 1, questions, sync=True)
    return Limits(settings.max_runs, settings.max_answers, questions)


class Ledger:
    """The log of one site in one job.

    Args:
        folder: where the site stores data between rounds.
    """

    def __init__(self, folder: Path) -> None:
        self._log = JsonLog(folder / LEDGER_FILE, LedgerEntry)
        self._run = self._plan = ""
        self._limits: Limits | None = None
        self._read_until = 0
        self._runs: set[str] = set()
        self._digests: defaultdict[Request, set[str]] = defaultdict(set)
        self._calls: set[Request] = set()

    def begin(self, run: str, plan: str, limits: Limits) -> None:
        """Say which run this job is of, the digest of its plan, and what the site allows."""
        self._run, self._plan, self._limits = run, plan, limits
        # What was read before was not known to be of this run.
        self._read_until = 0

    def note(self, asked: Request, *content: bytes | memoryview) -> None:
        """Allow this request about some content and record it, or refuse it."""
        limits = self._limits
        if limits is None:
            raise RefusedError("this site was asked before it had a plan")
        whole = hashlib.sha256()
        for part in content:
            whole.update(part)
        digest = whole.hexdigest()[:32]
        with self._up_to_date():
            known = self._digests[asked]
            if self._run not in self._runs and len(self._runs) >= limits.runs:
                raise RefusedError(
                    f"this site allows {counted(limits.runs, 'run')} of this configuration, "
                    "and had them"
                )
            if digest not in known:
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
        if entry.event in (Event.ALLOWED, Event.ANSWERED):
            if entry.plan == self._plan:
                self._runs.add(entry.run)
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
