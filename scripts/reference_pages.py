"""Writes pages that only repeat the code: commands and options, keys of the files and their types.

docs/commands.md is from the parsers, docs/schemas.md from the records of ``fedminmax.toml`` and
``results.json``.

usage: python scripts/reference_pages.py   (or: make tables)
"""

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from fedminmax.cli.main import COMMANDS, build_parser
from fedminmax.config.sections import ConfigSections
from fedminmax.core.text import markdown_table, markdown_text
from fedminmax.findings.records import Results

DOCS = Path(__file__).parents[1] / "docs"
MADE = "This page is made by `scripts/reference_pages.py`: change the code, and run `make tables`."
OF_KEYS = """\
Keys with their types, as programs need them. "Depends" is said of a default that other keys decide:
[all keys of the configuration](configuration.md) has it, and what each key means."""
OF_RESULTS = """\
Numbers are finite, rates and shares from 0 to 1. What is not known, or was not measured, is left
out."""
# Where the keys of a file begin, in a schema.
HERE = "#/$defs/"


def commands_page() -> str:
    """Return every command with its options, in the groups of `fedminmax --help`."""
    parts = ["# Commands", MADE]
    parsers = _actions_of(build_parser())
    for title, names in COMMANDS.items():
        parts.append(f"## Commands: {title}")
        for name in names:
            parts += _command(f"fedminmax {name}", parsers[name])
    return "\n\n".join(parts) + "\n"


def _actions_of(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def _command(name: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    yield f"### {name}"
    yield markdown_text(parser.description or "")
    lines = [
        (_words(action), (action.help or "").replace("%%", "%"))
        for action in parser._actions
        if action.help
        and action.help != argparse.SUPPRESS
        and "--help" not in action.option_strings
    ]
    if lines:
        yield markdown_table(("option", "meaning (default)"), lines)
    for inner, own in _actions_of(parser).items():
        yield from _command(f"{name} {inner}", own)


def _words(action: argparse.Action) -> str:
    value = action.metavar or "" if action.nargs != 0 else ""
    if action.choices and not action.metavar:
        value = "|".join(map(str, action.choices))
    return " ".join(part for part in (", ".join(action.option_strings), str(value)) if part)


def schemas_page() -> str:
    """Return the keys of the configuration and of the results, with types and defaults."""
    config = TypeAdapter(ConfigSections).json_schema()
    results = Results.model_json_schema()
    parts = [
        "# Schemas",
        MADE,
        OF_KEYS,
        "## fedminmax.toml",
        *_records(config, "Sections"),
        "## results.json",
        OF_RESULTS,
        *_records(results, "Results"),
    ]
    return "\n\n".join(parts) + "\n"


def _records(schema: Mapping[str, Any], name: str) -> Iterator[str]:
    for title, own in {name: schema, **schema.get("$defs", {})}.items():
        if "properties" not in own:
            continue
        if text := own.get("description"):
            summary = " ".join(text.split("\n\n")[0].split())
            yield f"### {title}\n\n{markdown_text(summary)}"
        else:
            yield f"### {title}"
        required = own.get("required", ())
        lines = [
            (key, _type(entry, schema), _default(key, entry, required))
            for key, entry in own["properties"].items()
        ]
        yield markdown_table(("key", "type", "default"), lines)


def _default(key: str, entry: Mapping[str, Any], required: tuple[str, ...]) -> str:
    if key in required:
        return "required, or depends"
    default = entry.get("default")
    return "none" if default is None or isinstance(default, dict) else json.dumps(default)


def _type(entry: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """Return a type in a few words; records and choices by name."""
    if "$ref" in entry:
        name = entry["$ref"].removeprefix(HERE)
        own = schema["$defs"][name]
        return _type(own, schema) if "enum" in own else name
    if "anyOf" in entry:
        kinds = [_type(one, schema) for one in entry["anyOf"] if one.get("type") != "null"]
        return " or ".join(kinds)
    for key in ("enum", "const"):
        if key in entry:
            choices = entry[key] if isinstance(entry[key], list) else [entry[key]]
            return ", ".join(map(json.dumps, choices))
    kind = str(entry.get("type", "any"))
    if kind == "array":
        inner = entry.get("items") or (entry.get("prefixItems") or [{}])[0]
        return f"list of {_type(inner, schema)}"
    if kind == "object":
        inner = entry.get("additionalProperties")
        return f"table of {_type(inner if isinstance(inner, dict) else {}, schema)}"
    words = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}
    limits = [f"{sign} {entry[word]:g}" for word, sign in words.items() if word in entry]
    return " ".join([kind, *(", ".join(limits).split())])


PAGES = {"commands.md": commands_page, "schemas.md": schemas_page}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")
