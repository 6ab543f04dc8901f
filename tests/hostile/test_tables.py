"""Tables that nobody would choose, at the command line: training works, or one line says why not.

Each is read at once and in small pieces, and both say the same.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fedminmax.core import examples
from fedminmax.data.tables import odd_rows, read_csv, read_file
from tests.cli.command import Done, fedminmax

RECORDS = 160
Columns = dict[str, list[object]]


def base(seed: int) -> Columns:
    """A column that tells something of the target, a group and a target."""
    draw = np.random.default_rng(seed)
    age = draw.integers(20, 80, RECORDS)
    ill = draw.random(RECORDS) < 0.1 + 0.01 * (age - 20)
    return {
        "age": age.tolist(),
        "sex": draw.choice(["F", "M"], RECORDS).tolist(),
        "ill": np.where(ill, "yes", "no").tolist(),
    }


def one_column(_: int, columns: Columns) -> Columns:
    return columns


def constant(_: int, columns: Columns) -> Columns:
    return {**columns, "same": [7] * RECORDS, "word": ["x"] * RECORDS}


def all_missing(_: int, columns: Columns) -> Columns:
    return {**columns, "empty": [None] * RECORDS}


def one_record_per_code(seed: int, columns: Columns) -> Columns:
    return {**columns, "code": [f"c{seed}-{row}" for row in range(RECORDS)]}


def separable(_: int, columns: Columns) -> Columns:
    return {**columns, "score": [1 if ill == "yes" else -1 for ill in columns["ill"]]}


def text_at_one_site(seed: int, columns: Columns) -> Columns:
    return {**columns, "age": [f"about {age}" if seed else age for age in columns["age"]]}


def wide(seed: int, columns: Columns) -> Columns:
    draw = np.random.default_rng(seed)
    return {**columns, **{f"x{n}": draw.integers(0, 9, RECORDS).tolist() for n in range(10_000)}}


KINDS = {
    "age": 'kind = "numeric"',
    "same": 'kind = "numeric"',
    "word": 'kind = "category"',
    "empty": 'kind = "numeric"',
    "code": 'kind = "category"',
    "score": 'kind = "numeric"',
}
CONFIG = """
[data]
target = "ill"
classes = ["no", "yes"]
held_out = 0.25
[data.sites]
north = "north.csv"
south = "south.csv"
[groups]
columns = ["sex"]
[method]
name = "fedminmax-fast"
baseline = "none"
rounds = 3
"""
CASES: dict[str, tuple[Callable[[int, Columns], Columns], int, str]] = {
    "one column": (one_column, 0, ""),
    "constant columns": (constant, 0, "feature 'same' is constant in training"),
    "all missing": (all_missing, 0, "feature 'empty' is constant in training"),
    "one record per code": (one_record_per_code, 0, "no value of 'code' has 10 training rows"),
    "separable": (separable, 0, "columns that alone predict the target 'ill': 'score'"),
    "a number that is text at one site": (text_at_one_site, 2, "'about 48' is not a number"),
    "10,000 columns": (wide, 2, "effects, too few for 10,001 columns"),
}


def trained(folder: Path, out: str) -> Done:
    """Train on the folder's tables."""
    return fedminmax("train", "fedminmax.toml", "--out", out, cwd=folder)


@pytest.mark.parametrize(
    "case", [pytest.param(name, marks=pytest.mark.slow if "10," in name else ()) for name in CASES]
)
def test_a_hostile_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    changed, code, said = CASES[case]
    for seed, site in enumerate(("north", "south")):
        pl.DataFrame(changed(seed, base(seed))).write_csv(tmp_path / f"{site}.csv")
    columns = [name for name in changed(0, base(0)) if name not in ("sex", "ill")]
    sections = [f"[features.{name}]\n{KINDS.get(name, KINDS['age'])}\n" for name in columns]
    (tmp_path / "fedminmax.toml").write_text(CONFIG + "".join(sections))
    whole = trained(tmp_path, "whole")
    assert whole.returncode == code, whole.stderr
    assert said in " ".join((whole.stdout + whole.stderr).split())
    assert "Traceback" not in whole.stderr
    monkeypatch.setattr(read_csv, "PIECE_BYTES", 2**21 if case.startswith("10,") else 600)
    monkeypatch.setattr(read_file, "PIECE_VALUES", 100)
    monkeypatch.setattr(examples, "PORTION", 50)
    monkeypatch.setattr(odd_rows, "PORTION", 50)
    monkeypatch.setattr(examples, "MOST_IN_MEMORY", 1_000)
    # Thousands of small files are made and freed in less time in memory.
    monkeypatch.setattr(examples, "_folder", lambda: str(Path("/", "dev", "shm")))
    parts = trained(tmp_path, "parts")
    assert parts.returncode == code
    assert said in " ".join((parts.stdout + parts.stderr).split())
    if code:
        assert len(whole.stderr.strip().splitlines()) == 1
        return
    one, other = ((tmp_path / own / "model.safetensors").read_bytes() for own in ("whole", "parts"))
    assert one == other
