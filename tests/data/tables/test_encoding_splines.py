"""Encodings of spline models: knots from mean and deviation alone, limits that hold, no others."""

import json
from dataclasses import replace
from functools import reduce
from operator import add

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedminmax.config.schema import Feature, Kind, Protected, Schema, Target
from fedminmax.data.splines import HEIGHT, KNOTS
from fedminmax.data.tables.encode import encode
from fedminmax.data.tables.encoding import (
    EncodedQuantity,
    agree_on_encoding,
    encoding_as_json,
    encoding_from_json,
    has_expected_knots,
    row_lengths,
)
from fedminmax.data.tables.parse_rows import ParsedRows, parse_rows
from fedminmax.data.tables.site_summary import summarise
from tests.complaints import complaint_of
from tests.data.tables.small_tables import table_of

RAMPS = len(KNOTS) - 1
SCHEMA = Schema(
    Target("ill", ("no", "yes")),
    (
        Feature("dose", Kind.NUMERIC),
        Feature("flag", Kind.NUMERIC),
        Feature("smoker", Kind.BOOLEAN),
        Feature("ward", Kind.CATEGORY, ("a", "b")),
    ),
    (Protected("sex"),),
)
doses = st.lists(st.one_of(st.none(), st.floats(-1e6, 1e6)), min_size=4, max_size=25)


def rows_of(dose: list[float | None]) -> ParsedRows:
    count = len(dose)
    columns = {
        "dose": pl.Series(dose, dtype=pl.Float64).to_list(),
        "flag": [place % 2 for place in range(count)],
        "smoker": [place % 3 == 0 for place in range(count)],
        "ward": ["ab"[place % 2] for place in range(count)],
        "ill": [("no", "yes")[place % 2] for place in range(count)],
        "sex": ["f"] * count,
    }
    return parse_rows(table_of(columns), SCHEMA)


def test_numbers_get_ramps_and_a_missing_one_is_the_mean() -> None:
    dose = [*np.random.default_rng(0).normal(7, 3, 40).tolist(), None]
    rows = rows_of(dose)
    encoding = agree_on_encoding(SCHEMA, summarise(rows, SCHEMA), splines=True)
    # Booleans, zeros and ones, and categories have no effect that could bend.
    assert [len(own.names) for own in encoding.features] == [2 + RAMPS, 1, 1, 2]
    assert encoding.names[1] == "dose from -1.534 to -0.887 deviations"
    known = np.array(dose[:-1], dtype=float)
    z = np.append((known - known.mean()) / known.std(), 0.0)
    levels = np.eye(len(KNOTS)).cumsum(axis=1)[1:] * HEIGHT
    expected = np.column_stack([np.interp(z, KNOTS, level) for level in levels])
    found = encode(rows, encoding, "t").x.numpy()
    np.testing.assert_allclose(found[:, 1 : 1 + RAMPS], expected, atol=1e-6)
    # Everything else is what a linear model sees.
    plain = agree_on_encoding(SCHEMA, summarise(rows, SCHEMA))
    others = np.delete(found, range(1, 1 + RAMPS), axis=1)
    assert np.array_equal(others, encode(rows, plain, "t").x.numpy())


@given(doses, st.integers(0, 25))
def test_any_split_of_the_rows_gives_the_same_encoding_and_limits_that_hold(
    dose: list[float | None], cut: int
) -> None:
    enough = [*dose, 1.0, 5.0]
    whole = rows_of(enough)
    parts = [whole.take(np.arange(len(enough))[:cut]), whole.take(np.arange(len(enough))[cut:])]
    pooled = summarise(whole, SCHEMA)
    encoding = agree_on_encoding(SCHEMA, pooled, splines=True)
    summaries = [summarise(part, SCHEMA) for part in parts]
    assert agree_on_encoding(SCHEMA, reduce(add, summaries), splines=True) == encoding
    x = encode(whole, encoding, "t").x.double()
    length = float(torch.cat([x, x.new_ones(len(x), 1)], dim=1).norm())
    assert length <= row_lengths(pooled, encoding).rows * (1 + 1e-6)


def test_a_site_takes_no_other_knots() -> None:
    rows = rows_of([1.0, 2.0, 3.0, 4.5])
    agreed = agree_on_encoding(SCHEMA, summarise(rows, SCHEMA), splines=True)
    assert has_expected_knots(agreed, splines=True)
    assert not has_expected_knots(agreed, splines=False)
    dose, *others = agreed.features
    assert isinstance(dose, EncodedQuantity)
    narrow = replace(agreed, features=(replace(dose, knots=(0.1, 0.1001)), *others))
    assert not has_expected_knots(narrow, splines=True)


@pytest.mark.parametrize("knots", [[0.0], [1.0, 1.0], [2.0, 1.0], [0.0, float("inf")]])
def test_a_damaged_file_has_no_usable_knots(knots: list[float]) -> None:
    rows = rows_of([1.0, 2.0, 3.0, 4.5])
    text = encoding_as_json(agree_on_encoding(SCHEMA, summarise(rows, SCHEMA), splines=True))
    content = json.loads(text)
    content["features"][0]["knots"] = knots
    complaint = complaint_of(lambda: encoding_from_json(json.dumps(content), "m"))
    assert "has no usable knots of 'dose'; train again" in complaint
