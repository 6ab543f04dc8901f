"""results.json of a run on tables: how it was trained and what it scored."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fedminmax.core.errors import InputError
from fedminmax.core.files import write_json
from fedminmax.report.html_run_schema import Results, what_is_wrong
from fedminmax.report.saved_model import SavedModel

FORMAT = 1
FILE_NAME = "results.json"
# The section with what holders' own models scored, for methods that let holders keep one.
PERSONAL = "personal"
ADVICE = "remove it, and call 'fedminmax train' again"


@dataclass(frozen=True)
class TrainingFacts:
    """How a run was trained: method with its settings, length and cost."""

    key: str
    name: str
    options: dict[str, object]
    rounds: int
    participation: float
    seed: int
    seconds: float
    gradient_evaluations: int


def results_content(
    saved: SavedModel, facts: TrainingFacts, test: dict[str, Any], said: dict[str, list[str]]
) -> dict[str, Any]:
    """Put the results together; ``said`` are the notes and warnings of the tables."""
    return {
        "format": FORMAT,
        "method": {
            "key": facts.key,
            "name": facts.name,
            "options": facts.options,
            "rounds": facts.rounds,
            "participation": facts.participation,
        },
        "task": "classification" if saved.classes else "regression",
        "target": saved.encoding.schema.target.column,
        "model": {"kind": saved.kind, "hidden": list(saved.hidden), "members": saved.members},
        "loss": saved.loss,
        "iterate": saved.iterate,
        "classes": list(saved.classes),
        "groups": list(saved.groups),
        "seed": facts.seed,
        "seconds": facts.seconds,
        "gradient_evaluations": facts.gradient_evaluations,
        "test": test,
        **said,
    }


def write_results(folder: Path, content: dict[str, Any]) -> None:
    """Write a finished run's results."""
    write_json(folder / FILE_NAME, content)


def read_results(folder: Path) -> dict[str, Any] | None:
    """Read a finished run's results; None if it is not finished."""
    path = folder / FILE_NAME
    if not path.exists():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        found = content["format"]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is damaged; {ADVICE}") from error
    if found != FORMAT:
        raise InputError(
            f"{path} has format {found}, this version reads format {FORMAT}; use the version of "
            "fedminmax that wrote it, or train anew"
        )
    try:
        Results.model_validate(content)
    except ValidationError as error:
        raise InputError(f"{path} is damaged ({what_is_wrong(error)}); {ADVICE}") from error
    result: dict[str, Any] = content
    return result


def finished_results(folder: Path) -> dict[str, Any]:
    """Read the results of a run that must be finished."""
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder; give one that 'fedminmax train' left")
    content = read_results(folder)
    if content is None:
        raise InputError(f"{folder} has no finished run; call 'fedminmax train' again to go on")
    return content
