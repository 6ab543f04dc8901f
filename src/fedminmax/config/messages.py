"""TOML files: written keys and strings, settings of one call, and mistakes in one line.

Errors of pydantic and of the TOML reader are turned into one line about the user's file. Settings
of one call, `--set section.key=value`, are written into a configuration's text: so a run folder
keeps the configuration that produced its results, whoever set what.
"""

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
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


EXAMPLE = "such as --set method.rounds=20"


def with_settings(text: str, settings: Sequence[str]) -> str:
    r"""Return a configuration's text with these settings; the last one of a key holds.

    >>> print(with_settings('[data]\ntarget = "y"\nseed = 3\n[model]', ["data.seed=4"]))
    [data]
    target = "y"
    seed = 4
    [model]
    >>> print(with_settings('[method]', ["method.name=fedavg", "report.title=A first look"]))
    [method]
    name = "fedavg"
    <BLANKLINE>
    [report]
    title = "A first look"
    """
    for setting in settings:
        text = _with_setting(text, setting)
    return text


def _with_setting(text: str, setting: str) -> str:
    name, equals, given = setting.partition("=")
    path = _path(name)
    if not equals or len(path) < 2:
        raise InputError(f"--set {setting}: give section.key=value, {EXAMPLE}")
    literal = given.strip()
    if _read(f"value = {literal}") is None:
        literal = json.dumps(literal)
    wanted = _read(text) or {}
    _put(wanted, path, tomllib.loads(f"value = {literal}")["value"], setting)
    for candidate in _candidates(text.splitlines(), path, literal):
        changed = "\n".join(candidate) + "\n" * text.endswith("\n")
        if _read(changed) == wanted:
            return changed
    raise InputError(f"--set {setting}: the file does not allow it there; change the file")


def _candidates(lines: list[str], path: Sequence[str], literal: str) -> "list[list[str]]":
    """Return texts with the new value: in place of an old one of some lines, or as a new line."""
    *section, key = path
    new = f"{_key(key)} = {literal}"
    heads = [n for n, line in enumerate(lines) if line.lstrip().startswith("[")]
    start = next(
        (n for n in heads if _path(lines[n].partition("#")[0].strip("[] ")) == section), None
    )
    if start is None:
        header = ".".join(map(_key, section))
        return [[*lines, "", f"[{header}]", new]]
    end = next((n for n in heads if n > start), len(lines))
    own = range(start + 1, len(lines))
    old = next((n for n in own if _path(lines[n].partition("=")[0]) == [key]), None)
    if old is None or old >= end:
        return [[*lines[: start + 1], new, *lines[start + 1 :]]]
    return [[*lines[:old], new, *lines[after:]] for after in range(old + 1, len(lines) + 1)]


def _path(name: str) -> list[str]:
    """Return the parts of a dotted key, read as TOML reads it; none if it is not one."""
    found: Any = _read(f"{name} = 0")
    parts: list[str] = []
    while isinstance(found, dict) and len(found) == 1:
        ((part, found),) = found.items()
        parts.append(part)
    return parts


def _key(part: str) -> str:
    return part if part.isascii() and part.replace("-", "_").isidentifier() else json.dumps(part)


def _put(file: dict[str, Any], path: Sequence[str], value: object, setting: str) -> None:
    *section, key = path
    for part in section:
        file = file.setdefault(part, {})
        if not isinstance(file, dict):
            raise InputError(f"--set {setting}: '{part}' is not a section")
    file[key] = value


def _read(text: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None
