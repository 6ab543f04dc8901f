"""The encoding of many sites is that of pooled rows, bit for bit, and scikit-learn's numbers."""

from collections.abc import Sequence
from functools import reduce
from itertools import pairwise
from operator import add

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from fedminmax.config.schema import Feature, Kind, Protected, Schema, Target
from fedminmax.core.examples import concatenate
from fedminmax.data.tables.agree import agree_on_encoding
from fedminmax.data.tables.encode import encode, encode_features
from fedminmax.data.tables.encoding import Encoding
from fedminmax.data.tables.encoding_json import encoding_as_json, encoding_from_json
from fedminmax.data.tables.parse_rows import ParsedRows, parse_features, parse_rows
from fedminmax.data.tables.read_file import FileTable
from fedminmax.data.tables.site_summary import SiteSummary, summarise
from tests.complaints import complaint_of
from tests.data.tables.small_tables import SCHEMA, table_of

Columns = dict[str, Sequence[object]]

row = st.tuples(
    st.one_of(st.none(), st.floats(-1e12, 1e12), st.integers(0, 9).map(lambda n: n / 10)),
    st.sampled_from([None, "a", "b", "c", "other"]),
    st.sampled_from([None, True, False]),
    st.sampled_from(["Female", "Male"]),
    st.sampled_from(["no", "yes"]),
)
tables = st.lists(row, min_size=1, max_size=30)


def table_from(rows: list[tuple[object, ...]]) -> FileTable:
    kinds = {
        "age": pl.Float64, "ward": pl.String, "smoker": pl.Boolean, "sex": pl.String,
        "ill": pl.String,
    }  # fmt: skip
    frame = pl.DataFrame(rows, schema=kinds, orient="row")
    return FileTable("t.csv", frame, pl.Series(range(1, len(frame) + 1), dtype=pl.Int64))


def encoding_of(parts: list[ParsedRows], schema: Schema = SCHEMA) -> Encoding:
    return agree_on_encoding(schema, reduce(add, [summarise(part, schema) for part in parts]))


# These three rows make sure that there is something to learn.
ENOUGH: list[tuple[object, ...]] = [
    (1.0, "a", True, "Female", "no"),
    (2.0, "b", None, "Male", "yes"),
    (None, None, False, "Male", "no"),
]


@given(tables, st.lists(st.integers(0, 33), max_size=4))
def test_any_split_of_the_rows_gives_the_pooled_encoding_and_tensors(
    rows: list[tuple[object, ...]], cuts: list[int]
) -> None:
    rows = rows + ENOUGH
    ends = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    pieces = [rows[a:b] for a, b in pairwise(ends)]
    pooled = parse_rows(table_from(rows), SCHEMA)
    parts = [parse_rows(table_from(piece), SCHEMA) for piece in pieces]
    encoding = encoding_of([pooled])
    assert encoding_of(parts) == encoding
    whole = encode(pooled, encoding, "t.csv")
    joined = concatenate([encode(part, encoding_of(parts), "t.csv") for part in parts])
    assert torch.equal(joined.x, whole.x)
    assert torch.equal(joined.y, whole.y)
    assert torch.equal(joined.group, whole.group)


def test_scikit_learn_gives_the_same_columns() -> None:
    generator = np.random.default_rng(0)
    age = np.where(generator.random(500) < 0.1, np.nan, generator.normal(50, 20, 500))
    ward = generator.choice(["a", "b", "c"], 500)
    smoker = generator.random(500) < 0.3
    table = table_of(
        {
            "age": pl.Series(age, nan_to_null=True).to_list(),
            "ward": ward.tolist(),
            "smoker": smoker.tolist(),
            "sex": generator.choice(["Female", "Male"], 500).tolist(),
            "ill": generator.choice(["no", "yes"], 500).tolist(),
        }
    )
    rows = parse_rows(table, SCHEMA)
    encoding = encoding_of([rows])
    assert encoding.names == ("age", "age is missing", "ward = a", "ward = b", "ward = c", "smoker")
    # Scaled first: the scaler passes over gaps, and the mean is then 0.
    numeric = make_pipeline(StandardScaler(), SimpleImputer(strategy="constant", fill_value=0))
    expected = np.column_stack(
        [
            numeric.fit_transform(age[:, None]),
            np.isnan(age),
            OneHotEncoder(sparse_output=False).fit_transform(ward[:, None]),
            StandardScaler().fit_transform(smoker[:, None]),
        ]
    )
    np.testing.assert_allclose(encode(rows, encoding, "t").x.numpy(), expected, atol=1e-6)


def encoded(columns: Columns, *features: Feature) -> tuple[Encoding, list[list[float]]]:
    """Encode these columns, with a target and a group that do not matter."""
    count = len(next(iter(columns.values())))
    rest: Columns = {"y": [i % 2 for i in range(count)], "sex": ["Female"] * count}
    schema = Schema(Target("y", ("0", "1")), features, (Protected("sex"),))
    rows = parse_rows(table_of(columns | rest), schema)
    encoding = encoding_of([rows], schema)
    return encoding, encode(rows, encoding, "t").x.tolist()


def test_missing_numbers_get_the_mean_and_a_flag() -> None:
    encoding, x = encoded({"a": [1, None, 3]}, Feature("a", Kind.NUMERIC))
    assert encoding.names == ("a", "a is missing")
    assert x == [[-1, 0], [0, 1], [1, 0]]


def test_a_constant_with_gaps_keeps_its_flag_alone() -> None:
    encoding, x = encoded({"a": ["yes", "", "yes"]}, Feature("a", Kind.BOOLEAN))
    assert encoding.names == ("a is missing",)
    assert x == [[0], [1], [0]]


def test_constant_columns_and_absent_categories_are_dropped() -> None:
    encoding, x = encoded(
        {"a": [0.1, 0.1], "b": ["u", "u"], "c": ["u", "w"], "d": [None, None], "e": [0, 2]},
        Feature("a", Kind.NUMERIC),
        Feature("b", Kind.CATEGORY, ("u", "v")),
        Feature("c", Kind.CATEGORY, ("u", "v", "w")),
        Feature("d", Kind.NUMERIC),
        Feature("e", Kind.NUMERIC),
    )
    assert encoding.names == ("c = u", "c = w", "e")
    assert encoding.dropped == ("a", "b", "d")
    assert x == [[1, 0, -1], [0, 1, 1]]


def test_a_category_that_training_never_saw_is_none_of_them() -> None:
    feature = Feature("c", Kind.CATEGORY, ("u", "v", "w"))
    encoding, _ = encoded({"c": ["u", "v"]}, feature)
    rest: Columns = {"y": [0] * 4, "sex": ["Female"] * 4}
    rows = parse_rows(table_of({"c": ["v", "w", "new", None], **rest}), encoding.schema)
    assert encode(rows, encoding, "t").x.tolist() == [[0, 1], [0, 0], [0, 0], [0, 0]]


def test_a_target_that_is_a_quantity_is_scaled() -> None:
    schema = Schema(Target("age"), SCHEMA.features[1:], SCHEMA.protected)
    columns: Columns = {
        "age": [10, 20],
        "ward": ["a", "b"],
        "smoker": [1, 0],
        "sex": ["Female", "Male"],
    }
    rows = parse_rows(table_of(columns), schema)
    encoding = encoding_of([rows], schema)
    examples = encode(rows, encoding, "t")
    assert (encoding.outputs, examples.y.dtype, examples.y.tolist()) == (1, torch.float32, [-1, 1])
    assert encoding.target_scale is not None
    assert (encoding.target_scale.mean, encoding.target_scale.deviation) == (15.0, 5.0)


@given(tables)
def test_json_keeps_every_bit(rows: list[tuple[object, ...]]) -> None:
    encoding = encoding_of([parse_rows(table_from(rows + ENOUGH), SCHEMA)])
    assert encoding_from_json(encoding_as_json(encoding), "encoding.json") == encoding


def test_a_damaged_encoding_is_refused() -> None:
    assert complaint_of(lambda: encoding_from_json('{"schema": 1}', "encoding.json")) == (
        "encoding.json is not an encoding of this version (schema); train again"
    )


def refused(**columns: Sequence[object]) -> str:
    base: Columns = {
        "age": [1, 2],
        "ward": ["a", "b"],
        "smoker": [1, 0],
        "sex": ["Female"] * 2,
        "ill": ["no", "yes"],
    }
    return complaint_of(lambda: encoding_of([parse_rows(table_of(base | columns), SCHEMA)]))


def test_a_target_with_one_class() -> None:
    assert refused(ill=["no", "no"]) == (
        "target 'ill' has one class, 'no', in all 2 training rows of all sites; give rows of "
        "another class or choose another target"
    )


def test_a_category_that_is_not_listed_reads_alike_in_training_and_in_predictions() -> None:
    feature = Feature("ward", Kind.CATEGORY, ("a", "b"))
    encoding, x = encoded({"ward": ["a", "b", "rare", None]}, feature)
    later = parse_features(table_of({"ward": ["never seen", "rare", "b"]}), encoding.schema)
    assert encode_features(later, encoding).tolist() == [x[2], x[2], x[1]]
    assert x[2] == [0, 0, 0]


def test_a_target_quantity_that_never_changes() -> None:
    schema = Schema(Target("age"), SCHEMA.features[1:], SCHEMA.protected)
    columns: Columns = {
        "age": [7, 7],
        "ward": ["a", "b"],
        "smoker": [1, 0],
        "sex": ["Female", "Male"],
    }
    rows = parse_rows(table_of(columns), schema)
    assert complaint_of(lambda: encoding_of([rows], schema)) == (
        "target 'age' is the same in every training row of all sites; there is nothing to learn: "
        "choose another target"
    )


def test_nothing_but_constants() -> None:
    assert refused(age=[1, 1], ward=["a", "a"], smoker=[1, 1]) == (
        "every feature is constant in the training rows, or nearly so; name features that vary"
    )


def test_a_group_that_training_never_saw() -> None:
    train = parse_rows(table_from(ENOUGH[:2]), SCHEMA)
    other = parse_rows(table_from([(1.0, "a", True, "Nonbinary", "no")] * 3), SCHEMA)
    assert complaint_of(lambda: encode(other, encoding_of([train]), "test.csv")) == (
        "test.csv: group 'Nonbinary' (3 rows) has no training row at any site; training has "
        "'Female', 'Male': remove these rows, or add such rows to training"
    )


def test_summaries_hold_counts_by_group_and_class() -> None:
    summary: SiteSummary = summarise(parse_rows(table_from(ENOUGH), SCHEMA), SCHEMA)
    assert summary.strata == {(("Female",), 0): 1, (("Male",), 1): 1, (("Male",), 0): 1}
    assert summary.group_counts == {("Female",): 1, ("Male",): 2}
    assert summary.class_counts == {0: 2, 1: 1}
    assert summary.categories == {"ward": (1, 1, 0, 1, 0)}
    assert summary.quantities["age"].mean == pytest.approx(1.5)
