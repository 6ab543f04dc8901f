"""Small tables, files and configurations for tests."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from fedminmax.config.read import read_config
from fedminmax.config.schema import Feature, Kind, Protected, Schema, Target
from fedminmax.data.tables.load import FederatedTables, load_federated_tables
from fedminmax.data.tables.read_file import FileTable

NORTH = """age,sex,ward,smoker,ill
30,Female,a,yes,no
41,Male,b,no,yes
52,Female,a,,no
63,Male,b,no,yes
"""
SOUTH = """age,sex,ward,smoker,ill
35,Male,a,yes,yes
,Female,c,yes,no
58,Male,?,no,no
70,Female,c,no,yes
"""
CONFIG = """
[data]
target = "ill"
classes = ["no", "yes"]
held_out = 0
[data.sites]
north = "north.csv"
south = "south.csv"
[groups]
columns = ["sex"]
[features.age]
kind = "numeric"
[features.ward]
kind = "category"
categories = ["a", "b", "c"]
[features.smoker]
kind = "boolean"
[model]
kind = "logistic"
[method]
name = "fedminmax"
rounds = 10
"""
SCHEMA = Schema(
    Target("ill", ("no", "yes")),
    (
        Feature("age", Kind.NUMERIC),
        Feature("ward", Kind.CATEGORY, ("a", "b", "c")),
        Feature("smoker", Kind.BOOLEAN),
    ),
    (Protected("sex"),),
)


def table_of(columns: Mapping[str, Sequence[object]], source: str = "north.csv") -> FileTable:
    """A table as if it had been read from a file."""
    frame = pl.DataFrame(columns, strict=False)
    return FileTable(source, frame, pl.Series(range(1, len(frame) + 1), dtype=pl.Int64))


def write_files(folder: Path, **texts: str) -> None:
    """Write CSV files, by default those of both sites, and the configuration."""
    for name, text in {"north": NORTH, "south": SOUTH, **texts}.items():
        (folder / f"{name}.csv").write_text(text, encoding="utf-8")


def write_config(folder: Path, *changes: tuple[str, str]) -> Path:
    """Write the configuration with some of its text replaced."""
    text = CONFIG
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    path = folder / "fedminmax.toml"
    path.write_text(text, encoding="utf-8")
    return path


def load(folder: Path, *changes: tuple[str, str]) -> FederatedTables:
    """Load what the configuration with these changes names."""
    return load_federated_tables(read_config(write_config(folder, *changes)))
