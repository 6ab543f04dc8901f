"""The privacy guarantee of runs on tables: what was spent on which data, and what it says.

Between sites each keeps its own ledger (``network.site.privacy``). Where one computer reads all
files, a ledger lies beside the first training file: a line for each run, with the digest of the
training files that it read. A run is written down before its first round, with all that it may
spend, and once: one that goes on has the noise of its first call, from a key in its folder. The key
goes when the run is finished, because anyone who has it can remove the noise.
"""

import hashlib
import secrets
from collections.abc import Sequence
from pathlib import Path

from fedminmax.config.read import TableConfig
from fedminmax.core.errors import InputError
from fedminmax.core.files import write_secret
from fedminmax.core.privacy import ledger
from fedminmax.core.privacy.mechanism import Mechanism, Privacy
from fedminmax.findings.records import PrivacyOfRun
from fedminmax.runs.assemble import today
from fedminmax.training.simulation import Simulation

KEY_FILE, LEDGER_FILE = "noise.key", "fedminmax-privacy.jsonl"
KEY_BYTES = 32


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


def ledger_of(config: TableConfig) -> Path:
    """Return where the ledger of these training files is."""
    return config.training[0].path.parent / LEDGER_FILE


def name_of_key(key: bytes) -> str:
    """Return a run's name in the ledger, which tells nothing about its noise."""
    return hashlib.sha256(key).hexdigest()[:16]


def check_limit(config: TableConfig, run: str) -> None:
    """Refuse a run that would spend more than the data's limit; one that goes on has spent."""
    _check_limit(config, ledger.read_ledger(ledger_of(config)), _line(config, run))


def _check_limit(config: TableConfig, entries: Sequence[ledger.Spent], line: ledger.Spent) -> None:
    limit = config.privacy.limit if config.privacy else None
    if limit is None:
        return
    before, after = ledger.before_and_after(entries, line)
    if after > max(limit, before):
        raise InputError(
            f"[privacy] limit = {limit:g}: earlier runs on these files spent epsilon {before:.3g}, "
            f"with this one it would be {after:.3g} (see {ledger_of(config)}); lower epsilon, or "
            "raise the limit"
        )


def keep_noise_key(folder: Path, key: bytes) -> None:
    """Keep the key of a run that begins, so that it can go on with the same noise."""
    write_secret(folder / KEY_FILE, key)


def spend(config: TableConfig, run: str) -> None:
    """Write down all that a run may spend, before its first round, once."""
    path, line = ledger_of(config), _line(config, run)
    try:
        with ledger.held_ledger(path) as entries:
            _check_limit(config, entries, line)
            ledger.write_line(path, entries, line)
    except OSError as error:
        raise InputError(
            f"cannot write down in {path} what this run spends ({error.strerror}); make the folder "
            "of the training files writable"
        ) from error


def privacy_of_run(config: TableConfig, federation: Simulation) -> PrivacyOfRun:
    """Return what results say of the promise."""
    return guarantee_of(
        federation.mechanism, federation.census.minimum_group, spent_on_files(config)
    )


def guarantee_of(mechanism: Mechanism, minimum_group: int, spent: float | None) -> PrivacyOfRun:
    """Return the guarantee of this mechanism; groups below the minimum are small."""
    promise = mechanism.privacy
    releases = promise.releases
    return PrivacyOfRun(
        epsilon=promise.epsilon,
        delta=promise.delta,
        unit=promise.unit.value,
        clip=promise.clip,
        max_loss=mechanism.max_loss,
        colluding=promise.colluding,
        releases=releases.number,
        noise_multiplier=releases.noise_multiplier,
        minimum_group=minimum_group,
        spent=spent,
    )


def fingerprint(config: TableConfig) -> str:
    """Return a digest of the training files, whatever their order."""
    digests = sorted(
        hashlib.sha256(source.path.read_bytes()).hexdigest() for source in config.training
    )
    return hashlib.sha256("".join(digests).encode()).hexdigest()[:16]


def spent_on_files(config: TableConfig) -> float:
    """Return what all runs on these files spent together, at this configuration's delta."""
    promise, entries = _promise(config), ledger.read_ledger(ledger_of(config))
    return ledger.spent_epsilon(entries, fingerprint(config), promise.unit, promise.delta)


def _line(config: TableConfig, run: str) -> ledger.Spent:
    return ledger.line_of(_promise(config), data=fingerprint(config), run=run, day=today())


def _promise(config: TableConfig) -> Privacy:
    promise = config.promise
    if promise is None:
        raise InputError("the configuration promises no privacy; add a section [privacy]")
    return promise
