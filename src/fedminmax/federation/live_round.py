"""A round of a run over a network, as its coordinator sees it."""

from typing import NamedTuple

from fedminmax.federation.network_log import NetworkRound


class LiveRound(NamedTuple):
    """The number of the run among the plan's, its round, and the names of the groups."""

    run: int
    round: NetworkRound
    groups: tuple[str, ...]
