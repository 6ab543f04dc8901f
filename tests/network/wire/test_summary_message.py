"""A site's summary as JSON: exact sums come back exactly, and impossible ones are refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedminmax.config.read import read_config
from fedminmax.config.schema import Feature, Kind, Protected, Schema, Target
from fedminmax.core.exact_sums import exact_sums
from fedminmax.data.tables.site_summary import SiteSummary, summarise
from fedminmax.data.tables.sources import read_source
from fedminmax.network.wire.codec import RefusedError
from fedminmax.network.wire.sections import summary_from_bytes, summary_to_bytes
from tests.data.tables.small_tables import write_config, write_files

SCHEMA = Schema(Target("y"), (Feature("x", Kind.NUMERIC),), (Protected("sex"),))
# As a message it is well formed, but it is the square of no floating-point number.
HUGE = "1" + "0" * 1190 + "/2^0"
FINITE = st.floats(allow_nan=False, allow_infinity=False)


@given(values=arrays(np.float64, st.integers(1, 20), elements=FINITE))
def test_exact_sums_come_back_exactly(values: np.ndarray[Any, np.dtype[np.float64]]) -> None:
    sums, rows = exact_sums(values), len(values)
    summary = SiteSummary(rows, {"x": sums}, {}, {(("Female",), 0): rows}, sums)
    assert summary_from_bytes(summary_to_bytes(summary), SCHEMA, "north") == summary


@pytest.fixture
def told(tmp_path: Path) -> tuple[dict[str, Any], Schema]:
    """What the small table's owner tells, as parsed JSON."""
    write_files(tmp_path)
    config = read_config(write_config(tmp_path))
    rows = read_source(config.training[0], config).parts[0].rows
    return json.loads(summary_to_bytes(summarise(rows, config.schema))), config.schema


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        (("rows",), -1, "rows"),
        (("rows",), 5, "impossible counts of column 'ward'"),
        (("rows",), 3, "sums that are impossible for 3 rows"),
        (("quantities", "age", 0), 9, "sums that are impossible for 4 rows"),
        (("quantities", "age", 2), "1/2^0", "sums that are impossible"),
        (("quantities", "age", 2), "f" * 5000 + "/2^0", "quantities.age.2"),
        (("quantities", "age", 2), HUGE, "sums that"),
        (("quantities", "age", 2), "1/2^1000000000", "quantities.age.2"),
        (("quantities", "age", 2), "1/2^9999", "quantities.age.2"),
        (("quantities", "age", 2), 7, "quantities.age.2"),
        (("target", 0), 4, "sums that are impossible for 4 rows"),
        (("quantities", "age", 1), "1e5x/2^0", "quantities.age.1"),
        (("quantities", "more"), [0], "quantities.more"),
        (("categories", "ward"), [4], "column 'ward'"),
        (("categories", "ward"), [4, -1, 1, 0, 0], "categories.ward.1"),
        (("strata", 0, 2), 7, "by group and class"),
        (("strata", 0, 2), 0, "strata.0.2"),
        (("strata", 0, 1), 2, "by group and class"),
        (("strata", 0, 0), ["Female", "x"], "by group and class"),
        (("strata", 0, 0), ["F" * 500], "strata.0.0"),
        (("more",), 1, "more"),
    ],
)
def test_an_impossible_summary_is_refused(
    path: tuple[str | int, ...], value: object, reason: str, told: tuple[dict[str, Any], Schema]
) -> None:
    content, schema = told
    *way, last = path
    place: Any = content
    for step in way:
        place = place[step]
    place[last] = value
    with pytest.raises(RefusedError, match=f"north sent .*{reason}"):
        summary_from_bytes(json.dumps(content).encode(), schema, "north")


def counts_of(*groups: tuple[str | None, ...]) -> tuple[bytes, Schema]:
    """A summary of one row per group, for groups by sex and band of age."""
    schema = Schema(Target("y"), (), (Protected("sex"), Protected("age", (30.0,))))
    rows, sums = len(groups), exact_sums(np.ones(len(groups)))
    strata = {(group, 0): 1 for group in groups}
    return summary_to_bytes(SiteSummary(rows, {}, {}, strata, sums)), schema


def test_merged_groups_are_accepted_beside_others() -> None:
    groups = ((" merged", " merged"), ("Female", "age under 30"), (None, None))
    message, schema = counts_of(*groups)
    assert set(summary_from_bytes(message, schema, "north").group_counts) == set(groups)


@pytest.mark.parametrize(
    ("group", "column"),
    [
        (("Female", "age over 90"), "age"),
        (("Female", " merged"), "age"),
        ((" merged", "age under 30"), "sex"),
        ((" merged", None), "sex"),
    ],
)
def test_a_group_that_no_table_can_have_is_refused(
    group: tuple[str | None, ...], column: str
) -> None:
    message, schema = counts_of(group)
    with pytest.raises(RefusedError, match=f"north sent an unknown band or value of '{column}'"):
        summary_from_bytes(message, schema, "north")


def test_a_group_that_was_not_agreed_on_is_refused() -> None:
    message, schema = counts_of(("Female", None), ("Invented", None))
    listed = Protected("sex", values=("Female", "Male"))
    with pytest.raises(RefusedError, match="north sent an unknown band or value of 'sex'"):
        summary_from_bytes(
            message, replace(schema, protected=(listed, schema.protected[1])), "north"
        )


@given(junk=st.binary(max_size=100))
def test_junk_is_refused(junk: bytes) -> None:
    with pytest.raises(RefusedError, match="north sent"):
        summary_from_bytes(junk, SCHEMA, "north")


def test_a_huge_summary_is_refused_unread() -> None:
    with pytest.raises(RefusedError, match="at most"):
        summary_from_bytes(b" " * (2**22 + 1), SCHEMA, "north")
