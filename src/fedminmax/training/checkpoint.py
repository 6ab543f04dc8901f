"""Runs that survive their process: checkpoints on disk from which they can be resumed.

A checkpoint is written to a temporary file with a digest, and renamed. Whatever happens while
saving, one readable checkpoint remains: the new file gets its name only when it is complete, and
the previous one is kept until the next save.

``resume_run`` saves every few seconds and when the loop is left for any reason. So an
interrupted run resumes after its last finished round, and a killed one at most a few seconds
earlier. The rounds since then are repeated, with the same result.
"""

import hashlib
import io
import math
import time
import warnings
from collections.abc import Generator, Mapping
from contextlib import closing
from dataclasses import KW_ONLY, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from fedminmax.core.errors import InputError
from fedminmax.core.files import JsonLog, atomic_write
from fedminmax.methods.method import AnyMethod, StateT, is_done
from fedminmax.training.progress import Progress, initial_progress
from fedminmax.training.protocol import Federation, RunIdentity, check_same_run
from fedminmax.training.round_record import ROUNDS_FILE, RoundRecord, record_round
from fedminmax.training.train import Round, is_out_of_patience, train

DIGEST_BYTES = 32
IDENTITY_PREFIX = "identity."
RecordT = TypeVar("RecordT")
Leaf = Tensor | int | float | str
SECONDS_BETWEEN_CHECKPOINTS = 10.0


@dataclass(frozen=True, eq=False)
class Restored(Generic[StateT]):
    """A readable checkpoint, and the problems of checkpoints that were skipped."""

    progress: Progress[StateT]
    complaint: str | None


@dataclass(frozen=True)
class Written:
    """The state of a file when we wrote it: any later write changes its time or inode."""

    number: int
    changed: int
    size: int


def save_checkpoint(
    folder: str | Path, progress: Progress[StateT], last: Written | None = None
) -> Written:
    """Write the progress to a temporary file, keep the previous checkpoint, and rename.

    ``last`` is what the previous call returned, so that its file need not be verified again.
    """
    _check_progress(progress)
    buffer = io.BytesIO()
    torch.save(pack(progress), buffer)
    payload = buffer.getvalue()
    current, previous = checkpoint_paths(folder)
    # A damaged file must not replace its readable predecessor.
    keeps = current.exists() and (
        _as_written(current) == last or _intact_payload(current) is not None
    )
    with (
        atomic_write(current, backup=previous if keeps else None) as beside,
        beside.open("wb") as file,
    ):
        file.write(hashlib.sha256(payload).digest())
        file.write(payload)
    return _as_written(current)


def load_checkpoint(folder: str | Path, template: Progress[StateT]) -> Restored[StateT] | None:
    """Return the newest readable progress; None if there is no checkpoint at all."""
    _check_progress(template)
    complaints: list[str] = []
    reason = ""
    for path in checkpoint_paths(folder):
        if not path.exists():
            continue
        try:
            return Restored(read_checkpoint(path, template), "; ".join(complaints) or None)
        except InputError as error:
            complaints.append(f"{error}; using the previous checkpoint")
            reason = str(error)
    if complaints:
        raise InputError(
            f"no checkpoint in {folder} can be used ({reason}); remove that folder to start again"
        )
    return None


def _check_progress(progress: object) -> None:
    if not isinstance(progress, Progress):
        raise InputError(
            f"got {type(progress).__name__} instead of a Progress; give round.progress, "
            "or initial_progress(federation, method) to load"
        )


def checkpoint_paths(folder: str | Path) -> tuple[Path, Path]:
    """The current checkpoint and its predecessor."""
    if not isinstance(folder, (str, Path)):
        raise InputError(f"folder = {folder!r}; give the path of a folder")
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; give a folder for checkpoints")
    return folder / "checkpoint.bin", folder / "checkpoint.previous.bin"


def read_checkpoint(path: Path, template: Progress[StateT]) -> Progress[StateT]:
    """Read one file; raise an ``InputError`` if it is damaged."""
    payload = _intact_payload(path)
    if payload is None:
        raise InputError(f"checkpoint {path} is truncated or corrupt")
    flat = _read_flat(payload, path)
    for name in sorted(flat.keys() ^ pack(template).keys()):
        raise InputError(f"{path} is of another model or method (only one has '{name}')")
    names = [field.name for field in fields(RunIdentity)]
    identity = RunIdentity(**{name: str(flat[IDENTITY_PREFIX + name]) for name in names})
    check_same_run(identity, template.identity, f"{path} is of another run")
    # They may differ in their last digits.
    flat[f"{IDENTITY_PREFIX}values"] = template.identity.values
    progress = unpack(flat, template, str(path))
    finite = bool(torch.isfinite(progress.state.parameters).all())
    if progress.round < 0 or progress.round != progress.iterates.rounds or not finite:
        raise InputError(f"checkpoint {path} has impossible numbers")
    return progress


def _read_flat(payload: bytes, path: Path) -> dict[str, Leaf]:
    """Read the names and values of a checkpoint; they are checked later."""
    try:
        flat = torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True)
    except Exception as error:  # torch's reader may raise anything
        raise InputError(f"checkpoint {path} cannot be read by torch") from error
    if not isinstance(flat, dict) or not all(isinstance(name, str) for name in flat):
        raise InputError(f"{path} is a torch file, but not a checkpoint of fedminmax")
    return flat


def _as_written(path: Path) -> Written:
    status = path.stat()
    return Written(status.st_ino, status.st_mtime_ns, status.st_size)


def _intact_payload(path: Path) -> bytes | None:
    """Return the content after the digest, or None if they do not match."""
    content = path.read_bytes()
    digest, payload = content[:DIGEST_BYTES], content[DIGEST_BYTES:]
    return payload if hashlib.sha256(payload).digest() == digest else None


def pack(record: object, prefix: str = "") -> dict[str, Leaf]:
    """Turn nested frozen records of tensors and numbers into one flat mapping."""
    flat: dict[str, Leaf] = {}
    for name, value in _fields_of(record):
        if is_dataclass(value):
            flat |= pack(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def unpack(flat: Mapping[str, Leaf], template: RecordT, source: str, prefix: str = "") -> RecordT:
    """Rebuild a record like ``template``; refuse one of another shape."""
    values: dict[str, Any] = {}
    for name, like in _fields_of(template):
        if is_dataclass(like):
            values[name] = unpack(flat, like, source, f"{prefix}{name}.")
            continue
        value = flat[prefix + name]
        same = type(value) is type(like)
        if isinstance(like, str):
            same = value == like
        if isinstance(value, Tensor) and isinstance(like, Tensor):
            # A template without rows stands for any number of them: mixtures and tangents grow.
            grown = like.dim() > 1 and not like.numel() and value.shape[1:] == like.shape[1:]
            same = (value.shape == like.shape or grown) and value.dtype == like.dtype
            same = same and value.layout == like.layout
            value = value.to(like.device)
        if not same:
            raise InputError(f"{source} is of another model or method ('{prefix}{name}' differs)")
        values[name] = value
    return replace(template, **values)  # type: ignore[type-var]


def _fields_of(record: object) -> list[tuple[str, Any]]:
    return [(field.name, getattr(record, field.name)) for field in fields(record)]  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class RunSoFar(Generic[StateT]):
    """A run as it was restored, or after the round that has just been done.

    ``progress`` is None before the first round; ``done`` and ``record`` are the round's. The
    ``warning`` is about a damaged checkpoint that was skipped.
    """

    progress: Progress[StateT] | None
    seconds: float
    _: KW_ONLY
    is_finished: bool
    done: Round[StateT] | None = None
    record: RoundRecord | None = None
    warning: str | None = None

    @property
    def round(self) -> int:
        """The number of the last finished round; 0 before the first."""
        return self.progress.round if self.progress else 0


def train_resumably(
    folder: str | Path,
    federation: Federation,
    method: AnyMethod[StateT],
    *,
    rounds: int,
    seed: int = 0,
    participation: float = 1.0,
    patience: int | None = None,
    seconds: float = math.inf,
) -> Generator[Round[StateT]]:
    """Run the method with checkpoints in ``folder``: the same call resumes from the last one.

    It yields the remaining rounds, and ends with the numbers of a run that never stopped; no round
    begins after ``seconds``, except for the first one. A finished run yields nothing: its result is
    in ``load_checkpoint(folder, initial_progress(federation, method))``. The arguments are those
    of ``train``.
    """
    run = resume_run(
        folder,
        federation,
        method,
        rounds=rounds,
        seed=seed,
        participation=participation,
        patience=patience,
        seconds=seconds,
    )
    restored = next(run)
    if restored.warning is not None:
        warnings.warn(restored.warning, stacklevel=2)
    return _rounds_of(run)


def _rounds_of(run: Generator[RunSoFar[StateT]]) -> Generator[Round[StateT]]:
    with closing(run):
        for so_far in run:
            if so_far.done is not None:
                yield so_far.done


def resume_run(
    folder: str | Path | None,
    federation: Federation,
    method: AnyMethod[StateT],
    *,
    rounds: int,
    seed: int,
    participation: float = 1.0,
    patience: int | None = None,
    needs_patience: bool = True,
    seconds: float = math.inf,
    saving_share: float = 0.0,
    unit: float = 1.0,
) -> Generator[RunSoFar[StateT]]:
    """Yield the run as it was restored, then after each round up to its last one.

    It is the loop of every run: a command, a server and a study differ in what they do with the
    rounds. A round counts as finished when the caller's loop body has returned, which is to log its
    record. No round begins after ``seconds``, except for the first one.

    Args:
        folder: keeps checkpoints and the log of rounds; None keeps nothing.
        federation: the sites.
        method: what is trained.
        rounds: the last round, unless the method ends the run before.
        seed: of all randomness of the training.
        participation: the share of sites that take part in a round.
        patience: stop after this many rounds without improvement on validation rows.
        needs_patience: whether patience without validation rows is a mistake; otherwise it is
            ignored, because of a handful of rows none may be set aside.
        seconds: how long to train.
        saving_share: checkpoints are written more often than every few seconds if they take at
            most this share of the time.
        unit: converts risks to the target's unit, squared.
    """
    if not (len(federation.validation_rows) or needs_patience):
        patience = None
    progress: Progress[StateT] | None = None
    warning, before = None, 0.0
    if folder is not None:
        progress, warning = restore(folder, federation, method)
        log = JsonLog(Path(folder) / ROUNDS_FILE, RoundRecord)
        logged = log.drop_after(progress.round if progress else 0)
        before = logged[-1].seconds if logged else 0.0
    started = time.monotonic()

    def seconds_so_far() -> float:
        return round(before + time.monotonic() - started, 3)

    def is_finished(progress: Progress[StateT] | None) -> bool:
        return progress is not None and (
            progress.round >= rounds
            or is_done(method, progress.state)
            or is_out_of_patience(progress, patience)
        )

    yield RunSoFar(progress, seconds_so_far(), is_finished=is_finished(progress), warning=warning)
    finished = saved = progress
    written, resumed = None, time.monotonic()
    due = resumed + pause_after(0.0, saving_share)
    try:
        for done in train(
            federation,
            method,
            rounds=rounds,
            seed=seed,
            participation=participation,
            patience=patience,
            resume=progress,
        ):
            record = record_round(done, method, seconds_so_far(), unit)
            yield RunSoFar(
                done.progress,
                record.seconds,
                is_finished=is_finished(done.progress),
                done=done,
                record=record,
            )
            finished = done.progress
            now = time.monotonic()
            if folder is not None and now > due:
                written = save_checkpoint(folder, finished, written)
                saved, took = finished, time.monotonic() - now
                due = time.monotonic() + pause_after(took, saving_share)
            if time.monotonic() - resumed > seconds:
                break
    finally:
        if folder is not None and finished is not None and finished is not saved:
            save_checkpoint(folder, finished, written)


def pause_after(took: float, saving_share: float) -> float:
    """Return how long to wait with the next checkpoint if this one took this many seconds."""
    if saving_share == 0:
        return SECONDS_BETWEEN_CHECKPOINTS
    return min(SECONDS_BETWEEN_CHECKPOINTS, took / saving_share)


def restore(
    folder: str | Path, federation: Federation, method: AnyMethod[StateT]
) -> tuple[Progress[StateT] | None, str | None]:
    """Return the progress of the run in ``folder``, and a message if a checkpoint was damaged."""
    restored = load_checkpoint(folder, initial_progress(federation, method))
    return (None, None) if restored is None else (restored.progress, restored.complaint)
