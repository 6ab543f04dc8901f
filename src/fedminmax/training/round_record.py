"""One round of a run as it is logged: a line of JSON with its risks and weights.

Every run logs its rounds in this form, whether its sites are in one process or on a network.
"""

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from fedminmax.core.certificate import Certificate, certificate_from_json
from fedminmax.core.files import JsonLog, with_tuples
from fedminmax.methods.card import Weights, card_of
from fedminmax.methods.method import AnyMethod, StateT
from fedminmax.training.train import Round

ROUNDS_FILE = "rounds.jsonl"


@dataclass(frozen=True)
class SiteNotes:
    """What a server notes of a round over a network: who took part, who did not and why.

    ``slowest_seconds`` is the longest time that a site computed for; bytes are per site.
    """

    took_part: tuple[str, ...] = ()
    refused: dict[str, str] = field(default_factory=dict)
    slowest_seconds: float = 0.0
    bytes_out: int = 0
    bytes_in: int = 0


@dataclass(frozen=True)
class RoundRecord:
    """One round: training risks at its start (None: no site had the group), weights after it.

    Seconds and gradient evaluations count from the start of the run; risks are in the target's
    unit, squared. ``weights_over`` says what the weights belong to: "groups", "sites", "groups and
    classes" or "nothing". ``remaining`` is the share of the worst risk that is left to gain, if the
    method knows it, and ``certificate`` what is proved about the answer after the round.
    ``validation_risks`` are those of the same model as ``risks``, if there are validation rows, and
    ``chosen_round`` is the round that these rows have chosen so far. ``sites`` is empty unless the
    run is over a network.
    """

    round: int
    seconds: float
    _: KW_ONLY
    risks: tuple[float | None, ...]
    weights: tuple[float, ...]
    weights_over: str
    participants: tuple[int, ...]
    gradient_evaluations: int
    remaining: float | None = None
    certificate: Certificate | None = None
    validation_risks: tuple[float | None, ...] = ()
    chosen_round: int | None = None
    sites: SiteNotes = SiteNotes()

    @classmethod
    def from_json(cls, entry: Any) -> Self:
        """Read a line."""
        values = with_tuples(entry, "risks", "weights", "participants", "validation_risks")
        notes = SiteNotes(**with_tuples(entry["sites"], "took_part")) if "sites" in entry else NONE
        certificate = certificate_from_json(entry["certificate"])
        return cls(**values | {"certificate": certificate, "sites": notes})

    def as_json(self) -> dict[str, Any]:
        """Return the round as a line; it has notes on sites only over a network."""
        entry = asdict(self)
        if self.sites == NONE:
            del entry["sites"]
        return entry

    @property
    def unseen(self) -> tuple[int, ...]:
        """Numbers of the groups that no site reported in this round."""
        return tuple(number for number, risk in enumerate(self.risks) if risk is None)


NONE = SiteNotes()


def record_round(
    done: Round[StateT], method: AnyMethod[StateT], seconds: float, unit: float = 1.0
) -> RoundRecord:
    """Return the record of a finished round; ``unit`` is a risk of 1 in the target's unit."""
    card = card_of(method)
    return RoundRecord(
        done.number,
        seconds,
        risks=in_unit(done.risks.tolist(), unit),
        weights=tuple(done.weights.tolist()),
        weights_over=(card.weights if card else Weights.NONE).value,
        participants=done.participants,
        gradient_evaluations=done.progress.gradient_evaluations,
        remaining=done.remaining,
        certificate=done.certificate and done.certificate.in_units(unit),
        validation_risks=in_unit(done.validation_risks.tolist(), unit),
        chosen_round=done.chosen.round if done.chosen else None,
    )


def in_unit(risks: Sequence[float], unit: float) -> tuple[float | None, ...]:
    """Return risks in the target's unit, squared; None for a group that no site had."""
    return tuple(None if math.isnan(risk) else risk * unit for risk in risks)


def read_rounds(path: Path) -> list[RoundRecord]:
    """Read a file of rounds."""
    return JsonLog(path, RoundRecord).read()


def scalars(record: RoundRecord, groups: Sequence[str]) -> dict[str, float]:
    """Return a round's numbers by name, for programs that plot curves.

    >>> record = RoundRecord(
    ...     1,
    ...     0.5,
    ...     risks=(0.25, None),
    ...     weights=(0.5, 0.5),
    ...     weights_over="groups",
    ...     participants=(0,),
    ...     gradient_evaluations=10,
    ... )
    >>> scalars(record, ["f", "m"])
    {'risk/f': 0.25, 'worst risk': 0.25, 'weight/f': 0.5, 'weight/m': 0.5}
    """
    risks = {
        f"risk/{group}": risk
        for group, risk in zip(groups, record.risks, strict=True)
        if risk is not None
    }
    worst = {"worst risk": max(risks.values())} if risks else {}
    validation = {
        f"validation risk/{group}": risk
        for group, risk in zip(groups, record.validation_risks, strict=False)
        if risk is not None
    }
    over_groups = record.weights_over == "groups"
    names = groups if over_groups else [f"{n}" for n in range(len(record.weights))]
    weights = dict(zip((f"weight/{name}" for name in names), record.weights, strict=False))
    proved = record.certificate
    bounds = {"lower bound": proved.min_risk, "gap": proved.gap} if proved else {}
    return risks | worst | validation | weights | bounds
