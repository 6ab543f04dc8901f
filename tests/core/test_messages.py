"""Replies form a commutative monoid, and the server's one line.

Whole numbers up to 1000 add exactly in float64, so the laws are tested without a tolerance.

Rows are checked once on entry; a mistake is told in one line with the site and the row.
"""

import math
from dataclasses import fields

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fedminmax.core.examples import check_examples, concatenate
from fedminmax.core.messages import Census, Sums, descend, zero_sums
from fedminmax.core.validation import NO_LOSSES, LossSums
from tests.complaints import complaint_of

whole = st.integers(-1000, 1000)
counts = st.integers(0, 1000)


def floats(size: int) -> st.SearchStrategy[Tensor]:
    return st.lists(whole, min_size=size, max_size=size).map(
        lambda own: torch.tensor(own, dtype=torch.float64)
    )


def integers(size: int) -> st.SearchStrategy[Tensor]:
    return st.lists(counts, min_size=size, max_size=size).map(
        lambda own: torch.tensor(own, dtype=torch.int64)
    )


replies = st.builds(
    Sums,
    step=floats(4),
    scale=whole.map(float),
    curvature=whole.map(float),
    group_loss=floats(3),
    group_count=integers(3),
    site_loss=floats(2),
    site_count=integers(2),
    gradient_evaluations=counts,
    validation=st.just(NO_LOSSES) | st.builds(LossSums, floats(3), floats(3), integers(3)),
)


def as_lists(sums: Sums) -> dict[str, object]:
    parts = (("", sums), ("validation ", sums.validation), ("rounding ", sums.rounding))
    values = {
        prefix + field.name: getattr(part, field.name)
        for prefix, part in parts
        for field in fields(part)
        if field.name not in ("validation", "rounding")
    }
    return {
        name: value.tolist() if isinstance(value, Tensor) else value
        for name, value in values.items()
    }


def reply(step: list[float], scale: float) -> Sums:
    return Sums(
        torch.tensor(step, dtype=torch.float64),
        scale,
        curvature=0.0,
        group_loss=torch.tensor([3.0, 0.0], dtype=torch.float64),
        group_count=torch.tensor([2, 0]),
        site_loss=torch.zeros(0, dtype=torch.float64),
        site_count=torch.zeros(0, dtype=torch.int64),
        statistics=torch.zeros(0, dtype=torch.float64),
        gradient_evaluations=2,
    )


@given(replies, replies, replies)
def test_addition_is_associative(a: Sums, b: Sums, c: Sums) -> None:
    assert as_lists((a + b) + c) == as_lists(a + (b + c))


@given(replies, replies)
def test_addition_is_commutative(a: Sums, b: Sums) -> None:
    assert as_lists(a + b) == as_lists(b + a)


@given(replies)
def test_zero_changes_nothing(a: Sums) -> None:
    zero = zero_sums(4, 3, 2)
    assert as_lists(a + zero) == as_lists(a)
    assert as_lists(zero + a) == as_lists(a)


@given(replies)
def test_every_field_is_added(a: Sums) -> None:
    doubled = as_lists(a + a)
    for name, value in as_lists(a).items():
        twice = [2 * each for each in value] if isinstance(value, list) else _twice(value)
        assert doubled[name] == twice


def _twice(value: object) -> float:
    assert isinstance(value, int | float)
    return 2 * value


def test_adding_leaves_the_summands_alone() -> None:
    a, b = reply([1.0, 2.0], 4.0), reply([10.0, 20.0], 5.0)
    assert (a + b).step.tolist() == [11.0, 22.0]
    assert a.step.tolist() == [1.0, 2.0]
    assert b.step.tolist() == [10.0, 20.0]


def test_a_group_that_nobody_had_has_no_risk_rather_than_risk_zero() -> None:
    risks = reply([0.0], 1.0).group_risks
    assert float(risks[0]) == 1.5
    assert bool(risks[1].isnan())


def test_descend_moves_by_step_over_scale_in_the_models_precision() -> None:
    moved = descend(torch.tensor([1.0, 1.0]), reply([2.0, -4.0], 4.0))
    assert moved.tolist() == [0.5, 2.0]
    assert moved.dtype == torch.float32


def test_descend_without_any_weight_stays() -> None:
    assert descend(torch.tensor([1.0, 1.0]), reply([0.0, 0.0], 0.0)).tolist() == [1.0, 1.0]


def test_census_counts_and_shares() -> None:
    census = Census(torch.tensor([[1, 2, 0], [3, 0, 4]]))
    assert (census.sites, census.groups) == (2, 3)
    assert census.site_counts.tolist() == [3, 7]
    assert census.site_shares.tolist() == [0.3, 0.7]
    assert census.group_shares.tolist() == [0.4, 0.2, 0.4]
    assert census.group_shares.dtype == torch.float64


X = torch.arange(8.0).view(4, 2)
Y = torch.tensor([0, 1, 1, 0])
GROUP = torch.tensor([0, 0, 1, 2])


@pytest.mark.parametrize(
    ("x", "y", "group", "lengths"),
    [
        (X[:3], Y, GROUP, "x has 3 rows, y 4 and group 4"),
        (X, Y[:2], GROUP, "x has 4 rows, y 2 and group 4"),
        (X, Y, GROUP[:1], "x has 4 rows, y 4 and group 1"),
        (X, Y, GROUP[:0], "x has 4 rows, y 4 and group 0"),
    ],
)
def test_lengths_must_agree(
    x: torch.Tensor, y: torch.Tensor, group: torch.Tensor, lengths: str
) -> None:
    message = complaint_of(lambda: check_examples(x, y, group, "site 3"))
    assert message.startswith("site 3: ")
    assert lengths in message
    assert "make them equal" in message


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_bad_feature_is_named_by_its_row(bad: float) -> None:
    x = X.clone()
    x[2, 1] = bad
    message = complaint_of(lambda: check_examples(x, Y, GROUP, "site 0"))
    assert "x is NaN or infinite in row 2" in message
    assert "fill or drop" in message


def test_a_bad_pixel_in_an_image_is_named_by_its_row() -> None:
    images = torch.zeros(4, 1, 3, 3)
    images[3, 0, 2, 2] = math.nan
    assert "row 3" in complaint_of(lambda: check_examples(images, Y, GROUP, "site 0"))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_bad_target_is_named_by_its_row(bad: float) -> None:
    y = torch.tensor([0.0, bad, 1.0, bad])
    message = complaint_of(lambda: check_examples(X, y, GROUP, "site 0"))
    assert "y is NaN or infinite in row 1" in message


@pytest.mark.parametrize(
    "group",
    [GROUP.float(), GROUP.double(), GROUP.bool(), GROUP.view(4, 1)],
    ids=["float", "double", "bool", "column"],
)
def test_groups_are_a_vector_of_whole_numbers(group: torch.Tensor) -> None:
    message = complaint_of(lambda: check_examples(X, Y, group, "site 0"))
    assert "whole numbers from 0" in message
    assert str(group.dtype) in message


def test_a_negative_group_is_refused() -> None:
    group = torch.tensor([0, -2, 1, 1])
    message = complaint_of(lambda: check_examples(X, Y, group, "site 5"))
    assert message.startswith("site 5: group -2 is negative")


@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_single_number_is_not_rows(position: int) -> None:
    parts = [X, Y, GROUP]
    parts[position] = torch.tensor(1)
    message = complaint_of(lambda: check_examples(parts[0], parts[1], parts[2], "site 0"))
    assert f"{('x', 'y', 'group')[position]} is a single number" in message


def test_whole_numbers_become_64_bit_and_nothing_else_changes() -> None:
    rows = check_examples(X, Y.to(torch.uint8), GROUP.to(torch.int16), "site 0")
    assert rows.y.dtype == rows.group.dtype == torch.int64
    assert rows.y.tolist() == Y.tolist()
    assert rows.group.tolist() == GROUP.tolist()
    assert torch.equal(rows.x, X)


def test_rows_are_picked_in_the_order_asked_for() -> None:
    picked = check_examples(X, Y, GROUP, "site 0").rows(torch.tensor([3, 0]))
    assert picked.x.tolist() == [[6.0, 7.0], [0.0, 1.0]]
    assert picked.group.tolist() == [2, 0]


def test_concatenation_keeps_rows_together() -> None:
    rows = check_examples(X, Y, GROUP, "site 0")
    both = concatenate([rows.rows(torch.tensor([2])), rows])
    assert len(both) == 5
    assert both.x[0].tolist() == [4.0, 5.0]
    assert both.y.tolist() == [1, 0, 1, 1, 0]
    assert both.group.tolist() == [1, 0, 0, 1, 2]
