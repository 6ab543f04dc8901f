"""Limits of curvature sums: no table exceeds them, and one row of the worst kind attains them."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from fedminmax.core.bounds import RowLengths, row_limits
from fedminmax.core.examples import Examples
from fedminmax.core.group_sums import linear_group_sums
from fedminmax.core.linear_structure import LinearStructure
from fedminmax.core.losses import LOSSES_BY_NAME
from fedminmax.core.messages import zero_sums
from fedminmax.methods.shared.expected_reply import (
    ReportedCurvature,
    Sender,
    curvature_limits,
    layout_of,
)

FEATURES = 3


def told_of(
    loss: str, outputs: int, x: Tensor, theta: Tensor
) -> tuple[Tensor, Tensor, ReportedCurvature]:
    """Return an honest site's curvature sums, their limits and the told matrices."""
    group = torch.arange(len(x)) % 2
    y = torch.zeros(len(x), dtype=torch.float64 if loss == "squared_error" else torch.int64)
    structure = LinearStructure(outputs, FEATURES, intercept=True, loss=loss)
    sums = linear_group_sums(structure, theta, Examples(x, y, group), 2).curvature.flatten()
    limits = row_limits([nn.Linear(FEATURES, outputs)], theta, LOSSES_BY_NAME[loss])
    length = math.sqrt(float(x.square().sum()) + len(x))
    sender = Sender(
        0, torch.bincount(group, minlength=2), sites=1, limits=limits, lengths=RowLengths(length)
    )
    reply = replace(zero_sums(0, 2, 0), statistics=sums)
    layout = layout_of(len(theta), sender)
    assert layout is not None
    return sums, *curvature_limits(layout, sender, reply)


@pytest.mark.parametrize(
    ("loss", "outputs"),
    [("brier", 2), ("brier", 4), ("cross_entropy", 2), ("cross_entropy", 4), ("squared_error", 1)],
)
def test_no_table_has_curvature_above_the_limits(loss: str, outputs: int) -> None:
    for seed, spread in enumerate((0.0, 0.3, 3.0, 30.0)):
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(5, FEATURES, generator=generator).double() * 10.0**seed
        theta = spread * torch.randn(outputs * (FEATURES + 1), generator=generator).double()
        sums, most, told = told_of(loss, outputs, x, theta)
        assert bool((sums.abs() <= most).all())
        traces = told.matrices.diagonal(dim1=1, dim2=2).sum()
        assert float(traces) <= told.max_trace * (1 + 1e-12)
        assert float(torch.linalg.eigvalsh(told.matrices).min()) >= -1e-14 * told.max_trace


@pytest.mark.parametrize(("loss", "outputs"), [("cross_entropy", 2), ("squared_error", 1)])
def test_a_row_that_is_undecided_attains_the_trace(loss: str, outputs: int) -> None:
    """At theta = 0 both classes have 1/2: diag(p) - p p' has trace 1/2, and (o - y)'' is 2."""
    x = torch.tensor([[1.0, -2.0, 3.0]], dtype=torch.float64)
    theta = torch.zeros(outputs * (FEATURES + 1), dtype=torch.float64)
    _, _, told = told_of(loss, outputs, x, theta)
    expected = (0.5 if outputs == 2 else 2.0) * (1 + 4 + 9 + 1)
    assert float(told.matrices.diagonal(dim1=1, dim2=2).sum()) == pytest.approx(expected)
    assert told.max_trace == pytest.approx(expected)
