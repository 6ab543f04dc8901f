"""A ledger of promises: what runs have spent on which data, in JSON lines beside the data.

A run is written down before its first release, with all that it may spend, and once: one that goes
on has spent already. What several runs spent together is added up by the accountant.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, asdict, dataclass
from pathlib import Path

from fedminmax.core.errors import InputError
from fedminmax.core.files import held, read_lines, write_text
from fedminmax.core.noise import Unit
from fedminmax.core.privacy.mechanism import Privacy, Releases, epsilon_of

SECONDS_TO_WAIT = 30.0
DAMAGED = "it says what earlier runs spent, so put back a copy of it"


@dataclass(frozen=True)
class Spent:
    """One run's line: the digest of its data, its own name, what it promised and how.

    ``terms`` is a digest of all else that a run over a network must keep to when it goes on.
    """

    data: str
    run: str
    _: KW_ONLY
    unit: str
    epsilon: float
    delta: float
    releases: int
    noise_multiplier: float
    day: str
    terms: str = ""


def line_of(promise: Privacy, *, data: str, run: str, day: str, terms: str = "") -> Spent:
    """Return the line of a run that makes this promise."""
    releases = promise.releases
    return Spent(
        data,
        run,
        unit=promise.unit.value,
        epsilon=promise.epsilon,
        delta=promise.delta,
        releases=releases.number,
        noise_multiplier=releases.noise_multiplier,
        day=day,
        terms=terms,
    )


def read_ledger(path: Path) -> list[Spent]:
    """Read a ledger; none is an empty one."""
    lines = read_lines(path, DAMAGED) if path.exists() else []
    try:
        return [Spent(**json.loads(line)) for line in lines]
    except (ValueError, TypeError) as error:
        raise InputError(f"{path} is damaged; {DAMAGED}") from error


def spent_epsilon(entries: Sequence[Spent], data: str, unit: Unit, delta: float) -> float:
    """Return what all runs on these data spent together of one unit's budget, at this delta.

    Runs that hide sites count for a row, too. What runs that hide rows tell of a whole site has no
    limit, and is not counted.
    """
    # One row changes all that its site sends: as if the site went, and another one came.
    changes = {unit.value: 1.0} if unit is Unit.SITE else {unit.value: 1.0, Unit.SITE.value: 2.0}
    own = [entry for entry in entries if entry.data == data and entry.unit in changes]
    releases = [
        Releases(entry.releases, entry.noise_multiplier / changes[entry.unit]) for entry in own
    ]
    return epsilon_of(releases, delta)


def before_and_after(entries: Sequence[Spent], line: Spent) -> tuple[float, float]:
    """Return what was spent on a run's data without it and with it; equal if it goes on."""
    unit, delta = Unit(line.unit), line.delta
    before = spent_epsilon(entries, line.data, unit, delta)
    if any(entry.run == line.run for entry in entries):
        return before, before
    return before, spent_epsilon([*entries, line], line.data, unit, delta)


@contextmanager
def held_ledger(path: Path) -> Iterator[list[Spent]]:
    """Hold the ledger while the block runs, so that nobody else writes into it; yield its lines."""
    with held(path.with_suffix(".lock"), SECONDS_TO_WAIT) as ours:
        if not ours:
            raise InputError(f"another process holds {path}; try again")
        yield read_ledger(path)


def write_line(path: Path, entries: Sequence[Spent], line: Spent) -> None:
    """Add a run's line, unless it is there; it is on the disk afterwards."""
    if all(entry.run != line.run for entry in entries):
        # Written anew: after a crash the last line may have no end.
        lines = [json.dumps(asdict(entry)) for entry in (*entries, line)]
        write_text(path, "".join(f"{own}\n" for own in lines))
