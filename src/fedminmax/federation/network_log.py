"""The rounds of a run over a network: JSON lines with who took part, and who did not and why."""

import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from fedminmax.core.errors import InputError
from fedminmax.core.files import write_text
from fedminmax.federation.round_notes import RoundNotes
from fedminmax.federation.train import Round
from fedminmax.methods.method import StateT

ROUNDS_FILE = "rounds.jsonl"
BYTES_OF_LAST_ROUNDS = 2**18


@dataclass(frozen=True)
class NetworkRound:
    """One round: risks that entered it (None: no site that answered has the group), weights after.

    ``slowest_seconds`` is the longest time that a site computed for; bytes are per site; gradient
    evaluations count from the start of the run.
    """

    round: int
    seconds: float
    risks: tuple[float | None, ...]
    weights: tuple[float, ...]
    took_part: tuple[str, ...]
    refused: dict[str, str]
    slowest_seconds: float
    bytes_out: int
    bytes_in: int
    gradient_evaluations: int

    @property
    def unseen(self) -> tuple[int, ...]:
        """Numbers of the groups that nobody told of in this round."""
        return tuple(place for place, risk in enumerate(self.risks) if risk is None)


class NetworkLog:
    """A run's file of rounds; lines after the restored round are done again, and dropped."""

    def __init__(self, path: Path, restored_round: int) -> None:
        self._path = path
        kept = [entry for entry in read_network_rounds(path) if entry.round <= restored_round]
        self._last = time.monotonic()
        write_text(path, "".join(_line(entry) for entry in kept))

    def add(self, done: Round[StateT], sites: tuple[str, ...], notes: RoundNotes) -> None:
        """Append a round; its seconds count from the end of the one before."""
        now = time.monotonic()
        asked = [sites[number] for number in done.participants]
        entry = NetworkRound(
            round=done.number,
            seconds=round(now - self._last, 6),
            risks=tuple(None if risk != risk else risk for risk in done.risks.tolist()),
            weights=tuple(done.weights.tolist()),
            took_part=tuple(site for site in asked if site not in notes.refused),
            refused=notes.refused,
            slowest_seconds=round(notes.slowest_seconds, 6),
            bytes_out=notes.bytes_out,
            bytes_in=notes.bytes_in,
            gradient_evaluations=done.progress.gradient_evaluations,
        )
        self._last = now
        with self._path.open("a", encoding="utf-8") as file:
            file.write(_line(entry))


def read_network_rounds(path: Path) -> list[NetworkRound]:
    """Read a file of rounds; a last line that was cut off is not part of it."""
    if not path.exists():
        return []
    return _parsed(path, path.read_text(encoding="utf-8").splitlines(keepends=True))


def read_last_rounds(path: Path) -> list[NetworkRound]:
    """Read the end of a file of rounds, for those who look at it again and again."""
    if not path.exists():
        return []
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        start = max(0, size - BYTES_OF_LAST_ROUNDS)
        file.seek(start)
        lines = file.read().decode("utf-8", errors="replace").splitlines(keepends=True)
    return _parsed(path, lines[1:] if start else lines)


def _parsed(path: Path, lines: Sequence[str]) -> list[NetworkRound]:
    try:
        entries = [json.loads(line) for line in lines if line.endswith("\n")]
        tuples = ("risks", "weights", "took_part")
        return [
            NetworkRound(**entry | {name: tuple(entry[name]) for name in tuples})
            for entry in entries
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is damaged; remove it, and the run goes on") from error


def _line(entry: NetworkRound) -> str:
    return json.dumps(asdict(entry)) + "\n"
