"""Progress on disk: written beside and renamed, checked by a digest, with one predecessor.

Whatever happens while saving, one readable checkpoint remains: the new file appears under its
name only when complete, and the one before it is kept until the next save.
"""

import hashlib
import io
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from fedminmax.core.errors import InputError
from fedminmax.core.files import written_beside
from fedminmax.federation.game import Game, check_same_game
from fedminmax.federation.train import Progress, settings_of
from fedminmax.methods.method import StateT

DIGEST_BYTES = 32
GAME_PREFIX = "game."
BEST_PREFIX = "iterates.best."
RecordT = TypeVar("RecordT")
Leaf = Tensor | int | float | str


@dataclass(frozen=True, eq=False)
class Restored(Generic[StateT]):
    """A checkpoint that could be read, and what had to be passed over to find it."""

    progress: Progress[StateT]
    complaint: str | None


@dataclass(frozen=True)
class Written:
    """A file as it was when we wrote it: whoever writes to it later changes its time or number."""

    number: int
    changed: int
    size: int


def save_checkpoint(
    folder: str | Path, progress: Progress[StateT], last: Written | None = None
) -> Written:
    """Write the progress beside, keep the last one as predecessor, and rename into place.

    ``last`` is what the call before returned, which need not be read again to trust it.
    """
    _check_progress(progress)
    buffer = io.BytesIO()
    torch.save(pack(progress), buffer)
    payload = buffer.getvalue()
    current, previous = checkpoint_paths(folder)
    # A damaged file must not take the place of its readable predecessor.
    keeps = current.exists() and (
        _as_written(current) == last or _intact_payload(current) is not None
    )
    with (
        written_beside(current, kept_as=previous if keeps else None) as beside,
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
            f"no checkpoint in {folder} can be used ({reason}); remove that folder to start anew"
        )
    return None


def _check_progress(progress: object) -> None:
    if not isinstance(progress, Progress):
        raise InputError(
            f"got {type(progress).__name__} instead of a Progress; give round.progress, "
            "or start_of(federation, method) to load"
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
    """Read one file, or say what is wrong with it."""
    payload = _intact_payload(path)
    if payload is None:
        raise InputError(f"checkpoint {path} is truncated or corrupt")
    expected = pack(template)
    # Earlier releases wrote neither what most methods leave empty nor the game, and had neither
    # small groups nor validation rows: these are compared as part of the game, before what a state
    # says of them counts.
    flat = {
        name: like
        for name, like in expected.items()
        if _is_empty(like)
        or name.startswith((GAME_PREFIX, BEST_PREFIX))
        or name.endswith(".playable")
    }
    flat |= {f"{GAME_PREFIX}small_groups": ""} | _read_flat(payload, path)
    # Earlier releases wrote down what a run answers with, too.
    flat["method"] = settings_of(str(flat.get("method", "")))
    game = Game(**{field.name: str(flat[GAME_PREFIX + field.name]) for field in fields(Game)})
    check_same_game(game, template.game, f"{path} is of another run")
    for name in sorted(flat.keys() ^ expected.keys()):
        raise InputError(f"{path} is of another model or method (only one has '{name}')")
    progress = unpack(flat, template, str(path))
    finite = bool(torch.isfinite(progress.state.parameters).all())
    if progress.round < 0 or progress.round != progress.iterates.rounds or not finite:
        raise InputError(f"checkpoint {path} has numbers that no run has")
    return progress


def _read_flat(payload: bytes, path: Path) -> dict[str, Leaf]:
    """Read the names and values of a checkpoint; they are checked later, one by one."""
    try:
        flat = torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True)
    except Exception as error:  # torch's reader fails in whatever way it meets first
        raise InputError(f"checkpoint {path} cannot be read by torch") from error
    if not isinstance(flat, dict) or not all(isinstance(name, str) for name in flat):
        raise InputError(f"{path} is a file of torch, but no checkpoint of fedminmax")
    return flat


def _as_written(path: Path) -> Written:
    status = path.stat()
    return Written(status.st_ino, status.st_mtime_ns, status.st_size)


def _intact_payload(path: Path) -> bytes | None:
    """Return what stands behind the digest, or None if they do not belong together."""
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
        same = type(value) is type(like) and not (isinstance(like, str) and value != like)
        if isinstance(value, Tensor) and isinstance(like, Tensor):
            # A template without lines stands for any number of them: a mixture grows.
            grown = like.dim() == 2 and _is_empty(like) and value.shape[1:] == like.shape[1:]
            same = (value.shape == like.shape or grown) and value.dtype == like.dtype
            same = same and value.layout == like.layout
            value = value.to(like.device)
        if not same:
            raise InputError(f"{source} is of another model or method ('{prefix}{name}' differs)")
        values[name] = value
    return replace(template, **values)  # type: ignore[type-var]


def _is_empty(value: Leaf) -> bool:
    return isinstance(value, Tensor) and value.numel() == 0


def _fields_of(record: object) -> list[tuple[str, Any]]:
    return [(field.name, getattr(record, field.name)) for field in fields(record)]  # type: ignore[arg-type]
