"""Rows are checked once on entry; a mistake is told in one line with the site and the row."""

import math

import pytest
import torch

from fedminmax.core.examples import check_examples, concatenate
from tests.complaints import complaint_of

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
