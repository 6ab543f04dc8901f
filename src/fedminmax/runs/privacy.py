"""The promise of privacy of runs on tables: what was spent on which data, and what it says.

A ledger lies beside the first training file: a line for each run, with the digest of the training
files that it read. A run is written down before its first round, with all that it may spend, and
once: one that goes on has the noise of its first call, from a key in its folder. The key goes when
the run is finished, because anyone who has it can remove the noise.
"""

import hashlib
import json
import os
import secrets
from collections.abc import Sequence
from dataclasses import KW_ONLY, asdict, dataclass
from pathlib import Path

from fedminmax.core.errors import InputError
from fedminmax.core.files import held, write_text
from fedminmax.core.json_log import read_lines
from fedminmax.core.privacy.accountant import Releases, epsilon_of
from fedminmax.core.privacy.mechanism import Privacy, Unit
from fedminmax.core.text import counted
from fedminmax.data.tables.config import TableConfig
from fedminmax.federation.inprocess import InProcessFederation
from fedminmax.runs.records import PrivacyOfRun, Results
from fedminmax.runs.results import today

KEY_FILE, LEDGER_FILE = "noise.key", "fedminmax-privacy.jsonl"
KEY_BYTES = 32
SECONDS_TO_WAIT = 30.0
DAMAGED = "it says what earlier runs spent, so put back a copy of it"


@dataclass(frozen=True)
class Spent:
    """One run's line: the digest of its data, its own name, what it promised and how."""

    data: str
    run: str
    _: KW_ONLY
    unit: str
    epsilon: float
    delta: float
    releases: int
    noise_multiplier: float
    day: str


def noise_key_of(folder: Path) -> bytes:
    """Return the key that the run in this folder began with, or a new one that nobody knows."""
    path = folder / KEY_FILE
    if not path.exists():
        return secrets.token_bytes(KEY_BYTES)
    key = path.read_bytes()
    if len(key) != KEY_BYTES:
        raise InputError(f"{path} is damaged; choose a new folder with --out")
    return key


def forget_noise_key(folder: Path) -> None:
    """Remove the key of a run that is finished."""
    (folder / KEY_FILE).unlink(missing_ok=True)


def spent_epsilon(entries: Sequence[Spent], data: str, unit: Unit, delta: float) -> float:
    """Return what all runs on these data spent together of one unit's budget, at this delta."""
    own = [entry for entry in entries if (entry.data, entry.unit) == (data, unit.value)]
    releases = [Releases(entry.releases, entry.noise_multiplier) for entry in own]
    return epsilon_of(releases, delta)


def ledger_of(config: TableConfig) -> tuple[Path, list[Spent]]:
    """Return where the ledger of these training files is, and its lines."""
    path = config.training[0].path.parent / LEDGER_FILE
    lines = read_lines(path, DAMAGED) if path.exists() else []
    try:
        return path, [Spent(**json.loads(line)) for line in lines]
    except (ValueError, TypeError) as error:
        raise InputError(f"{path} is damaged; {DAMAGED}") from error


def check_limit(config: TableConfig, key: bytes) -> None:
    """Refuse a run that would spend more than the data's limit; one that goes on has spent."""
    promise, limit = _promise(config), config.privacy.limit if config.privacy else None
    path, entries = ledger_of(config)
    line = _line(config, promise, key)
    if limit is None or any(entry.run == line.run for entry in entries):
        return
    before = spent_epsilon(entries, line.data, promise.unit, promise.delta)
    after = spent_epsilon([*entries, line], line.data, promise.unit, promise.delta)
    if after > limit:
        raise InputError(
            f"[privacy] limit = {limit:g}: earlier runs on these files spent epsilon {before:.3g}, "
            f"with this one it would be {after:.3g} (see {path}); lower epsilon, or raise the limit"
        )


def spend(config: TableConfig, folder: Path, key: bytes) -> None:
    """Keep the run's key, then write down all that it may spend, once."""
    file = folder / KEY_FILE
    if not file.exists():
        # Nobody else may read it.
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
            opened.write(key)
    path, _ = ledger_of(config)
    try:
        with held(path.with_suffix(".lock"), SECONDS_TO_WAIT) as ours:
            if not ours:
                raise InputError(f"another process holds {path}; try again")
            check_limit(config, key)
            line = _line(config, _promise(config), key)
            _, entries = ledger_of(config)
            if all(entry.run != line.run for entry in entries):
                # Written anew: after a crash the last line may have no end.
                lines = [json.dumps(asdict(entry)) for entry in (*entries, line)]
                write_text(path, "".join(f"{own}\n" for own in lines))
    except OSError as error:
        raise InputError(
            f"cannot write down in {path} what this run spends ({error.strerror}); make the folder "
            "of the training files writable"
        ) from error


def privacy_of_run(config: TableConfig, federation: InProcessFederation) -> PrivacyOfRun:
    """Return what results say of the promise."""
    promise, mechanism = _promise(config), federation.mechanism
    releases = promise.releases
    _, entries = ledger_of(config)
    return PrivacyOfRun(
        epsilon=promise.epsilon,
        delta=promise.delta,
        unit=promise.unit.value,
        clip=promise.clip,
        max_loss=mechanism.max_loss,
        colluding=promise.colluding,
        releases=releases.number,
        noise_multiplier=releases.noise_multiplier,
        minimum_group=federation.census.minimum_group,
        spent=spent_epsilon(entries, fingerprint(config), promise.unit, promise.delta),
    )


def privacy_lines(results: Results) -> list[str]:
    """Say what is promised and what is not; nothing where nothing is."""
    own = results.privacy
    if own is None:
        return []
    unit = "one training row" if own.unit == "row" else "all that one site has"
    colluding = (
        f", even if {counted(own.colluding, 'holder')} disclose their noise"
        if own.colluding
        else ""
    )
    spent = "" if own.spent is None else f" All runs on these files: epsilon {own.spent:.3g}."
    promised = (
        f"Differential privacy: (epsilon, delta) = ({own.epsilon:g}, {own.delta:g}) for {unit}, "
        f"added or removed{colluding}; {counted(own.releases, 'release')} with noise multiplier "
        f"{own.noise_multiplier:.3g}, clip {own.clip:g}, losses up to {own.max_loss:.3g}.{spent}"
    )
    not_covered = (
        "Not covered by it: test results and counts of rows in this folder; the means and "
        "deviations by which columns are encoded; the names of groups and categories; what was "
        "chosen after looking at the data."
    )
    small = (
        f"Groups of fewer than {own.minimum_group:,} rows kept their share as weight: in sums over "
        "them noise would have ruled."
    )
    return [promised, not_covered, small]


def fingerprint(config: TableConfig) -> str:
    """Return a digest of the training files, whatever their order."""
    digests = sorted(
        hashlib.sha256(source.path.read_bytes()).hexdigest() for source in config.training
    )
    return hashlib.sha256("".join(digests).encode()).hexdigest()[:16]


def _line(config: TableConfig, promise: Privacy, key: bytes) -> Spent:
    releases = promise.releases
    return Spent(
        fingerprint(config),
        hashlib.sha256(key).hexdigest()[:16],
        unit=promise.unit.value,
        epsilon=promise.epsilon,
        delta=promise.delta,
        releases=releases.number,
        noise_multiplier=releases.noise_multiplier,
        day=today(),
    )


def _promise(config: TableConfig) -> Privacy:
    promise = config.promise
    if promise is None:
        raise InputError("the configuration promises no privacy; add a section [privacy]")
    return promise
