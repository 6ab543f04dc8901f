"""What the server of masked sums keeps on its disk, so that a further job of a run can go on."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from fedminmax.core.json_log import JsonLog
from fedminmax.network.server.disk import read_record, write_record
from fedminmax.network.wire.endpoints import Question

MASKED_FILE = "masked.json"
BEGUN_FILE = "unmasked.jsonl"


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

    Args:
        folder: where the server keeps this plan's runs.
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
