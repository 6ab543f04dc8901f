"""Spline features: numbers whose effect may bend, with a linear model on top.

A standardised number z becomes z itself and one ramp between every two neighbouring knots,

    height * clip((z - low) / (high - low), 0, 1),

so that a linear model of them is any continuous function with bends at the knots and the same slope
beyond the outer two (a linear spline; de Boor: A Practical Guide to Splines, 1978). Effects of
columns add up: there are no interactions. With weights of 0 on all ramps it is the linear model, so
with the same ridge its best penalised training risk is never higher.

The knots are quantiles of the standard normal distribution, in deviations from the mean. Mean and
deviation are all that sites agree on, so knots tell nobody more about rows than the linear model
does. Ramps are a tenth high: a ridge then penalises bends a hundred times as much as the slope,
without which tables with many columns and few rows are overfitted.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

# Quantiles 1/16, 3/16, ..., 15/16.
KNOTS = (-1.534, -0.887, -0.489, -0.157, 0.157, 0.489, 0.887, 1.534)
# Not stored in saved models, which depend on it.
HEIGHT = 0.1


def ramps(numbers: Tensor, knots: Sequence[float] = KNOTS) -> Tensor:
    """Return the ramps of standardised numbers [n] as columns [n, knots - 1].

    >>> ramps(torch.tensor([-5.0, 0.5, 5.0]), [0.0, 1.0, 2.0])
    tensor([[0.0000, 0.0000],
            [0.0500, 0.0000],
            [0.1000, 0.1000]])
    """
    at = numbers.new_tensor(knots)
    return HEIGHT * ((numbers[:, None] - at[:-1]) / at.diff()).clip(0.0, 1.0)


def largest_squares(knots: Sequence[float]) -> float:
    """Return the largest sum of squares of one number's ramps."""
    return HEIGHT**2 * max(len(knots) - 1, 0)


class SplineFeatures(nn.Module):
    """Append the ramps of some columns to a table of standardised numbers; nothing is trained."""

    def __init__(self, columns: Sequence[int]) -> None:
        super().__init__()
        self.columns = tuple(columns)

    def forward(self, x: Tensor) -> Tensor:
        """Return [rows, inputs + 7 for each of the columns]."""
        return torch.cat([x, *(ramps(x[:, column]) for column in self.columns)], dim=1)
