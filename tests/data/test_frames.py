"""Groups of rows against a loop over rows, in every form in which sensitive attributes come."""

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from fedminmax.data.frames import group_rows
from tests.complaints import complaint_of

SEX = ["f", "m", "f", "f", "m"]
AGE = [30, 40, 100, 30, 40]


@pytest.mark.parametrize(
    "form",
    [
        {"sex": SEX, "age": AGE},
        pd.DataFrame({"sex": SEX, "age": AGE}),
        pd.DataFrame({"sex": pd.Categorical(SEX), "age": AGE}, index=[9, 8, 7, 6, 5]),
        pl.DataFrame({"sex": SEX, "age": AGE}),
        {"sex": pl.Series(SEX), "age": np.array(AGE)},
    ],
)
def test_each_row_gets_the_name_of_its_own_values(form: Any) -> None:
    groups = group_rows(form, 5)
    names = [groups.names[number] for number in groups.numbers]
    assert names == [f"{sex} / {age}" for sex, age in zip(SEX, AGE, strict=True)]
    # Numbers are ordered as numbers, and what does not occur is no group.
    assert groups.names == ("f / 30", "f / 100", "m / 40")
    assert groups.counts.tolist() == [2, 1, 2]


@pytest.mark.parametrize(
    "form", [SEX, np.array(SEX), pd.Series(SEX), pl.Series(SEX), [[s] for s in SEX]]
)
def test_a_single_column(form: Any) -> None:
    assert group_rows(form, 5).names == ("f", "m")
    assert group_rows(form, 5).numbers.tolist() == [0, 1, 0, 0, 1]


def test_nothing_is_one_group() -> None:
    assert group_rows(None, 2).names == ("all",)
    assert group_rows(None, 2).counts.tolist() == [2]


@pytest.mark.parametrize(
    ("form", "words"),
    [
        (pd.Series(["a", pd.NA, "b"]), "missing in 1 of 3 rows, first in row 1"),
        (pd.Series([1, 2, pd.NA], dtype="Int64"), "missing in 1 of 3 rows, first in row 2"),
        (pl.Series(["a", None, None]), "missing in 2 of 3 rows"),
        (pd.Series(pd.to_datetime(["2020-01-01", None, None])), "missing in 2 of 3 rows"),
        ({"sex": ["a", "b", "a"], "age": [1, 2]}, "age has shape (2,) for 3 rows"),
        ({}, "no column"),
        (np.zeros((3, 0)), "no column"),
        (np.zeros((3, 1, 1)), "shape (3, 1, 1)"),
        (
            {"a": ["x / y", "x", "x"], "b": ["z", "y / z", "z"]},
            "the same name, such as 'x / y / z'",
        ),
    ],
)
def test_what_is_refused(form: Any, words: str) -> None:
    assert words in complaint_of(lambda: group_rows(form, 3))
