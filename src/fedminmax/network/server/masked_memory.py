"""What the server of masked sums keeps on its disk, so that a further job of a run can go on.

That is who is in the run, the first two totals, which are asked for once, and for which sites masks
of a total were being taken off: sites do that for no other set of sites. The last of these grows by
a line with every question, and a line is on the disk before its masks are taken off.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pydantic import TypeAdapter

from fedminmax.core.errors import InputError
from fedminmax.core.files import write_json
from fedminmax.core.json_log import JsonLog
from fedminmax.network.secure.messages import Context

MASKED_FILE = "masked.json"
BEGUN_FILE = "unmasked.jsonl"


@dataclass(frozen=True)
class Begun:
    """A total that sites have begun to unmask, and the sites that it is of."""

    context: Context
    sites: tuple[str, ...]

    @property
    def round(self) -> int:
        """The round of the question."""
        return self.context.round

    @classmethod
    def from_json(cls, entry: Any) -> Self:
        """Read a line."""
        return cls(Context(**entry["context"]), tuple(map(str, entry["sites"])))

    def as_json(self) -> dict[str, Any]:
        """Return the total as a line."""
        return {"context": vars(self.context), "sites": self.sites}


@dataclass(frozen=True)
class Kept:
    """Who is in the run, and the totals of the summaries and of the counts."""

    sites: tuple[str, ...] = ()
    summary: str = ""
    counts: str = ""


class MaskedMemory:
    """The files of one run.

    Args:
        folder: where the server keeps this plan's runs.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / MASKED_FILE
        self._log = JsonLog(folder / BEGUN_FILE, Begun)
        self.kept = _read(self._path)
        begun, _ = self._log.read_on(0)
        self._begun = {entry.context: entry.sites for entry in begun}

    def keep(self, kept: Kept) -> None:
        """Write down who is in the run, and what was asked for once."""
        self.kept = kept
        write_json(self._path, TypeAdapter(Kept).dump_python(kept, mode="json"))

    def begun(self, topic: Context) -> tuple[str, ...] | None:
        """Return the sites that have begun to unmask this question's total; None if none has."""
        return self._begun.get(topic)

    def note_begun(self, topic: Context, sites: tuple[str, ...]) -> None:
        """Write down that these sites begin to unmask a total."""
        if self._begun.get(topic) != sites:
            self._log.add(Begun(topic, sites), sync=True)
            self._begun[topic] = sites


def _read(path: Path) -> Kept:
    if not path.exists():
        return Kept()
    try:
        return TypeAdapter(Kept).validate_python(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise InputError(f"{path} is damaged; start a new run") from error
