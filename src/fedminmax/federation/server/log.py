"""The rounds of a run over a network: what is logged of each, and what its coordinator sees.

The log has JSON lines with the numbers of each round, who took part, and who did not and why. The
coordinator sees rounds (``LiveRound``) and notices as text (``Notice``).
"""

import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from fedminmax.core.certificate import Certificate, certificate_from_json
from fedminmax.core.files import append_entry, keep_rounds, read_records, read_rounds_after
from fedminmax.federation.train import Round
from fedminmax.federation.wire.plan import NetworkPlan
from fedminmax.methods.method import StateT

ROUNDS_FILE = "rounds.jsonl"
BYTES_OF_LAST_ROUNDS = 2**18


@dataclass
class RoundNotes:
    """What happened in a round: reasons by site, the slowest site's seconds, bytes per site.

    ``absent`` are the sites that are not in a masked total, with the reasons. The bytes of all the
    round's questions and of the longest reply to each are added up.
    """

    refused: dict[str, str] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    slowest_seconds: float = 0.0
    bytes_out: int = 0
    bytes_in: int = 0


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
    remaining: float | None = None
    certificate: Certificate | None = None
    validation_risks: tuple[float | None, ...] = ()
    chosen_round: int | None = None

    @property
    def unseen(self) -> tuple[int, ...]:
        """Numbers of the groups that nobody told of in this round."""
        return tuple(place for place, risk in enumerate(self.risks) if risk is None)


class NetworkLog:
    """A run's file of rounds; lines after the restored round are done again, and dropped."""

    def __init__(self, path: Path, restored_round: int) -> None:
        self._path = path
        keep_rounds(path, _parsed, restored_round)
        self._last = time.monotonic()

    def add(self, done: Round[StateT], plan: NetworkPlan, notes: RoundNotes) -> None:
        """Append a round; its seconds count from the end of the one before."""
        now = time.monotonic()
        masked = plan.secure_sums is not None
        asked = plan.sites if masked else [plan.sites[number] for number in done.participants]
        away = notes.absent if masked else notes.refused
        entry = NetworkRound(
            round=done.number,
            seconds=round(now - self._last, 6),
            risks=tuple(None if risk != risk else risk for risk in done.risks.tolist()),
            weights=tuple(done.weights.tolist()),
            took_part=tuple(site for site in asked if site not in away),
            refused=away,
            slowest_seconds=round(notes.slowest_seconds, 6),
            bytes_out=notes.bytes_out,
            bytes_in=notes.bytes_in,
            gradient_evaluations=done.progress.gradient_evaluations,
            remaining=done.remaining,
            certificate=done.certificate,
            validation_risks=tuple(
                None if risk != risk else risk for risk in done.validation_risks.tolist()
            ),
            chosen_round=done.chosen.round if done.chosen else None,
        )
        self._last = now
        append_entry(self._path, asdict(entry))


def read_network_rounds(path: Path) -> list[NetworkRound]:
    """Read a file of rounds; a last line that was cut off is not part of it."""
    return read_records(path, _parsed)


def read_last_rounds(path: Path, after: int = 0) -> list[NetworkRound]:
    """Read the last rounds of a file, for those who look at it again and again."""
    return read_rounds_after(path, _parsed, after, BYTES_OF_LAST_ROUNDS)


def _parsed(entry: Any) -> NetworkRound:
    # Earlier versions had no validation rows.
    tuples = ("risks", "weights", "took_part", "validation_risks")
    found = {name: tuple(entry.get(name, ())) for name in tuples}
    proved = certificate_from_json(entry.get("certificate"))
    return NetworkRound(**entry | found | {"certificate": proved})


class LiveRound(NamedTuple):
    """The number of the run among the plan's, its round, and the names of the groups.

    ``small_groups`` are those of them that are too small to be trained for.
    """

    run: int
    round: NetworkRound
    groups: tuple[str, ...]
    small_groups: tuple[str, ...] = ()

    @property
    def risks(self) -> dict[str, float]:
        """The known risks by group but for small groups: those of a few rows are mostly noise."""
        return {
            name: risk
            for name, risk in zip(self.groups, self.round.risks, strict=True)
            if risk is not None and name not in self.small_groups
        }


class Notice(NamedTuple):
    """Something that a user should know at once."""

    words: str


Event = LiveRound | Notice
