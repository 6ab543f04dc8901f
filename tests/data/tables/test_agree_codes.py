"""Encodings of additive models: pooled = federated, codes by hand, limits, damaged files."""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from itertools import pairwise
from operator import add
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedminmax.config.schema import Feature, Kind, Protected, Schema, Target
from fedminmax.core.additive.model import Block, Pair
from fedminmax.core.bounds import RowLengths
from fedminmax.data.tables.agree import agree_on_encoding, bins_in_memory
from fedminmax.data.tables.bins import MAX_CODES, MAX_FINE_BINS
from fedminmax.data.tables.encode import distance_warnings, encode_features
from fedminmax.data.tables.encoding import BinnedQuantity, CodedCategory, Encoding, with_smoothing
from fedminmax.data.tables.encoding_json import encoding_as_json, encoding_from_json
from fedminmax.data.tables.parse_rows import FeatureRows, ParsedRows, parse_rows
from fedminmax.data.tables.read_file import FileTable
from fedminmax.data.tables.site_summary import row_lengths, summarise
from tests.complaints import complaint_of
from tests.data.tables.small_tables import SCHEMA, load, write_files

row = st.tuples(
    st.one_of(st.none(), st.floats(-1e12, 1e12), st.integers(0, 9).map(lambda n: n / 10)),
    st.sampled_from([None, "a", "b", "c", "other"]),
    st.sampled_from([None, True, False]),
    st.sampled_from(["Female", "Male"]),
    st.sampled_from(["no", "yes"]),
)
ENOUGH: list[tuple[object, ...]] = [
    (1.0, "a", True, "Female", "no"),
    (2.0, "b", False, "Male", "yes"),
] * 6


def parsed(rows: Sequence[tuple[object, ...]]) -> ParsedRows:
    kinds = {
        "age": pl.Float64, "ward": pl.String, "smoker": pl.Boolean, "sex": pl.String,
        "ill": pl.String,
    }  # fmt: skip
    frame = pl.DataFrame(rows, schema=kinds, orient="row")
    numbers = pl.Series(range(1, len(frame) + 1), dtype=pl.Int64)
    return parse_rows(FileTable("t.csv", frame, numbers), SCHEMA)


def agreed(parts: Sequence[ParsedRows], schema: Schema = SCHEMA) -> Encoding:
    total = reduce(add, (summarise(part, schema) for part in parts))
    return agree_on_encoding(
        schema, total, bins_in_memory(schema, total, [part.features for part in parts])
    )


@given(st.lists(row, max_size=40), st.lists(st.integers(0, 50), max_size=4))
def test_any_split_of_the_rows_gives_the_pooled_codes(
    rows: list[tuple[object, ...]], cuts: list[int]
) -> None:
    rows = rows + ENOUGH
    ends = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    pooled = parsed(rows)
    encoding = agreed([pooled])
    parts = [parsed(rows[a:b]) for a, b in pairwise(ends)]
    assert agreed(parts) == encoding
    assert encoding_from_json(encoding_as_json(encoding), "encoding.json") == encoding
    codes = encode_features(pooled.features, encoding)
    own = [encode_features(part.features, encoding) for part in parts]
    assert torch.equal(torch.cat(own), codes)
    assert {part.dtype for part in [codes, *own]} == {torch.uint8}
    sizes = torch.tensor([block.size for block in encoding.blocks])
    assert bool(((codes >= 0) & (codes < sizes)).all())
    assert len(encoding.names) == int(sizes.sum())
    assert len({*encoding.names}) == len(encoding.names)
    # Indicators of codes, and a 1 appended.
    lengths = row_lengths(summarise(pooled, SCHEMA), encoding)
    assert lengths == RowLengths(np.sqrt(len(rows) * (len(sizes) + 1)), 0.0)


AGES = [
    (float(age), ward, age > 40, "Male", "no" if ward == "a" else "yes")
    for age in (30, 40, 50)
    for ward in "aab"
] * 4
ROWS = [*AGES, (None, None, None, "Female", "yes"), (50.0, "elsewhere", True, "Female", "yes")]


def test_codes_by_hand() -> None:
    encoding = agreed([parsed(ROWS)])
    age, ward, smoker = encoding.features
    assert isinstance(age, BinnedQuantity)
    assert isinstance(ward, CodedCategory)
    assert isinstance(smoker, BinnedQuantity)
    assert (age.edges, age.flags_missing, age.fallback) == ((35.0, 45.0), True, 1)
    assert (ward.categories, ward.flags_missing) == (("a", "b"), True)
    assert (smoker.edges, smoker.flags_missing) == ((0.5,), True)
    assert encoding.blocks == (
        Block(4, ordered=3, positions=(30.0, 40.0, 50.0)),
        Block(4),
        Block(3),
    )
    assert encoding.records == len(ROWS)
    codes = encode_features(parsed(ROWS).features, encoding).tolist()
    assert codes[:3] == [[0, 0, 0], [0, 0, 0], [0, 1, 0]]
    assert codes[-2:] == [[3, 2, 2], [2, 3, 1]]
    assert encoding.names[:4] == (
        "age under 35", "age 35 to 45", "age 45 and over", "age is missing"
    )  # fmt: skip


def test_a_missing_value_that_training_never_saw_counts_as_the_median() -> None:
    encoding = agreed([parsed(AGES)])
    codes = encode_features(parsed(ROWS[-2:]).features, encoding).tolist()
    # The ward was never missing either: it is another value.
    assert codes == [[1, 2, 0], [2, 2, 1]]
    assert encoding.blocks == (
        Block(3, ordered=3, positions=(30.0, 40.0, 50.0)),
        Block(3),
        Block(2),
    )


def test_constants_are_dropped_and_gaps_of_a_constant_are_kept() -> None:
    rows = [(7.0 if number % 3 else None, "a", None, "Male", "no") for number in range(12)]
    rows += [(7.0, "a", None, "Female", "yes")]
    encoding = agreed([parsed(rows)])
    assert encoding.dropped == ("ward", "smoker")
    assert encoding.features == (
        BinnedQuantity("age", (), flags_missing=True, fallback=0, mean=7.0),
    )
    assert encode_features(parsed(rows[:2]).features, encoding).tolist() == [[1], [0]]


def test_pairs_and_smoothing_are_part_of_it() -> None:
    pair = Pair(0, 1, (0, 0, 1, 1), (0, 1, 1, 2))
    encoding = agreed([parsed(ROWS)])
    smoothed = with_smoothing(encoding, [2.0, 3.0, 4.0, 5.0], [pair])
    assert [block.smoothing for block in smoothed.blocks] == [2.0, 3.0, 4.0, 5.0]
    assert smoothed.blocks[-1].size == 6
    assert encoding_from_json(encoding_as_json(smoothed), "encoding.json") == smoothed
    assert len(smoothed.names) == len(encoding.names) + 6
    codes = encode_features(parsed(ROWS).features, smoothed)
    assert torch.equal(codes[:, :3], encode_features(parsed(ROWS).features, encoding))
    assert codes[-2:, 3].tolist() == [1 * 3 + 1, 1 * 3 + 2]


@pytest.mark.parametrize(
    ("where", "value", "fault"),
    [
        (("features", 0, "edges"), [45.0, 35.0], "has no usable bins of 'age'"),
        (("features", 0, "edges"), list(range(200)), "has no usable bins of 'age'"),
        (("features", 0, "nodes"), [0, 1], "has no usable bins of 'age'"),
        (("features", 0, "nodes"), [0, 2, 1, 3], "has no usable bins of 'age'"),
        (("features", 0, "fallback"), 9, "has no usable bins of 'age'"),
        (("features", 1, "categories"), ["a", "z"], "that its schema does not have"),
        (("features", 1, "categories"), ["a", "a"], "has a category of 'ward' twice"),
        (("features", 1, "smoothing"), -1.0, "has no usable smoothing"),
        (("pairs", 0, "second"), 7, "has a pair that its features cannot have"),
        (("pairs", 0, "first_cells"), [], "has a pair that its features cannot have"),
        (("pairs", 0, "first_cells"), [0, 1, 2, 900], "has a pair that its features cannot have"),
        (("records",), 0, "is half that of an additive model"),
    ],
)
def test_a_damaged_file_is_refused(where: tuple[str | int, ...], value: object, fault: str) -> None:
    pair = Pair(0, 1, (0, 0, 1, 1), (0, 1, 1, 2))
    encoding = with_smoothing(agreed([parsed(ROWS)]), [1.0] * 4, [pair])
    content = json.loads(encoding_as_json(encoding))
    part = content
    for key in where[:-1]:
        part = part[key]
    part[where[-1]] = value
    complaint = complaint_of(lambda: encoding_from_json(json.dumps(content), "encoding.json"))
    assert fault in complaint


def wide(numbers: int, categories: int = 0, codes: int = 0) -> tuple[Schema, ParsedRows]:
    """Return a table with so many number columns, and category columns with so many codes."""
    random = np.random.default_rng(0)
    names = tuple(f"code {number}" for number in range(codes))
    schema = Schema(
        Target("y", ("no", "yes")),
        (
            *(Feature(f"n{number}", Kind.NUMERIC) for number in range(numbers)),
            *(Feature(f"c{number}", Kind.CATEGORY, names) for number in range(categories)),
        ),
        (Protected("sex"),),
    )
    rows = max(100, codes)
    features = FeatureRows(
        rows,
        {f"n{number}": random.normal(size=rows) for number in range(numbers)},
        {
            f"c{number}": np.arange(rows, dtype=np.int32) % max(codes, 1)
            for number in range(categories)
        },
    )
    parsed_rows = ParsedRows(
        features,
        np.arange(rows) % 2,
        np.arange(rows) % 2,
        group_keys=(("a",), ("b",)),
        numbers=np.arange(rows),
    )
    return schema, parsed_rows


@pytest.mark.parametrize(
    ("shape", "largest"),
    [((1,), 33), ((100,), 33), ((200,), 20), ((1_000,), 4), ((2_000,), 2), ((10, 6, 1_500), None)],
)
def test_the_number_of_codes_is_limited(shape: tuple[int, ...], largest: int | None) -> None:
    schema, rows = wide(*shape)
    encoding = agreed([rows], schema)
    assert len(encoding.features) == len(schema.features)
    assert sum(block.own.size for block in encoding.blocks) <= MAX_CODES
    assert sum(block.size for block in encoding.blocks) <= max(MAX_CODES, MAX_FINE_BINS)
    if largest is not None:
        assert max(block.own.size for block in encoding.blocks) <= largest


def test_too_many_columns_are_refused_with_the_way_out() -> None:
    schema, rows = wide(10_000)
    assert complaint_of(lambda: agreed([rows], schema)) == (
        '[model] kind = "additive" has at most 4,000 effects, too few for 10,000 columns; set kind '
        '= "logistic", or name fewer features'
    )


def test_of_too_many_codes_the_frequent_ones_are_kept() -> None:
    schema, rows = wide(0, 1, 1_200)
    often = np.concatenate([rows.features.codes["c0"], np.full(50, 1_150, np.int32)])
    more = np.concatenate([np.arange(1_200), np.zeros(50, np.int64)])
    rows = replace(rows.take(more), features=FeatureRows(1_250, {}, {"c0": often}))
    (feature,) = agreed([rows], schema).features
    assert isinstance(feature, CodedCategory)
    kept = len(feature.categories)
    assert 900 < kept <= 1_000
    assert feature.categories[-1] == "code 1150"
    codes = encode_features(rows.features, agreed([rows], schema))[:, 0]
    assert int(codes.max()) == int(codes[1_199]) == kept
    assert int(codes[1_150]) == kept - 1


def test_far_values_are_warned_of() -> None:
    encoding = agreed([parsed(ROWS)])
    (warning,) = distance_warnings(
        parsed([(4000.0, "a", True, "Male", "no")]).features, encoding, "new.csv"
    )
    assert "'age' in 1 of 1 row" in warning


def test_files_become_codes(tmp_path: Path) -> None:
    write_files(tmp_path)
    tables = load(tmp_path, ('kind = "logistic"', 'kind = "additive"'))
    assert tables.encoding.is_additive
    assert tables.encoding.records == 8
    north, south = (part.examples.x for part in tables.train)
    # Ages have a bin each, as there are so few; one is missing, and so are a ward and a smoker.
    assert north.tolist() == [[0, 0, 1], [2, 1, 0], [3, 0, 2], [5, 1, 0]]
    assert south.tolist() == [[1, 0, 1], [7, 2, 1], [4, 3, 0], [6, 2, 0]]


def test_a_number_that_hardly_varies_is_dropped_and_the_note_says_so(tmp_path: Path) -> None:
    """A bin of its own would single out the one row that differs."""
    lines = [
        f"{30 + (n == 7)},{'FM'[n % 2]},{'abc'[n % 3]},yes,{'no' if n % 4 else 'yes'}"
        for n in range(40)
    ]
    text = "\n".join(["age,sex,ward,smoker,ill", *lines])
    write_files(tmp_path, north=text, south=text.replace("31", "30"))
    tables = load(tmp_path, ('kind = "logistic"', 'kind = "additive"'))
    assert tables.encoding.dropped == ("age", "smoker")
    assert "feature 'smoker' is constant in training: dropped" in tables.notes
    nearly = "feature 'age' is constant in training but for fewer than 3 rows: dropped"
    assert nearly in tables.notes
