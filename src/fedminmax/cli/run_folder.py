"""The output folder: of one configuration, used by one process at a time."""

import fcntl
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from fedminmax.core.errors import InputError
from fedminmax.report.files import write_json


@contextmanager
def claim_folder(folder: Path, config: Mapping[str, object]) -> Iterator[None]:
    """Make the folder this configuration's, or refuse; hold it while the block runs."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; give a folder with --out")
    path = folder / "config.json"
    # What is compared is what a later call will read.
    wanted = json.loads(json.dumps(config))
    if path.exists():
        _check_same(folder, path, wanted)
    elif folder.exists() and any(folder.iterdir()):
        raise InputError(
            f"{folder} holds other files and no configuration; choose a new folder with --out"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("w")
    except OSError as error:
        raise InputError(f"cannot write in {folder} ({error.strerror}); choose --out") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InputError(f"another process is working in {folder}; wait for it") from error
        if not path.exists():
            write_json(path, wanted)
        yield


def _check_same(folder: Path, path: Path, wanted: Mapping[str, object]) -> None:
    try:
        found = json.loads(path.read_text())
    except ValueError as error:
        raise InputError(f"{path} is damaged; choose a new folder with --out") from error
    differing = [
        f"{name} is {found.get(name)} there and {wanted.get(name)} here"
        for name in sorted(wanted.keys() | found.keys())
        if found.get(name) != wanted.get(name)
    ]
    if differing:
        raise InputError(
            f"{folder} belongs to a different configuration ({'; '.join(differing)}); "
            "choose another folder with --out"
        )
