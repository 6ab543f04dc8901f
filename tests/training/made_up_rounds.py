"""Rounds as a server would note them."""

from fedminmax.training.round_record import RoundRecord, SiteNotes
from tests.network.network_problem import SITES


def made_up_round(
    number: int,
    risks: tuple[float | None, ...] = (0.5, 0.25),
    refused: dict[str, str] | None = None,
) -> RoundRecord:
    """One round of two groups; who was refused took no part."""
    refused = refused or {}
    return RoundRecord(
        round=number,
        seconds=0.5 * number,
        risks=risks,
        weights=(0.75, 0.25),
        weights_over="groups",
        participants=tuple(n for n, site in enumerate(SITES) if site not in refused),
        gradient_evaluations=100 * number,
        sites=SiteNotes(
            took_part=tuple(site for site in SITES if site not in refused),
            refused=refused,
            slowest_seconds=0.125,
            bytes_out=1000,
            bytes_in=900,
        ),
    )
