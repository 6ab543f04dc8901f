"""The rounds of a run over a network: what is logged of each, and what its coordinator sees.

The log has JSON lines with the numbers of each round, who took part, and who did not and why. The
coordinator sees rounds (``LiveRound``) and notices as text (``Notice``).
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from fedminmax.core.json_log import JsonLog
from fedminmax.methods.method import StateT
from fedminmax.network.wire.plan import NetworkPlan
from fedminmax.training.round_record import RoundRecord, SiteNotes
from fedminmax.training.train import Round

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


def with_notes(
    record: RoundRecord, done: Round[StateT], plan: NetworkPlan, notes: RoundNotes
) -> RoundRecord:
    """Add to a round's record who was asked, and who stayed away."""
    masked = plan.secure_aggregation is not None
    away = notes.absent if masked else notes.refused
    present = [number for number in done.participants if masked or plan.sites[number] not in away]
    asked = plan.sites if masked else [plan.sites[number] for number in done.participants]
    return replace(
        record,
        participants=tuple(present),
        sites=SiteNotes(
            took_part=tuple(site for site in asked if site not in away),
            refused=away,
            slowest_seconds=round(notes.slowest_seconds, 6),
            bytes_out=notes.bytes_out,
            bytes_in=notes.bytes_in,
        ),
    )


def read_last_rounds(path: Path, after: int = 0) -> list[RoundRecord]:
    """Read the last rounds of a file, for those who look at it again and again."""
    return JsonLog(path, RoundRecord).read_after(after, BYTES_OF_LAST_ROUNDS)


class LiveRound(NamedTuple):
    """The number of the run among the plan's, its round, and the names of the groups.

    ``small_groups`` are those of them that are too small to be trained for.
    """

    run: int
    round: RoundRecord
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
