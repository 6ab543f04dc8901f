"""First guesses about columns, and sizes that leave only noise."""

import polars as pl
import pytest

from fedminmax.config.schema import Feature, Kind, Protected
from fedminmax.data.tables.infer import Rare, Stated, guess_feature, guess_protected, guess_target

SPREAD = [str(n) for n in range(18, 90)]


def column(values: list[str | None], name: str = "x") -> pl.Series:
    return pl.Series(name, values, dtype=pl.String)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "2.5", "-3e2", None], Kind.NUMERIC),
        (["0", "1", "1"], Kind.BOOLEAN),
        (["Yes", "no"], Kind.BOOLEAN),
        (["yes", None], Kind.BOOLEAN),
        (["2020-01-31", "2020-01-31T10:00"], Kind.DATE),
    ],
)
def test_kinds(values: list[str | None], kind: Kind) -> None:
    assert guess_feature(column(values), Stated(1)).feature == Feature("x", kind)


def test_other_texts_are_categories_in_alphabetical_order() -> None:
    guess = guess_feature(column(["b", "a", "10", "b", None]), Stated(1))
    assert guess.feature == Feature("x", Kind.CATEGORY, ("10", "a", "b"))


@pytest.mark.parametrize(
    ("values", "remark"),
    [
        ([None, None], "has no values"),
        (["u", "u"], "is the same in every row"),
        ([f"p{n}" for n in range(51)], "has 51 different texts, too many for categories"),
    ],
)
def test_columns_that_are_no_features(values: list[str | None], remark: str) -> None:
    guess = guess_feature(column(values), Stated(1))
    assert guess.feature is None
    assert guess.remark == remark


@pytest.mark.parametrize("odd", ["old", "inf"])
def test_a_slip_among_many_numbers_leaves_them_numbers(odd: str) -> None:
    guess = guess_feature(column([*SPREAD, odd]), Stated(1))
    assert guess.feature == Feature("x", Kind.NUMERIC)
    assert "not numbers: 1 of them in 1 row. Correct them" in guess.remark
    assert odd not in guess.remark
    assert guess.limits == (18.0, 89.0)


@pytest.mark.parametrize(("name", "values"), [("x", SPREAD), ("patient_ID", ["7", "7", "8"])])
def test_what_may_be_an_identifier_gets_a_remark(name: str, values: list[str | None]) -> None:
    assert "identify" in guess_feature(column(values, name), Stated(1)).remark
    assert guess_feature(column(["1", "2", "2"], "paid"), Stated(1)).remark == ""


@pytest.mark.parametrize(
    ("values", "classes"),
    [
        (["yes", "no", "no"], ("no", "yes")),
        (["10", "9", "10"], ("9", "10")),
        ([str(n) for n in range(11)], ()),
        (["0.5", "1"], ()),
    ],
)
def test_targets(values: list[str | None], classes: tuple[str, ...]) -> None:
    assert guess_target(column(values)).classes == classes


@pytest.mark.parametrize(
    ("name", "values", "edges"),
    [
        ("age", SPREAD, (30.0, 45.0, 60.0)),
        ("Age at visit", [str(n) for n in range(20, 50)], (30.0, 45.0)),
        ("wage", [str(n) for n in range(101)], (25.0, 50.0, 75.0)),
        ("sex", ["F", "M"], ()),
        ("age code", ["1", "2", "3"], ()),
    ],
)
def test_bands(name: str, values: list[str | None], edges: tuple[float, ...]) -> None:
    protected, _ = guess_protected(column(values, name), 1)
    assert protected.edges == edges
    assert bool(protected.values) == (not edges)


def test_values_with_too_few_rows_are_counted_and_not_listed() -> None:
    values: list[str | None] = ["a", "b", "b", "c", "b", "c", None]
    guess = guess_feature(column(values), Stated(2))
    assert guess.feature == Feature("x", Kind.CATEGORY, ("b", "c"))
    assert guess.rare == Rare(values=1, rows=1)
    assert guess_protected(column(values), 3) == (Protected("x", values=("b",)), Rare(2, 3))
    assert guess_feature(column(values), Stated(4)).feature is None
