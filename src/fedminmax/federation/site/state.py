"""A site's local state on disk: vectors from round to round, and a ledger of its answers.

``SiteState`` keeps one file per round. A server that goes on from a checkpoint asks for a round
again: the site then starts from what it kept before that round, as if the round had never been.

``Ledger`` notes what the site has answered, and limits who may ask what, and how often. Rows could
be recovered from many answers about the same rows (see docs/threat_model.md), so a site gives one
answer per (run, round, phase), in order. A server that goes on after a fault asks again: the same
question gets the same answer, which reveals nothing new, and other questions about a round that was
answered are limited over all jobs. The file is also the administrator's record.
"""

import hashlib
import re
import time
from collections import defaultdict
from dataclasses import KW_ONLY, asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Self

from torch import Tensor

from fedminmax.core.errors import InputError
from fedminmax.core.files import held, write_bytes
from fedminmax.core.json_log import JsonLog
from fedminmax.core.text import counted
from fedminmax.federation.wire.codec import RefusedError
from fedminmax.federation.wire.messages import vector_from_bytes, vector_to_bytes

# The server's checkpoint and its predecessor are at most two rounds back.
ROUNDS_KEPT = 4
FILE_NAME = re.compile(r"round-(\d+)\.safetensors")
LEDGER_FILE = "answers.jsonl"
LOCK_TIMEOUT = 10.0


class SiteState:
    """The files of one run at one site."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def before(self, number: int, start: Tensor) -> Tensor:
        """Return the vector of the last round before this one; ``start`` if there is none."""
        earlier = [kept for kept in self._rounds() if kept < number]
        if not earlier:
            return start
        path = self._path(max(earlier))
        return vector_from_bytes(path.read_bytes(), start, str(path))

    def keep(self, number: int, vector: Tensor) -> None:
        """Store this round's vector; drop later rounds, which are being repeated, and old ones."""
        for later in [kept for kept in self._rounds() if kept >= number]:
            self._path(later).unlink()
        write_bytes(self._path(number), vector_to_bytes(vector))
        for old in sorted(self._rounds())[:-ROUNDS_KEPT]:
            self._path(old).unlink()

    def _path(self, number: int) -> Path:
        return self._folder / f"round-{number}.safetensors"

    def _rounds(self) -> list[int]:
        if not self._folder.is_dir():
            return []
        found = [FILE_NAME.fullmatch(path.name) for path in self._folder.iterdir()]
        return [int(match[1]) for match in found if match]


class Endpoint(Enum):
    """What a server may request; each value is the name of the site's function."""

    ENCODE = "encode"
    CURVATURE = "curvature"
    ANSWER = "answer"
    VALIDATE = "validate"
    CERTIFY = "certify"
    MEASURE = "measure"


@dataclass(frozen=True)
class Request:
    """One request: ``number`` is the run among the plan's, ``round`` counts from 1.

    For requests outside the rounds, ``round`` counts how often they came in this job.
    """

    question: Endpoint
    number: int = 0
    _: KW_ONLY
    round: int = 0
    phase: int = 0

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


@dataclass(frozen=True)
class LedgerEntry:
    """A question that was allowed: when, in which run of which plan, and what digest it has."""

    time: str
    plan: str
    run: str
    asked: Request
    digest: str

    @property
    def round(self) -> int:
        """The round of the question."""
        return self.asked.round

    @classmethod
    def from_json(cls, entry: Any) -> Self:
        """Read a line of the ledger."""
        number, round_, phase = (int(entry[name]) for name in ("number", "round", "phase"))
        asked = Request(Endpoint(entry["question"]), number, round=round_, phase=phase)
        texts = {name: str(entry[name]) for name in ("time", "plan", "run", "digest")}
        return cls(asked=asked, **texts)

    def as_json(self) -> dict[str, Any]:
        """Return the entry as a line of the ledger."""
        start = {"time": self.time, "plan": self.plan, "run": self.run}
        asked = asdict(self.asked) | {"question": self.asked.question.value}
        return {**start, **asked, "digest": self.digest}


class Ledger:
    """The record of one site, shared by all its jobs.

    Args:
        folder: where the site stores data between rounds.
        run: the name of this job's run.
        plan: the digest of what this job asks of the site.
        max_runs: how many runs of the same plan the site allows.
        max_answers: how many different requests about the same round.
    """

    def __init__(self, folder: Path, run: str, plan: str, max_runs: int, max_answers: int) -> None:
        self._log = JsonLog(folder / LEDGER_FILE, LedgerEntry)
        self._run, self._plan = run, plan
        self._max_runs, self._max_answers = max_runs, max_answers
        self._read_until = 0
        self._runs: set[str] = set()
        self._digests: defaultdict[Request, set[str]] = defaultdict(set)

    def note(self, asked: Request, *content: bytes | memoryview) -> None:
        """Allow this request about some content and record it, or refuse it."""
        whole = hashlib.sha256()
        for part in content:
            whole.update(part)
        digest = whole.hexdigest()[:32]
        with held(self._log.path.with_suffix(".lock"), LOCK_TIMEOUT) as ours:
            if not ours:
                raise RefusedError("this site's record of answers is in use; ask again")
            self._read_on()
            known = self._digests[asked]
            if self._run not in self._runs and len(self._runs) >= self._max_runs:
                raise RefusedError(
                    f"this site allows {counted(self._max_runs, 'run')} of this configuration, "
                    "and had them"
                )
            if digest not in known and len(known) >= self._max_answers:
                raise RefusedError(
                    f"this site answered {counted(len(known), 'different question')} about "
                    f"{asked} and allows no more"
                )
            when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            self._log.add(LedgerEntry(when, self._plan, self._run, asked, digest))

    def _read_on(self) -> None:
        """Read what this and other jobs have written since the last look.

        A line that a crash cut off is removed: its answer was not sent.
        """
        try:
            entries, self._read_until = self._log.read_on(self._read_until)
        except InputError as error:
            raise RefusedError(
                "this site's record of answers is damaged; its administrator has to look"
            ) from error
        for entry in entries:
            if entry.plan == self._plan:
                self._runs.add(entry.run)
            if entry.run == self._run:
                self._digests[entry.asked].add(entry.digest)
