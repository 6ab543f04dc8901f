"""Groups by hand: crossing, bands, order, names, and rows without a protected value."""

from collections.abc import Sequence

import pytest

from fedminmax.config.schema import MissingGroup, Protected, Schema, Target
from fedminmax.data.tables.groups import (
    LEFT_OUT,
    MERGED_VALUE,
    check_listed,
    group_name,
    merged_key,
    parse_groups,
    sort_groups,
)
from tests.complaints import complaint_of
from tests.data.tables.small_tables import table_of

SEX_AND_AGE = (Protected("sex"), Protected("age", (30.0, 45.0)))
ROWS: dict[str, Sequence[object]] = {
    "sex": ["Male", "Female", "Male", "", "Female"],
    "age": ["29.9", "30", "45", "50", None],
}


def schema_of(policy: MissingGroup) -> Schema:
    return Schema(Target("y"), (), SEX_AND_AGE, missing_group=policy)


def names_of(policy: MissingGroup) -> list[str | None]:
    """The name of each row's group, None where it is left out."""
    schema = schema_of(policy)
    group, keys = parse_groups(table_of(ROWS), schema)
    return [None if a == LEFT_OUT else group_name(keys[a], schema) for a in group.tolist()]


def test_a_missing_value_as_a_group_of_its_own() -> None:
    assert names_of(MissingGroup.OWN_GROUP) == [
        "Male / age under 30",
        "Female / age 30 to 45",
        "Male / age 45 and over",
        "sex missing / age 45 and over",
        "Female / age missing",
    ]


def test_rows_with_a_missing_value_left_out() -> None:
    known = ["Male / age under 30", "Female / age 30 to 45", "Male / age 45 and over"]
    assert names_of(MissingGroup.LEAVE_OUT) == [*known, None, None]


def test_a_missing_value_as_an_error() -> None:
    assert complaint_of(lambda: names_of(MissingGroup.ERROR)) == (
        "north.csv (5 rows): sensitive attribute 'sex', row 4 is missing (2 such rows); correct "
        'it, or set missing in [groups] to "own_group" or "leave_out"'
    )


def test_groups_are_ordered_by_column_with_bands_by_size_and_missing_last() -> None:
    bands = SEX_AND_AGE[1].bands
    keys = [
        (None, bands[0]),
        ("Male", bands[2]),
        ("Female", None),
        ("Female", bands[2]),
        ("Female", bands[0]),
        ("Male", bands[1]),
    ]
    assert sort_groups(keys, schema_of(MissingGroup.OWN_GROUP)) == (
        ("Female", bands[0]),
        ("Female", bands[2]),
        ("Female", None),
        ("Male", bands[1]),
        ("Male", bands[2]),
        (None, bands[0]),
    )


def test_merged_groups_come_last_under_a_name_of_their_own() -> None:
    schema = schema_of(MissingGroup.OWN_GROUP)
    merged = merged_key(schema)
    assert sort_groups([merged, (None, None), ("Zulu", None)], schema) == (
        ("Zulu", None),
        (None, None),
        merged,
    )
    assert group_name(merged, schema) == "merged small groups"


@pytest.mark.parametrize("value", [MERGED_VALUE, MERGED_VALUE.strip(), f"\t{MERGED_VALUE} "])
def test_no_value_of_a_table_is_that_of_merged_groups(value: str) -> None:
    schema = Schema(Target("y"), (), (Protected("sex"),))
    _, keys = parse_groups(table_of({"sex": [value, "Male"]}), schema)
    assert keys == [(MERGED_VALUE.strip(),), ("Male",)]
    assert merged_key(schema) not in keys


ORIGINS = ["a", "b", "Tuvalu", None, "Tuvalu", "Nauru"]


def origins(policy: MissingGroup, *, as_training: bool = False) -> list[str | None]:
    """The name of each row's group where two origins are listed."""
    schema = Schema(
        Target("y"),
        (),
        (Protected("origin", values=("a", "b")),),
        missing_group=MissingGroup.OWN_GROUP,
        unlisted_group=policy,
    )
    group, keys = parse_groups(table_of({"origin": ORIGINS}), schema)
    if as_training:
        check_listed(group, keys, schema, "north.csv")
    return [None if a == LEFT_OUT else group_name(keys[a], schema) for a in group.tolist()]


def test_values_that_are_not_listed() -> None:
    listed, missing = ["origin a", "origin b"], "origin missing"
    other = "origin other"
    own = [*listed, other, missing, other, other]
    assert origins(MissingGroup.OWN_GROUP, as_training=True) == own
    out = [*listed, None, missing, None, None]
    assert origins(MissingGroup.LEAVE_OUT, as_training=True) == out
    # Rows to test on may have a group that training does not know: they are kept apart.
    assert origins(MissingGroup.ERROR) == [*listed, "Tuvalu", missing, "Tuvalu", "Nauru"]
    assert complaint_of(lambda: origins(MissingGroup.ERROR, as_training=True)) == (
        "north.csv: sensitive attribute 'origin' is 'Tuvalu' in 2 rows, which [groups.values] does "
        'not list; correct it, list it, or set unlisted in [groups] to "own_group" or "leave_out"'
    )


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("Female", "Female"),
        ("1", "sex 1"),
        ("F", "sex F"),
        ("Yes", "sex Yes"),
        (None, "sex missing"),
    ],
)
def test_a_value_that_says_nothing_alone_gets_its_columns_name(
    value: str | None, name: str
) -> None:
    assert group_name((value,), Schema(Target("y"), (), (Protected("sex"),))) == name
