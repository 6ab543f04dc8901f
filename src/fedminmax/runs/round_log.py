"""The rounds of a run on tables: JSON lines, one per round, each with its risks and weights."""

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from fedminmax.core.certificate import Certificate, certificate_from_json
from fedminmax.core.files import append_entry, keep_rounds, read_records, write_entries


@dataclass(frozen=True)
class RoundRecord:
    """One round: training risks at its start (None: no holder had the group), weights after it.

    ``weights_over`` says what the weights belong to: "groups", "holders", "groups and classes"
    or "nothing". ``gradient_evaluations`` counts from the start of the run.
    ``remaining`` is the share of the worst risk that is left to gain, if the method knows it, and
    ``certificate`` what is proved about the answer after the round. ``validation_risks`` are those
    of the same model as ``risks``, if there are validation rows, and ``chosen_round`` is the round
    that these rows have chosen so far.
    """

    round: int
    seconds: float
    risks: tuple[float | None, ...]
    weights: tuple[float, ...]
    weights_over: str
    participants: tuple[int, ...]
    gradient_evaluations: int
    remaining: float | None = None
    certificate: Certificate | None = None
    validation_risks: tuple[float | None, ...] = ()
    chosen_round: int | None = None


def in_unit(risks: Sequence[float], unit: float) -> tuple[float | None, ...]:
    """Return risks in the target's unit, squared; None for a group that no holder had."""
    return tuple(None if math.isnan(risk) else risk * unit for risk in risks)


class RoundSink(Protocol):
    """A destination for rounds."""

    def add(self, record: RoundRecord) -> None:
        """Write a round."""
        ...


def scalars(record: RoundRecord, groups: Sequence[str]) -> dict[str, float]:
    """Return a round's numbers by name, for programs that plot curves.

    >>> record = RoundRecord(1, 0.5, (0.25, None), (0.5, 0.5), "groups", (0,), 10)
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


class RoundLog:
    """The file of a run's rounds; each line is written before the checkpoint of its round.

    Lines after the restored round are dropped: that work will be done again.
    """

    def __init__(self, path: Path, restored_round: int) -> None:
        self._path = path
        kept = keep_rounds(path, _parsed, restored_round)
        self._before = kept[-1].seconds if kept else 0.0
        self._started = time.monotonic()

    @property
    def seconds(self) -> float:
        """Time spent on the run so far, over all calls."""
        return round(self._before + time.monotonic() - self._started, 3)

    def add(self, record: RoundRecord) -> None:
        """Append a round to the file."""
        append_entry(self._path, asdict(record))


def read_rounds(path: Path) -> list[RoundRecord]:
    """Read the file of a run's rounds; an incomplete last line is ignored."""
    return read_records(path, _parsed)


def write_rounds(path: Path, records: Sequence[RoundRecord]) -> None:
    """Write the file of a run's rounds at once."""
    write_entries(path, map(asdict, records))


def _parsed(entry: Any) -> RoundRecord:
    # Earlier versions had no validation rows.
    tuples = ("risks", "weights", "participants", "validation_risks")
    found = {name: tuple(entry.get(name, ())) for name in tuples}
    proved = certificate_from_json(entry.get("certificate"))
    return RoundRecord(**entry | found | {"certificate": proved})
