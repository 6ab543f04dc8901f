"""One round of a run as it is logged: a line of JSON with its risks and weights."""

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, asdict, dataclass
from typing import Any, Self

from fedminmax.core.certificate import Certificate, certificate_from_json
from fedminmax.core.json_log import with_tuples


@dataclass(frozen=True)
class RoundRecord:
    """One round: training risks at its start (None: no site had the group), weights after it.

    ``weights_over`` says what the weights belong to: "groups", "sites", "groups and classes"
    or "nothing". ``gradient_evaluations`` counts from the start of the run.
    ``remaining`` is the share of the worst risk that is left to gain, if the method knows it, and
    ``certificate`` what is proved about the answer after the round. ``validation_risks`` are those
    of the same model as ``risks``, if there are validation rows, and ``chosen_round`` is the round
    that these rows have chosen so far.
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

    @classmethod
    def from_json(cls, entry: Any) -> Self:
        """Read a line."""
        found = with_tuples(entry, "risks", "weights", "participants", "validation_risks")
        return cls(**found | {"certificate": certificate_from_json(entry["certificate"])})

    def as_json(self) -> dict[str, Any]:
        """Return the round as a line."""
        return asdict(self)


def in_unit(risks: Sequence[float | None], unit: float) -> tuple[float | None, ...]:
    """Return risks in the target's unit, squared; None for a group that no site had."""
    return tuple(None if risk is None or math.isnan(risk) else risk * unit for risk in risks)


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
