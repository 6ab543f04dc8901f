"""The rounds of a run over a network: what is logged of each, and what its coordinator sees.

The log has JSON lines with the numbers of each round, who took part, and who did not and why. The
coordinator sees rounds (``LiveRound``) and notices as text (``Notice``).
"""

from dataclasses import KW_ONLY, asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

from fedminmax.core.certificate import Certificate, certificate_from_json
from fedminmax.core.json_log import JsonLog, with_tuples
from fedminmax.methods.method import StateT
from fedminmax.network.wire.plan import NetworkPlan
from fedminmax.training.train import Round

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
    _: KW_ONLY
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

    @classmethod
    def from_json(cls, entry: Any) -> Self:
        """Read a line."""
        found = with_tuples(entry, "risks", "weights", "took_part", "validation_risks")
        return cls(**found | {"certificate": certificate_from_json(entry["certificate"])})

    def as_json(self) -> dict[str, Any]:
        """Return the round as a line."""
        return asdict(self)

    @property
    def unseen(self) -> tuple[int, ...]:
        """Numbers of the groups that no site reported in this round."""
        return tuple(place for place, risk in enumerate(self.risks) if risk is None)


def network_round(
    done: Round[StateT], plan: NetworkPlan, notes: RoundNotes, seconds: float
) -> NetworkRound:
    """Write down a round: who was asked, and who stayed away."""
    masked = plan.secure_aggregation is not None
    asked = plan.sites if masked else [plan.sites[number] for number in done.participants]
    away = notes.absent if masked else notes.refused
    return NetworkRound(
        round=done.number,
        seconds=round(seconds, 6),
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


def read_network_rounds(path: Path) -> list[NetworkRound]:
    """Read a file of rounds."""
    return JsonLog(path, NetworkRound).read()


def read_last_rounds(path: Path, after: int = 0) -> list[NetworkRound]:
    """Read the last rounds of a file, for those who look at it again and again."""
    return JsonLog(path, NetworkRound).read_after(after, BYTES_OF_LAST_ROUNDS)


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
