"""Limits on losses and gradients, and a learning rate that is safe for a linear model.

Neither needs to see a row. The learning rate comes from power iteration, that is from sums over
rows of x (x . v) (see ``safe_learning_rate``). The limits of one row follow from the model's
weights (see ``row_limits``). Limits over many rows follow by Cauchy and Schwarz from
sum_i |x~_i|^2, with x~ the row with a 1 appended, which sites send before the first round. They
hold for every table, so a value above them must be wrong.
"""

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from decimal import ROUND_DOWN, Context

import torch
from torch import Tensor, nn

from fedminmax.core.additive.model import AdditiveModel
from fedminmax.core.linear_structure import (
    LinearStructure,
    linear_start_of,
    linear_structure_of,
)
from fedminmax.core.losses import Loss, brier_loss, cross_entropy_loss, squared_error_loss
from fedminmax.core.task import Task

# Largest second derivative in the outputs. Brier: with p the probability of the wrong class of
# two, twice the maximum of 4 p^2 (1 - p) (2 - 3 p); more classes do not increase it.
OUTPUT_CURVATURES: dict[Loss, float] = {
    brier_loss: 0.6163,
    cross_entropy_loss: 0.5,
    squared_error_loss: 2.0,
}
# The estimate may be too low by a factor of two; this many iterations come much closer.
POWER_ITERATIONS = 30
MAX_NETWORK_RATE = 0.1
# Length of the gradient of a two-class probability in the outputs, p (1 - p) sqrt(2), at p = 1/2.
SCORE_SLOPE = math.sqrt(2.0) / 4.0
# Bound on the rounding error of a row's loss in single precision, with some margin.
LOSS_ROUNDING = 1e-5


def safe_learning_rate(
    loss: Loss, x: Tensor, group: Tensor, *, linear: bool, ridge: float = 0.0
) -> float:
    """Return 1 / (largest curvature over groups) of a linear model; a network takes at most 0.1.

    Gradient descent on a linear model cannot overshoot with this step. A loss whose second
    derivative in the outputs is at most c has, over group a, a curvature of at most c times the
    largest eigenvalue of the mean of x x^T over the group's rows (x with a 1 for the intercept). A
    weighting mu of the groups has at most the largest of these. Descent lowers the risk with any
    step of at most 1 / curvature and stays stable up to twice that (Nesterov, Introductory Lectures
    on Convex Optimization, 2004, Theorem 2.1.14).

    >>> x, group = torch.tensor([[1.0], [-1.0]]), torch.zeros(2, dtype=torch.int64)
    >>> safe_learning_rate(squared_error_loss, x, group, linear=True)
    0.5
    """
    largest = max(_largest_eigenvalue(x[group == number]) for number in range(int(group.max()) + 1))
    return rate_for_eigenvalue(loss, largest, linear=linear, ridge=ridge)


def safe_rate_of(task: Task, x: Tensor, group: Tensor) -> float:
    """Return the rate that a run uses if its method sets none, rounded down to two digits.

    The curvature is unknown if rows are not vectors or the loss is not one of ours; such models
    use 0.1, the maximum for networks.
    """
    loss = next((known for known in OUTPUT_CURVATURES if known is task.loss), None)
    if loss is not None and isinstance(task.model, AdditiveModel):
        # No coded row with its 1 is longer than this.
        squares = len(task.model.design.blocks) + 1.0
        rate = rate_for_eigenvalue(loss, squares, linear=True, ridge=task.ridge)
        return float(rounded_rate(rate))
    if loss is None or x.dim() != 2 or not x.is_floating_point():
        return MAX_NETWORK_RATE
    linear = linear_structure_of(task) is not None
    exact = x if x.dtype is torch.float64 else x.float()
    rate = safe_learning_rate(loss, exact, group, linear=linear, ridge=task.ridge)
    return float(rounded_rate(rate))


def rate_for_eigenvalue(loss: Loss, largest: float, *, linear: bool, ridge: float = 0.0) -> float:
    """Return the step for this largest eigenvalue over groups; a ridge curves all directions."""
    rate = 1.0 / (OUTPUT_CURVATURES[loss] * largest + ridge)
    return rate if linear else min(rate, MAX_NETWORK_RATE)


def rounded_rate(rate: float) -> str:
    """Round down to two digits, so that the order in which rows were summed does not matter.

    >>> rounded_rate(0.46912)
    '0.46'
    """
    return str(Context(prec=2, rounding=ROUND_DOWN).create_decimal(rate))


def first_direction(features: int, dtype: torch.dtype) -> Tensor:
    """Return the start vector of power iteration: one entry per feature, one for the intercept."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(features + 1, generator=generator, dtype=dtype)


def sum_along(x: Tensor, direction: Tensor) -> Tensor:
    """Return the sum of x (x . v) over rows, a 1 appended to each row."""
    rows = torch.cat([x, x.new_ones(len(x), 1)], dim=1)
    return rows.T @ (rows @ direction)


def _largest_eigenvalue(x: Tensor) -> float:
    """Return the largest eigenvalue of the mean of x x^T, a 1 appended to each row."""
    rows = torch.cat([x, x.new_ones(len(x), 1)], dim=1)
    direction = first_direction(x.shape[1], x.dtype).to(x.device)
    size = torch.ones((), dtype=x.dtype)
    for _ in range(POWER_ITERATIONS):
        direction = direction / direction.norm()
        direction = rows.T @ (rows @ direction) / len(rows)
        size = direction.norm()
    return float(size)


@dataclass(frozen=True)
class LossLimits:
    """For any row: the maximum of its loss and of the norm of its gradient in the outputs.

    The third number is the squared norm per unit of loss. Infinite means no limit.
    """

    loss: float
    slope: float
    squared_slope_per_loss: float


# Brier: the gradient is 2 (diag p - p p^T) (p - y), and the matrix has no eigenvalue above 1/2;
# with q on one wrong class it has length 4 sqrt(2) q^2 (1 - q), largest at q = 2/3.
# Cross-entropy: p - y has length at most sqrt(2) (1 - p_y), and (1 - p_y)^2 <= -log p_y.
LOSS_LIMITS: dict[Loss, LossLimits] = {
    brier_loss: LossLimits(2.0, 16.0 * math.sqrt(2.0) / 27.0, 1.0),
    cross_entropy_loss: LossLimits(math.inf, math.sqrt(2.0), 2.0),
    squared_error_loss: LossLimits(math.inf, math.inf, 4.0),
}


@dataclass(frozen=True)
class RowLengths:
    """Of one site: the roots of sum_i |x~_i|^2 and, for quantity targets, of sum_i y_i^2."""

    rows: float
    targets: float = 0.0


UNKNOWN_LENGTHS = RowLengths(math.inf, math.inf)


@dataclass(frozen=True)
class RowLimits:
    """Limits for one row of length 1 at a given model; those of other rows are multiples.

    ``slope`` is the largest gradient of its loss in the parameters, ``squared_slope_per_loss`` the
    square of that gradient per unit of loss, ``score_slope`` the largest gradient of its score p_1.
    ``curvature`` is the largest second derivative of its loss in the outputs, of either sign.
    ``output`` is its largest output. ``ridge`` is the penalty's factor, and ``pull`` the norm of
    its gradient, which is included in ``slope`` but not in ``squared_slope_per_loss``. With
    ``at_every_model`` all limits but the output's hold at any model. ``coded`` rows are those of an
    additive model. ``linear_start`` is the layout of a linear model that a network starts from.
    """

    classes: int
    max_loss: float
    _: KW_ONLY
    slope: float
    squared_slope_per_loss: float
    score_slope: float
    curvature: float
    output: float
    at_every_model: bool
    ridge: float = 0.0
    pull: float = 0.0
    coded: bool = False
    linear_start: LinearStructure | None = None

    def squared_slopes(self, counts: Tensor, losses: Tensor) -> Tensor:
        """Return an upper bound on the sum of squared gradients of rows of length 1, by group.

        ``losses`` are the loss sums of the groups, which have ``counts`` rows.
        """
        rounded = losses.clamp(min=0.0) + LOSS_ROUNDING * counts
        by_loss = self.squared_slope_per_loss * rounded
        if self.pull:
            # Minkowski: gradients of the losses plus the penalty's gradient in each row.
            by_loss = (by_loss.sqrt() + self.pull * counts.to(torch.float64).sqrt()) ** 2
        if math.isinf(self.slope):
            return by_loss
        return by_loss.minimum(self.slope**2 * counts.to(torch.float64))

    def max_loss_sums(self, counts: Tensor, lengths: RowLengths) -> Tensor:
        """Return an upper bound on the loss sum of this many rows of a site."""
        rows = counts.to(torch.float64)
        if math.isfinite(self.max_loss):
            return self.max_loss * rows
        if self.classes == 0:
            both = self.output * lengths.rows + lengths.targets
            return torch.where(rows > 0, both**2, 0.0)
        # log sum_c exp(o_c - o_y) <= log C + sqrt(2) |o|.
        spread = math.sqrt(2.0) * self.output * lengths.rows
        limit = math.log(self.classes) * rows + spread * rows.sqrt()
        return torch.where(rows > 0, limit, 0.0)


def row_limits(
    layers: Sequence[nn.Linear], parameters: Tensor, loss: Loss, ridge: float = 0.0
) -> RowLimits:
    """Return the limits for linear layers with ReLU between them and these parameters.

    Outputs and gradients are at most a multiple of the row's length, and the multiple follows from
    the weights. With x~ the row with a 1 appended (so |x~| >= 1), W~_j = [W_j b_j] and
    |h~_j| <= A_j |x~|:

        A_0 = 1,  A_j^2 = |W~_j|^2 A_{j-1}^2 + 1            (ReLU lengthens nothing)
        |outputs| <= |W~_m| A_{m-1} |x~|
        |d outputs / d theta|^2 <= sum_j A_{j-1}^2 prod_{i>j} |W_i|^2 |x~|^2

    |W| is a norm that is never below the spectral one: the Frobenius norm, or the root of the
    product of the largest row and column sums, whichever is smaller. For a linear model the last
    factor is always 1.

    A ridge m adds m theta to the gradient of every row's loss, whose norm is at most
    m |theta| |x~|. This holds for local training, too: if theta_t = d_t theta_{t-1} - eta g_t with
    |d_t| <= 1, the distance travelled is at most that of the g_t alone plus |theta_0| times the sum
    of the 1 - d_t = eta m.

    >>> limits = row_limits([nn.Linear(2, 1)], torch.tensor([3.0, 0.0, 4.0]), squared_error_loss)
    >>> limits.output, limits.squared_slope_per_loss, limits.at_every_model
    (5.0, 4.0, True)
    """
    weights = _weights(layers, parameters.detach().to("cpu", torch.float64))
    squared_input, inputs = 1.0, []
    output = 0.0
    norms = [_squared_norms(weight, bias) for weight, bias in weights]
    for _, with_bias in norms:
        inputs.append(squared_input)
        output = math.sqrt(with_bias * squared_input)
        squared_input = with_bias * squared_input + 1.0
    squared_gain, passed_back = 0.0, 1.0
    for (without_bias, _), squared in zip(reversed(norms), reversed(inputs), strict=True):
        squared_gain += passed_back * squared
        passed_back *= without_bias
    gain, of_loss, outputs = math.sqrt(squared_gain), LOSS_LIMITS[loss], layers[-1].out_features
    pull = ridge * float(torch.linalg.vector_norm(parameters.detach(), dtype=torch.float64))
    return RowLimits(
        classes=0 if loss is squared_error_loss else outputs,
        max_loss=of_loss.loss,
        slope=of_loss.slope * gain + pull,
        squared_slope_per_loss=of_loss.squared_slope_per_loss * squared_gain,
        score_slope=SCORE_SLOPE * gain,
        curvature=OUTPUT_CURVATURES[loss],
        output=output,
        at_every_model=len(layers) == 1,
        ridge=ridge,
        pull=pull,
    )


def row_limits_at(task: Task, parameters: Tensor) -> RowLimits:
    """Return what one row can do to the sums of a task's model with these parameters."""
    layers = [layer for layer in task.model.modules() if isinstance(layer, nn.Linear)]
    limits = row_limits(layers, parameters, task.loss, task.ridge)
    start = linear_start_of(task)
    return replace(
        limits,
        coded=isinstance(task.model, AdditiveModel),
        linear_start=None if start is None else start.structure,
    )


def _weights(layers: Sequence[nn.Linear], parameters: Tensor) -> list[tuple[Tensor, Tensor]]:
    shapes = [layer.weight.shape for layer in layers]
    sizes = [size for rows, columns in shapes for size in (rows * columns, rows)]
    parts = torch.split(parameters, sizes)
    return [
        (weight.view(shape), bias)
        for weight, bias, shape in zip(parts[::2], parts[1::2], shapes, strict=True)
    ]


def _squared_norms(weight: Tensor, bias: Tensor) -> tuple[float, float]:
    """Return upper bounds on the squared spectral norms of W and [W b]."""
    size = weight.abs()
    column, rows = float(size.sum(dim=0).max()), size.sum(dim=1)
    entries = float(torch.dot(weight.reshape(-1), weight.reshape(-1)))
    last_column = float(bias.abs().sum())
    with_bias = max(column, last_column) * float((rows + bias.abs()).max())
    return (
        min(entries, column * float(rows.max())),
        min(entries + float(torch.dot(bias, bias)), with_bias),
    )
