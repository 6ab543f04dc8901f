"""Rounds as a server would note them."""

from fedminmax.network.server.log import NetworkRound
from tests.network.network_problem import SITES


def made_up_round(
    number: int,
    risks: tuple[float | None, ...] = (0.5, 0.25),
    refused: dict[str, str] | None = None,
) -> NetworkRound:
    """One round of two groups; who was refused took no part."""
    refused = refused or {}
    return NetworkRound(
        round=number,
        seconds=0.5,
        risks=risks,
        weights=(0.75, 0.25),
        took_part=tuple(site for site in SITES if site not in refused),
        refused=refused,
        slowest_seconds=0.125,
        bytes_out=1000,
        bytes_in=900,
        gradient_evaluations=100 * number,
    )
