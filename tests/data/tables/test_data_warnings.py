"""Warnings about the rows; which columns give the target away follows from how they are made."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from fedminmax.config.read import read_config
from fedminmax.config.schema import Feature, Kind, Protected, Schema, Target
from fedminmax.core.exact_sums import NO_ROWS, exact_sums
from fedminmax.data.tables.data_warnings import (
    leak_warnings,
    protected_copy_warnings,
    unit_warnings,
)
from fedminmax.data.tables.load import load_federated_tables
from fedminmax.data.tables.parse_rows import parse_rows
from fedminmax.data.tables.site_summary import SiteSummary
from tests.data.tables.small_tables import table_of

ROWS = 400
CATEGORIES = ("a", "b", "c")


def warned_columns(
    columns: Mapping[str, object],
    target: object,
    kind: Kind,
    classes: tuple[str, ...],
    parts: int = 1,
) -> set[str]:
    """The columns that are said to give the target away, of rows that ``parts`` sites share."""
    categories = CATEGORIES if kind is Kind.CATEGORY else ()
    features = tuple(Feature(name, kind, categories) for name in columns)
    schema = Schema(Target("y", classes), features, (Protected("sex"),))
    frame = pl.DataFrame({**columns, "y": target, "sex": ["f", "m"] * (ROWS // 2)})
    rows = [
        parse_rows(table_of(frame[part::parts].to_dict(as_series=False)), schema)
        for part in range(parts)
    ]
    words = leak_warnings(rows, schema)
    return {name for name in columns if any(f"'{name}' (" in line for line in words)}


@pytest.mark.parametrize("parts", [1, 40])
def test_numbers_that_give_a_class_away(parts: int) -> None:
    generator = np.random.default_rng(0)
    label = generator.integers(0, 3, ROWS)
    noise = generator.normal(size=ROWS)
    columns = {
        "copy": label * 10.0,
        "other way round": -(label + 0.1 * generator.random(ROWS)),
        "only for one class": np.where(label == 1, 5.0, noise),
        "strong": label + 0.5 * noise,
        "noise": noise,
        "number of the row": np.arange(ROWS) * 1.0,
        "constant": np.ones(ROWS),
    }
    classes = ("p", "q", "r")
    found = warned_columns(columns, np.array(classes)[label], Kind.NUMERIC, classes, parts)
    assert found == {"copy", "other way round"}


def test_a_value_that_is_missing_for_one_class() -> None:
    generator = np.random.default_rng(1)
    label = generator.integers(0, 2, ROWS)
    noise = generator.normal(size=ROWS)
    columns = {
        "known after": [None if one else value for one, value in zip(label, noise, strict=True)],
        "missing at random": [None if n % 3 else float(n) for n in range(ROWS)],
    }
    found = warned_columns(columns, np.array(["no", "yes"])[label], Kind.NUMERIC, ("no", "yes"))
    assert found == {"known after"}


def test_categories_that_give_a_class_away() -> None:
    generator = np.random.default_rng(2)
    code = generator.integers(0, 3, ROWS)
    label = (code == 1).astype(int)
    wrong = generator.random(ROWS) < 0.1
    columns = {
        "copy": np.array(CATEGORIES)[code],
        "nine in ten": np.array(CATEGORIES)[np.where(wrong, 2, code)],
        "noise": generator.choice(CATEGORIES, ROWS),
    }
    found = warned_columns(columns, np.array(["no", "yes"])[label], Kind.CATEGORY, ("no", "yes"))
    assert found == {"copy", "nine in ten"}


def test_numbers_that_give_a_quantity_away() -> None:
    generator = np.random.default_rng(3)
    value = generator.normal(size=ROWS)
    columns = {
        "in another unit": 32 + 1.8 * value,
        "its exponential": np.exp(4 * value),
        "half of it": value + generator.normal(size=ROWS),
        "noise": generator.normal(size=ROWS),
    }
    found = warned_columns(columns, value, Kind.NUMERIC, ())
    assert found == {"in another unit", "its exponential"}


def test_a_large_table_that_repeats_its_classes() -> None:
    label = np.arange(50 * ROWS) % 2
    schema = Schema(Target("y", ("no", "yes")), (Feature("x", Kind.NUMERIC),), (Protected("sex"),))
    classes = np.array(schema.target.classes)[label]
    columns = {"x": (label * 7.25).tolist(), "y": classes.tolist(), "sex": ["f"] * len(label)}
    (words,) = leak_warnings([parse_rows(table_of(columns), schema)], schema)
    assert "7.25" not in words


def test_few_rows_of_a_class_prove_nothing() -> None:
    label = np.zeros(ROWS, dtype=int)
    label[:4] = 1
    found = warned_columns(
        {"copy": label * 1.0}, np.array(["no", "yes"])[label], Kind.NUMERIC, ("no", "yes")
    )
    assert found == set()


def _warnings(folder: Path, **frames: pl.DataFrame) -> str:
    for name, frame in frames.items():
        frame.write_csv(folder / f"{name}.csv")
    sites = "\n".join(f'{name} = "{name}.csv"' for name in frames)
    config = folder / "fedminmax.toml"
    config.write_text(
        '[data]\ntarget = "ill"\nclasses = ["no", "yes"]\n'
        f"[data.sites]\n{sites}\n"
        '[groups]\ncolumns = ["sex"]\nminimum_size = 1\n[features.dose]\nkind = "numeric"\n'
        '[model]\nkind = "logistic"\n'
    )
    return "\n".join(load_federated_tables(read_config(config)).warnings)


def _patients(seed: int, ill: str | None = None) -> pl.DataFrame:
    generator = np.random.default_rng(seed)
    return pl.DataFrame(
        {
            "dose": generator.normal(size=30),
            "sex": generator.choice(["f", "m"], 30),
            "ill": [ill] * 30 if ill else generator.choice(["no", "yes"], 30),
        }
    )


def test_sites_with_the_same_rows(tmp_path: Path) -> None:
    north, west = _patients(0), _patients(1)
    shuffled = north.sample(fraction=1.0, shuffle=True, seed=5)
    other = north.with_columns(pl.col("ill").replace({"no": "yes", "yes": "no"}))
    said = _warnings(tmp_path, north=north, west=west, east=shuffled, south=other)
    assert said.count("in common") == 1
    assert "'north' and 'east' have 30 records in common (of 30 and 30)" in said


def test_a_site_with_one_target(tmp_path: Path) -> None:
    said = _warnings(tmp_path, north=_patients(0), west=_patients(1, "yes"), east=_patients(2))
    assert "target 'ill' is the same in all training rows of 'west' (24 rows)" in said
    assert "'yes'" not in said


def summaries_of(columns: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, SiteSummary]:
    return {
        name: SiteSummary(len(own), {"dose": exact_sums(own)}, {}, {}, NO_ROWS)
        for name, own in columns.items()
    }


DOSE = Schema(Target("y", ("no", "yes")), (Feature("dose", Kind.NUMERIC),), (Protected("sex"),))


@pytest.mark.parametrize(
    ("factor", "warned"), [(1000.0, 1), (0.01, 1), (2.2046, 1), (1 / 2.54, 1), (1.3, 0), (1.0, 0)]
)
def test_a_column_in_another_unit_at_one_site(factor: float, warned: int) -> None:
    generator = np.random.default_rng(0)
    factors = {"north": 1.0, "south": factor, "west": 1.2}
    drawn = {name: own * generator.normal(75, 15, 200) for name, own in factors.items()}
    found = unit_warnings(summaries_of(drawn), DOSE)
    assert len(found) == warned
    if warned:
        assert found[0].startswith("column 'dose' is about ")
        assert "at 'south', compared with other sites: check the unit there" in found[0]
    few = {name: own[:3] for name, own in drawn.items()}
    assert unit_warnings(summaries_of(few), DOSE) == []
    assert unit_warnings({}, DOSE) == []


def test_celsius_and_fahrenheit_hardly_overlap() -> None:
    generator = np.random.default_rng(0)
    celsius = {name: generator.normal(37, 0.5, 100) for name in ("north", "west")}
    found = unit_warnings(summaries_of({**celsius, "south": 32 + 1.8 * celsius["west"]}), DOSE)
    assert len(found) == 1
    assert "column 'dose' has quite other values at 'south'" in found[0]


def test_skewed_columns_differ_by_chance_without_a_warning() -> None:
    """Sites of 60 rows: with few large values, mean and spread go up and down together."""
    generator = np.random.default_rng(0)
    warned = 0
    for _ in range(50):
        drawn = {f"site {n}": generator.lognormal(0.0, 1.5, 60) for n in range(10)}
        warned += len(unit_warnings(summaries_of(drawn), DOSE))
    assert warned == 0


def test_half_of_the_records_of_one_site_are_also_at_another(tmp_path: Path) -> None:
    north, west = _patients(0), _patients(1)
    mixed = pl.concat([north[:15], west[:15]]).sample(fraction=1.0, shuffle=True, seed=1)
    said = _warnings(tmp_path, north=north, east=mixed)
    assert "'north' and 'east' have 15 records in common (of 30 and 30)" in said
    assert "held-out rows of one are training rows of the other" in said
    assert "in common" not in _warnings(tmp_path, north=north, west=west)


def test_records_that_are_alike_by_chance_are_no_overlap(tmp_path: Path) -> None:
    """Whole doses from 1 to 20: of 800 possible records both sites have most."""
    frames = {}
    for seed, name in enumerate(("north", "south")):
        generator = np.random.default_rng(seed)
        frames[name] = pl.DataFrame(
            {
                "dose": generator.integers(1, 21, 400),
                "sex": generator.choice(["f", "m"], 400),
                "ill": generator.choice(["no", "yes"], 400),
            }
        )
    assert "in common" not in _warnings(tmp_path, **frames)


def test_a_copy_of_a_protected_column_is_named() -> None:
    generator = np.random.default_rng(0)
    sex = generator.choice(["f", "m"], ROWS)
    wrong = generator.random(ROWS) < 0.02
    gender = np.where((sex == "f") ^ wrong, "w", "man")
    frame = {"gender": gender, "x": generator.normal(size=ROWS), "sex": sex}
    frame["y"] = generator.choice(["no", "yes"], ROWS)
    features = (Feature("gender", Kind.CATEGORY, ("w", "man")), Feature("x", Kind.NUMERIC))
    schema = Schema(Target("y", ("no", "yes")), features, (Protected("sex"),))
    rows = [parse_rows(table_of({name: own.tolist() for name, own in frame.items()}), schema)]
    (said,) = protected_copy_warnings(rows, schema)
    assert said.startswith(
        "the model sees the sensitive attribute 'sex' after all, by columns that"
    )
    assert "'gender' (9" in said
    assert "'x'" not in said
    assert protected_copy_warnings(rows, replace(schema, protected_as_features=True)) == []
