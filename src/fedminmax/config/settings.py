"""Settings of one call, written into a configuration's text: `--set section.key=value`.

So a run folder keeps the configuration that produced its results, whoever set what.
"""

import json
import tomllib
from collections.abc import Sequence
from typing import Any

from fedminmax.core.errors import InputError

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
