"""A site's own journal: the questions it allowed, what left in answer, what it refused, its masks.

The journal is a file of JSON lines, ``journal.jsonl``, shared by all jobs of the site. A line is
written before what it is about leaves the site. It is the administrator's record (``fedminmax site
log``), and it is what limits are counted from, so that a restart forgets nothing.

Rows could be recovered from many answers about the same rows (see docs/threat_model.md), so a site
gives one answer per (data, run, round, phase), in order, whatever was restarted. A server that goes
on after a fault asks again: the same question gets the same answer, which reveals nothing new.
Another one, or another plan, encoding or learning rate for the same run, is refused; where sums are
not masked a few are allowed, since a round that is repeated may be without a site that was away.
The number of runs about the same data is limited, and that of different questions in a run.

A site masks at most once per attempt in a session. Of each question of a run it helps to unmask one
total, over one set of sites, however many attempts, sessions and restarts there are. The same total
may be unmasked again. Totals over two sets of sites tell, by their difference, about the sites in
which the sets differ, whatever runs they are of. So of all sets that a site's data were in, no
combination may be about fewer sites than the threshold (``tells_too_much``); a set that would make
one is refused.
"""

import hashlib
import math
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from enum import StrEnum
from itertools import combinations
from pathlib import Path
from typing import Any, Self

import numpy as np
from pydantic import TypeAdapter

from fedminmax.core.errors import InputError
from fedminmax.core.files import JsonLog, held
from fedminmax.core.text import counted
from fedminmax.network.secure.messages import Total
from fedminmax.network.site.policy import Limits
from fedminmax.network.wire.calls import COMPARED, Endpoint, Question
from fedminmax.network.wire.codec import RefusedError

# In a kit.
KEPT_FOLDER = "fedminmax_kept"
JOURNAL_FILE = "journal.jsonl"
LOCK_TIMEOUT = 10.0
# A reason may quote names that came from the server.
MAX_REASON = 300
# So many combinations of sites are looked at in well under a second.
MAX_COMBINATIONS = 5_000


class Event(StrEnum):
    """What a line is about.

    An allowed question is written down before the site works on it, what is sent or refused before
    it leaves. Work that failed is said under the masks of a total, and its reason here alone.
    """

    ALLOWED = "allowed"
    FAILED = "failed"
    SENT = "sent"
    REFUSED = "refused"
    MASKED = "masked"
    UNMASKED = "unmasked"


# What is only for the site itself: everything else left it.
KEPT_EVENTS = frozenset({Event.ALLOWED, Event.MASKED, Event.UNMASKED})


@dataclass(frozen=True)
class Entry:
    """A line: when, what happened, in which run of which plan on which data, about which question.

    ``call`` is the endpoint that was called, if it is another than the question's: masks are taken
    off an answer by a call of its own. ``digest`` is the SHA-256 of the message that left, of
    ``bytes`` bytes; of a question that was allowed, masked or unmasked it is the question's own.
    ``masked`` is None if the message has no numbers from the table. ``reason`` says why a question
    was refused, as the server was told, or why work failed. Masks are of a ``session`` and of a
    total over ``sites``.
    """

    time: str
    event: Event
    run: str
    plan: str
    data: str
    question: Question
    digest: str
    _: KW_ONLY
    call: Endpoint | None = None
    bytes: int | None = None
    masked: bool | None = None
    reason: str = ""
    session: str = ""
    sites: tuple[str, ...] = ()

    @property
    def round(self) -> int:
        """The round of the question."""
        return self.question.round

    @property
    def endpoint(self) -> Endpoint:
        """What was called."""
        return self.call or self.question.endpoint

    @classmethod
    def from_json(cls, entry: Any) -> Self:
        """Read a line."""
        read: Self = ENTRIES.validate_python(entry)
        return read

    def as_json(self) -> dict[str, Any]:
        """Return the entry as a line; what does not apply to it is left out."""
        line: dict[str, Any] = ENTRIES.dump_python(self, mode="json", exclude_defaults=True)
        return line


ENTRIES: TypeAdapter[Any] = TypeAdapter(Entry)


class Journal:
    """The journal of one site in one job."""

    def __init__(self, folder: Path) -> None:
        self._log = JsonLog(folder / JOURNAL_FILE, Entry)
        self._run = self._plan = self._data = ""
        self._limits: Limits | None = None
        self._forget()

    def _forget(self) -> None:
        """Forget all lines; what was read before was not known to be of this run."""
        self._read_until = 0
        self._runs: dict[str, str] = {}
        self._digests: defaultdict[Question, set[str]] = defaultdict(set)
        self._calls: set[tuple[Endpoint, Question]] = set()
        self._masked: set[tuple[str, Question]] = set()
        self._unmasked: dict[Question, Total] = {}
        self._sets: set[frozenset[str]] = set()

    def begin(self, run: str, plan: str, data: str, limits: Limits, *content: bytes) -> None:
        """Allow a job of this plan (a digest) on this data, or refuse it.

        ``content`` is the plan as it came, and how this site reads its table.
        """
        self._run, self._plan, self._data, self._limits = run, plan, data, limits
        self._forget()
        self.allow(Question(Endpoint.PREPARE), *content)

    def allow(self, question: Question, *content: bytes | memoryview) -> None:
        """Allow this question about some content and write it down, or refuse it."""
        limits = self._begun()
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
            before = self._digests[question]
            if digest not in before:
                if len(before) >= limits.answers and question.endpoint == Endpoint.PREPARE:
                    raise RefusedError(
                        "this run began here with another plan or other settings of this site; "
                        "give the new one another name"
                    )
                if len(before) >= limits.answers:
                    raise RefusedError(
                        f"this site answered {counted(len(before), 'different question')} about "
                        f"{question} and allows no more"
                    )
                self._check_number(limits)
            self._add(Event.ALLOWED, question, digest, sync=limits.sync)

    def check_call(self, endpoint: Endpoint, question: Question) -> None:
        """Refuse a call whose content is not compared, if it is new and the run had enough."""
        if self._limits is None or endpoint in COMPARED:
            return
        with self._up_to_date():
            if (endpoint, question.topic) not in self._calls:
                self._check_number(self._limits)

    def sent(
        self, endpoint: Endpoint, question: Question, message: bytes, *, masked: bool | None
    ) -> None:
        """Write down a message that is about to leave."""
        with self._up_to_date():
            digest, size = hashlib.sha256(message).hexdigest(), len(message)
            self._add(Event.SENT, question, digest, call=endpoint, bytes=size, masked=masked)

    def refused(self, endpoint: Endpoint, question: Question, reason: str) -> None:
        """Write down a refusal that is about to leave, with the reason that the server gets."""
        message = reason.encode()
        with self._up_to_date():
            digest, size = hashlib.sha256(message).hexdigest(), len(message)
            short = reason[:MAX_REASON]
            self._add(Event.REFUSED, question, digest, call=endpoint, bytes=size, reason=short)

    def failed(self, question: Question, reason: str) -> None:
        """Write down why an answer could not be computed; the reason does not leave."""
        with self._up_to_date():
            digest = hashlib.sha256(reason.encode()).hexdigest()
            self._add(Event.FAILED, question, digest, reason=reason[:MAX_REASON])

    def allow_mask(self, session: str, question: Question, total: Total) -> None:
        """Allow one mask for this attempt and write it down, or refuse it."""
        with self._up_to_date():
            self._check_total(question, total)
            if (session, question) in self._masked:
                raise RefusedError(
                    f"this site has masked its answer to {question}, attempt {question.attempt}, "
                    "and does not mask it again"
                )
            # Masks end with the process that has the session's keys, power cut or not.
            self._add_total(Event.MASKED, session, question, total, sync=False)

    def allow_unmask(self, session: str, question: Question, total: Total) -> None:
        """Allow this total and write it down, or refuse it."""
        with self._up_to_date():
            self._check_total(question, total)
            self._add_total(Event.UNMASKED, session, question, total, sync=True)

    def _check_total(self, question: Question, total: Total) -> None:
        limits, before = self._begun(), self._unmasked.get(question.topic)
        if before is not None and before != total:
            what = "another question" if before.sites == total.sites else "other sites"
            raise RefusedError(
                f"this site has helped to unmask the answers to {question}, and does not help with "
                f"a total of {what}"
            )
        sites = frozenset(total.sites)
        if limits.allow_other_sites or sites in self._sets:
            return
        if tells_too_much(sorted(self._sets, key=sorted), sites, limits.threshold):
            missing = sorted(sites.union(*self._sets) - sites.intersection(*self._sets))
            raise RefusedError(
                f"this site's data were in totals over other sites ({', '.join(missing)} make the "
                f"difference); the two together would tell about fewer than "
                f"{limits.threshold} sites: bring all of them back, or set allow_other_sites in "
                "this site's settings"
            )

    def _begun(self) -> Limits:
        if self._limits is None:
            raise RefusedError("this site was asked before it had a plan")
        return self._limits

    def _check_number(self, limits: Limits) -> None:
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
                raise RefusedError("this site's journal is in use; ask again")
            try:
                entries, self._read_until = self._log.read_on(self._read_until)
            except InputError as error:
                raise RefusedError(
                    "this site's journal is damaged; its administrator has to look"
                ) from error
            for entry in entries:
                self._count(entry)
            yield

    def _count(self, entry: Entry) -> None:
        if entry.event is Event.ALLOWED:
            self._runs.setdefault(entry.run, entry.data)
        if entry.event is Event.UNMASKED and entry.data == self._data:
            self._sets.add(frozenset(entry.sites))
        if entry.run != self._run:
            return
        question = entry.question
        if entry.event is Event.ALLOWED:
            self._digests[question].add(entry.digest)
        elif entry.event is Event.SENT and entry.endpoint not in COMPARED:
            self._calls.add((entry.endpoint, question.topic))
        elif entry.event is Event.MASKED:
            self._masked.add((entry.session, question))
        elif entry.event is Event.UNMASKED:
            self._unmasked.setdefault(question.topic, Total(entry.digest, entry.sites))

    def _add_total(
        self, event: Event, session: str, question: Question, total: Total, *, sync: bool
    ) -> None:
        self._add(event, question, total.digest, sync=sync, session=session, sites=total.sites)

    def _add(
        self,
        event: Event,
        question: Question,
        digest: str,
        *,
        sync: bool = False,
        call: Endpoint | None = None,
        **details: Any,
    ) -> None:
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        job = (self._run, self._plan, self._data)
        other = None if call == question.endpoint else call
        self._log.add(Entry(when, event, *job, question, digest, call=other, **details), sync=sync)


def tells_too_much(
    earlier: Sequence[frozenset[str]], sites: frozenset[str], threshold: int
) -> bool:
    """Return whether a total over these sites, with the earlier ones, can tell of too few sites.

    A combination of totals is about the sites whose coefficients do not add up to 0. One that
    takes the new total leaves out all but the sites of S exactly if the new set, restricted to the
    other sites, is a combination of the earlier ones. What takes too long to find out counts as
    too much.

    >>> four, three = frozenset("abcd"), frozenset("abc")
    >>> tells_too_much([], four, 3), tells_too_much([four], three, 3)
    (False, True)
    >>> tells_too_much([four], frozenset("aefg"), 3)
    False
    """
    everyone = sorted(frozenset().union(sites, *earlier))
    if len(sites) < threshold:
        return True
    if not earlier:
        return False
    if math.comb(len(everyone), threshold - 1) > MAX_COMBINATIONS:
        return len(earlier) > 1 or len(earlier[0] ^ sites) < threshold
    old = np.array([[site in own for site in everyone] for own in earlier], dtype=float)
    both = np.vstack([old, [site in sites for site in everyone]])
    return any(
        np.linalg.matrix_rank(np.delete(both, few, axis=1))
        == np.linalg.matrix_rank(np.delete(old, few, axis=1))
        for few in combinations(range(len(everyone)), threshold - 1)
    )


def read_journal(folder: Path) -> list[Entry]:
    """Return all lines of a site's journal; none if it has not been asked anything yet."""
    path = folder / JOURNAL_FILE
    try:
        return JsonLog(path, Entry).read()
    except InputError as error:
        raise InputError(
            f"{path} is damaged, and the site refuses to answer; put back a copy of it, or remove "
            "the lines that are not JSON"
        ) from error
