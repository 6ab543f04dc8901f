"""The output folder of one configuration: its files, and who works in it.

Each run belongs to one process at a time. Several calls may work in one folder at once: each takes
the runs that no other call holds.
"""

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from fedminmax.core.errors import InputError
from fedminmax.core.files import held, write_json, write_json_once
from fedminmax.data.tables.census import FORMAT, Count, first_error
from fedminmax.findings.records import PrivacyOfRun, Results, record_as_json

CENSUS_FILE = "census.json"
CONFIG_FILE = "config.toml"
MAX_CHARACTERS = 60
RESULTS_FILE = "results.json"
CARD_FILE = "model_card.md"
PLANNED_FILE = "planned.json"
TESTS_FILE = "tests.jsonl"
RESULT_FILE = "result.json"
# Of a study: the table of all its runs.
TABLE_FILE = "table.md"
# Of a run between sites.
RECORD_FILE = "run.json"
BASELINE_FOLDER = "baseline"
LOCK_FILE = ".lock"
# Those who look whether a run is held share its lock for an instant.
SECONDS_TO_CLAIM = 0.2
ADVICE = "remove it, and run 'fedminmax train' again"


class PlannedFile(BaseModel, frozen=True):
    """planned.json: what an unfinished run set out to do, for those who watch it.

    ``privacy`` is what the whole run spends, which is written down before its first round. With
    ``may_stop_early`` the run may end before its last round; ``rounds_after`` are those of the
    baseline that is trained next.
    """

    format: Literal[1]
    key: str
    name: str
    rounds: Count
    may_stop_early: bool = False
    rounds_after: Count = 0
    privacy: PrivacyOfRun | None = None


def claim_folder(folder: Path, config: Mapping[str, object]) -> None:
    """Claim the folder for this configuration, or refuse it."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; give a folder with --out")
    path = folder / "config.json"
    # Compare in the form that a later call will read.
    wanted = json.loads(json.dumps(config))
    if not path.exists():
        others = folder.exists() and any(
            not entry.name.startswith(path.name) for entry in folder.iterdir()
        )
        # Check again: another call may have claimed the folder in between.
        if others and not path.exists():
            raise InputError(
                f"{folder} has other files and no configuration; choose a new folder with --out"
            )
        try:
            write_json_once(path, wanted)
        except OSError as error:
            raise InputError(
                f"cannot write in {folder} ({error.strerror}); choose --out"
            ) from error
    _check_same(folder, path, wanted)


def check_folder(folder: Path, config: Mapping[str, object]) -> None:
    """Refuse a folder of another configuration; write nothing."""
    path = folder / "config.json"
    if path.exists():
        _check_same(folder, path, json.loads(json.dumps(config)))


def claim_run(folder: Path) -> AbstractContextManager[bool]:
    """Hold one run while the block runs; False if another process holds it."""
    return held(folder / LOCK_FILE, SECONDS_TO_CLAIM)


def _check_same(folder: Path, path: Path, wanted: Mapping[str, object]) -> None:
    try:
        found = json.loads(path.read_text())
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise InputError(f"{path} is damaged; choose a new folder with --out")
    there, here = _flat(found), _flat(wanted)
    differing = [
        f"{name} is {_short(there.get(name))} there and {_short(here.get(name))} here"
        for name in sorted(here.keys() | there.keys())
        if here.get(name) != there.get(name)
    ]
    if differing:
        digests = any(".digest is " in entry for entry in differing)
        why = "another digest means other rows or another encoding: " if digests else ""
        raise InputError(
            f"{folder} belongs to a different configuration ({'; '.join(differing)}); "
            f"{why}choose another folder with --out"
        )


def _short(value: object) -> str:
    """Shorten a long value; the files show where it differs."""
    text = str(value)
    return text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]}..."


def _flat(content: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Flatten nested mappings to dotted names, so that a difference is one short entry."""
    flat: dict[str, object] = {}
    for name, value in content.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def write_results(folder: Path, results: Results) -> None:
    """Write the results, which mark the run as finished."""
    write_json(folder / RESULTS_FILE, record_as_json(results))


def read_results(folder: Path) -> Results | None:
    """Read a finished run's results; None if it is not finished."""
    path = folder / RESULTS_FILE
    if not path.exists():
        return None
    try:
        content = from_json(path.read_bytes())
        found = content["format"]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is damaged; {ADVICE}") from error
    if found != FORMAT:
        raise InputError(
            f"{path} has format {found}, this version reads format {FORMAT}; use the version of "
            "fedminmax that wrote it, or train again"
        )
    try:
        return Results.model_validate(content)
    except ValidationError as error:
        raise InputError(f"{path} is damaged ({first_error(error)}); {ADVICE}") from error


def finished_results(folder: Path) -> Results:
    """Read the results of a run that must be finished."""
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder; give a run folder of 'fedminmax train'")
    results = read_results(folder)
    if results is None:
        raise InputError(f"{folder} has no finished run; run 'fedminmax train' again to continue")
    return results
