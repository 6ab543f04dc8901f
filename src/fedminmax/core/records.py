"""Records as files of JSON: a damaged file is said to be so, in one line."""

from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from fedminmax.core.errors import InputError
from fedminmax.core.files import write_text

RecordT = TypeVar("RecordT")


def read_record(path: Path, kind: type[RecordT], advice: str) -> RecordT | None:
    """Read a record; None if there is no such file.

    Raises:
        InputError: the file is damaged; ``advice`` says what to do.
    """
    if not path.exists():
        return None
    try:
        return TypeAdapter(kind).validate_json(path.read_bytes())
    except ValidationError as error:
        raise InputError(f"{path} is damaged; {advice}") from error


def write_record(path: Path, record: object) -> None:
    """Write a record, in full or not at all."""
    content = TypeAdapter(type(record)).dump_json(record, indent=2).decode()
    write_text(path, content + "\n")
