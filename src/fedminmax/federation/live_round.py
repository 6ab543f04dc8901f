"""What happens in a run over a network, as its coordinator sees it: rounds, and news in words."""

from typing import NamedTuple

from fedminmax.federation.network_log import NetworkRound


class LiveRound(NamedTuple):
    """The number of the run among the plan's, its round, and the names of the groups."""

    run: int
    round: NetworkRound
    groups: tuple[str, ...]


class Notice(NamedTuple):
    """Something that a user should know at once."""

    words: str


Event = LiveRound | Notice
