"""Two run folders with the same numbers: one of Flower, one of the simulation."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedminmax.runs.train import train_tables

# Scores of test records are in single precision.
TOLERANCES = {"rounds.jsonl": 1e-9, "results.json": 1e-7}
# Numbers that each file has for the second group, whatever the method and however few its rounds.
COMPARED = {"rounds.jsonl": "0 risks 1", "results.json": "0 test metrics risk by_group 1 value"}
# What depends on the machine, or what masks hide; and what a gap between nearly equal numbers is
# divided by or multiplied with, which rounding moves further.
OTHER = (
    *("seconds", "finished", "sites", "cost", "notes", "participants", "reach"),
    *("secure_aggregation", "remaining", "min_mean"),
)


def simulate(config: Path, folder: Path) -> Path:
    """Run the configuration in this process; return its folder."""
    train_tables(config, folder=folder)
    return folder


def assert_same_run(flower: Path, simulated: Path) -> None:
    """Compare all rounds and all results of the method and of its baseline."""
    assert (flower / "baseline").exists() == (simulated / "baseline").exists()
    for place in [place for place in ("", "baseline") if (simulated / place).exists()]:
        for name, tolerance in TOLERANCES.items():
            ours, theirs = (_numbers(folder / place / name) for folder in (flower, simulated))
            assert f"{name} {COMPARED[name]}" in ours
            assert ours == pytest.approx(theirs, rel=tolerance, abs=tolerance)


def _numbers(path: Path) -> dict[str, float]:
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines() if path.suffix == ".jsonl" else [text]
    return dict(_flat([json.loads(line) for line in lines], path.name))


def _flat(content: Any, path: str) -> Iterator[tuple[str, float]]:
    if isinstance(content, dict | list):
        entries = content.items() if isinstance(content, dict) else enumerate(content)
        for name, value in entries:
            if name not in OTHER:
                yield from _flat(value, f"{path} {name}")
    elif isinstance(content, int | float):
        yield path, float(content)
