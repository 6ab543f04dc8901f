"""TOML files: written keys and strings, and their mistakes in one line.

Errors of pydantic and of the TOML reader are turned into one line about the user's file.
"""

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails, to_json

from fedminmax.core.errors import InputError
from fedminmax.core.text import did_you_mean

STRICT = ConfigDict(extra="forbid", strict=True)
MAX_SHOWN = 60
DESCRIPTIONS = {
    "int_type": "a whole number",
    "float_type": "a number",
    "string_type": "a text in quotes",
    "string_too_short": "a text that is not empty",
    "bool_type": "true or false",
    "list_type": "a list in brackets",
    "tuple_type": "a list in brackets",
    "dict_type": "a section of its own",
    "dataclass_type": "a section of its own",
    "too_short": "at least one entry",
}
Section = list[int | str]
FileT = TypeVar("FileT")


def toml_string(text: str) -> str:
    r"""Format text as a TOML string.

    >>> print(toml_string('say "a"'))
    "say \"a\""
    """
    # TOML is stricter than JSON in one character.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def toml_key(name: str) -> str:
    """Format a name as a TOML key.

    >>> toml_key("marital status"), toml_key("hours-per-week")
    ('"marital status"', 'hours-per-week')
    """
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else toml_string(name)


def read_toml(path: Path) -> tuple[str, dict[str, Any]]:
    """Return the text and the values of a TOML file."""
    try:
        text = path.read_text(encoding="utf-8")
        return text, tomllib.loads(text)
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not in UTF-8; save it as UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: {_syntax_error(error)}") from error


def validated(values: Mapping[str, Any], file: type[FileT]) -> FileT:
    """Return the values of a TOML file as this dataclass; refuse the first that does not fit.

    As JSON, because pydantic's strict mode then accepts lists and names of enumerations, but still
    no text where a number is meant.
    """
    try:
        content = to_json(values, inf_nan_mode="constants")
        return _adapter(file).validate_json(content)  # type: ignore[arg-type, no-any-return]
    except ValidationError as error:
        raise InputError(_first_error(error, file)) from error


@cache
def _adapter(file: type) -> TypeAdapter[Any]:
    """Return what validates a file; creating it takes longer than using it."""
    return TypeAdapter(file)


def _syntax_error(error: tomllib.TOMLDecodeError) -> str:
    """Describe a syntax error of the file; a duplicate key is the usual case."""
    reason = str(error)
    if reason.startswith("Cannot overwrite a value") or "twice" in reason:
        where = reason[reason.rfind("(") :]
        return f"the same key is given twice {where}; give each site and column its own name"
    return f"is not valid TOML: {reason}; correct that line"


def _first_error(error: ValidationError, file: type) -> str:
    """Describe the first invalid key: its value and what was expected."""
    details = error.errors()[0]
    *section, key = details["loc"]
    if isinstance(key, int):
        *section, key = section
        return _wrong_value(section, f"an entry of {key}", details)
    if details["type"] == "unexpected_keyword_argument":
        names = [field.name for field in fields(_class_of(section, file))]
        return f"{_named(section)}'{key}' is unknown; {did_you_mean(str(key), names)}"
    is_section = not section and get_origin(get_type_hints(file)[str(key)]) is not tuple
    name = f"section [{key}]" if is_section else toml_key(str(key))
    if details["type"] == "missing":
        return f"{_named(section)}{name} is missing; add it"
    return _wrong_value(section, name, details)


def _wrong_value(section: Section, key: str, details: ErrorDetails) -> str:
    message = details["msg"].removeprefix("Input should be ")
    if message.startswith(("greater", "less")):
        message = f"a number {message}"
    expected = DESCRIPTIONS.get(details["type"]) or message
    shown = repr(details["input"])
    if len(shown) > MAX_SHOWN:
        shown = f"{shown[: MAX_SHOWN - 3]}..."
    return f"{_named(section)}{key} is {shown}; give {expected}"


def _class_of(section: Section, file: type) -> Any:
    """Return the dataclass of a section, or of each section in it, such as [features.NAME]."""
    kind: Any = file
    for name in section:
        if get_origin(kind) is Mapping:
            kind = get_args(kind)[-1]
        else:
            kind = get_type_hints(kind)[str(name)]
        if get_origin(kind) is UnionType:
            kind = get_args(kind)[0]
    return kind


def _named(section: Section) -> str:
    return f"[{'.'.join(toml_key(str(part)) for part in section)}] " if section else ""
