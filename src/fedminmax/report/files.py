"""Files that are either there in full or not there: written beside, then renamed."""

import json
from pathlib import Path


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".partial")
    beside.write_text(text)
    beside.replace(path)


def write_json(path: Path, content: object) -> None:
    """Write a JSON file atomically, indented, with a final newline."""
    write_text(path, json.dumps(content, indent=2) + "\n")
