"""What pydantic and the TOML reader complain of, as one line about the user's file."""

import tomllib
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from fedminmax.data.tables.words import did_you_mean, toml_key

DESCRIPTIONS = {
    "int_type": "a whole number",
    "float_type": "a number",
    "string_type": "a text in quotes",
    "string_too_short": "a text that is not empty",
    "bool_type": "true or false",
    "list_type": "a list in brackets",
    "dict_type": "a section of its own",
    "model_type": "a section of its own",
    "too_short": "at least one entry",
}


def toml_complaint(error: tomllib.TOMLDecodeError) -> str:
    """Say what is wrong with the file's grammar; a key given twice is the usual case."""
    reason = str(error)
    if reason.startswith("Cannot overwrite a value") or "twice" in reason:
        where = reason[reason.rfind("(") :]
        return f"the same key is given twice {where}; give each holder and column a name of its own"
    return f"is not valid TOML: {reason}; correct that line"


def validation_complaint(error: ValidationError, file: type[BaseModel]) -> str:
    """Name the first key that does not fit, what came and what was expected.

    ``file`` describes the whole file.
    """
    details = error.errors()[0]
    *section, key = details["loc"]
    if isinstance(key, int):
        *section, key = section
        return _wrong_value(section, f"an entry of {key}", details)
    if details["type"] == "extra_forbidden":
        return _unknown_key(section, str(key), file)
    if details["type"] == "missing":
        return f"{_named(section)}{_key(section, str(key), file)} is missing; add it"
    return _wrong_value(section, _key(section, str(key), file), details)


def _wrong_value(section: list[int | str], key: str, details: ErrorDetails) -> str:
    expected = DESCRIPTIONS.get(details["type"]) or _in_words(details["msg"])
    return f"{_named(section)}{key} is {_shown(details['input'])}; give {expected}"


def _unknown_key(section: list[int | str], key: str, file: type[BaseModel]) -> str:
    model = _section_model(file, str(section[0])) if section else file
    hint = did_you_mean(key, list(model.model_fields))
    return f"{_named(section)}'{key}' is unknown; {hint}"


def _section_model(file: type[BaseModel], name: str) -> type[BaseModel]:
    """Return what describes a section, or each section in it, such as [features.NAME]."""
    kind: Any = file.model_fields[name].annotation
    model: type[BaseModel] = get_args(kind)[-1] if get_origin(kind) is dict else kind
    return model


def _in_words(message: str) -> str:
    words = message.removeprefix("Input should be ")
    return f"a number {words}" if words.startswith(("greater", "less")) else words


def _named(section: list[int | str]) -> str:
    return f"[{'.'.join(toml_key(str(part)) for part in section)}] " if section else ""


def _key(section: list[int | str], key: str, file: type[BaseModel]) -> str:
    if section or get_origin(file.model_fields[key].annotation) is list:
        return toml_key(key)
    return f"section [{key}]"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
