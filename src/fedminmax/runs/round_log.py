"""The rounds of a run over a network, as a run in one process writes them."""

from collections.abc import Sequence

from fedminmax.network.server.log import NetworkRound
from fedminmax.training.round_record import RoundRecord, in_unit


def network_records(
    rounds: Sequence[NetworkRound],
    unit: float,
    *,
    sites: Sequence[str],
    masked: bool,
    weights_over: str,
) -> list[RoundRecord]:
    """Return rounds over a network as a run in one process writes them, in the target's unit."""
    # A masked total is that of one site.
    places = {site: 0 if masked else place for place, site in enumerate(sites)}
    seconds = 0.0
    records = []
    for entry in rounds:
        seconds += entry.seconds
        records.append(
            RoundRecord(
                entry.round,
                round(seconds, 3),
                risks=in_unit(entry.risks, unit),
                weights=entry.weights,
                weights_over=weights_over,
                participants=tuple(dict.fromkeys(places[site] for site in entry.took_part)),
                gradient_evaluations=entry.gradient_evaluations,
                remaining=entry.remaining,
                certificate=entry.certificate and entry.certificate.in_units(unit),
                validation_risks=in_unit(entry.validation_risks, unit),
                chosen_round=entry.chosen_round,
            )
        )
    return records
