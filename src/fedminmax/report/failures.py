"""A run that failed: its reason, kept beside the runs that did not."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from fedminmax.core.errors import InputError
from fedminmax.core.files import write_json


@dataclass(frozen=True)
class Failure:
    """Which run failed, and why."""

    setting: str
    method: str
    fold: int
    reason: str


def note_failure(folder: Path, setting: str, method: str, fold: int, error: Exception) -> None:
    """Write why the run in this folder failed."""
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    write_json(folder / "failure.json", asdict(Failure(setting, method, fold, reason)))


def forget_failure(folder: Path) -> None:
    """Remove the note of a run that did not fail after all."""
    (folder / "failure.json").unlink(missing_ok=True)


def read_failures(folder: Path) -> list[Failure]:
    """Read the failures of a comparison's folder."""
    return [_read(path) for path in sorted((folder / "runs").glob("*/failure.json"))]


def _read(path: Path) -> Failure:
    try:
        return Failure(**json.loads(path.read_text()))
    except (ValueError, TypeError) as error:
        raise InputError(f"{path} is damaged; remove it to have that run tried again") from error
