"""What happens in a run over a network, as its coordinator sees it: rounds, and news in words."""

from typing import NamedTuple

from fedminmax.federation.network_log import NetworkRound


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
