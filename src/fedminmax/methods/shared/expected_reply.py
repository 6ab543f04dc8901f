"""What a server can know of an honest reply before it comes: exact numbers, or limits.

Most numbers of a reply follow from the order, the sender's census and the reply's own losses. Each
method says how; a reply that says otherwise cannot be true. A one-step method needs to say
nothing: its row weights say it all.

The length of a step: where a step is sum_i c_i grad_i and |grad_i| <= s_i |x_i|, Cauchy and Schwarz
give |step| <= sqrt(sum_i c_i^2 s_i^2) sqrt(sum_i |x_i|^2). The first factor is ``reach``; the
second one, the length of the sender's rows, the server knows from its summary.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from fedminmax.core.bounds import RowLengths, RowLimits
from fedminmax.core.linear_structure import LinearStructure
from fedminmax.core.local_epochs import LocalEpochs, batches_per_epoch
from fedminmax.core.messages import NO_STATISTICS, Order, Sums
from fedminmax.core.parity import LABELS

SINGLE_PRECISION = 2.0**-23


@dataclass(frozen=True, eq=False)
class Sender:
    """Who replies: its number, its rows by group, and what a row can do at the order's model.

    ``lengths`` are those of its rows, which limit sums over them. It ``is_total`` if it stands for
    several holders whose replies were added up before anybody saw them.
    """

    number: int
    counts: Tensor
    holders: int
    limits: RowLimits
    lengths: RowLengths
    is_total: bool = False

    @property
    def rows(self) -> int:
        """Rows of this holder, n_k."""
        return int(self.counts.sum())


@dataclass(frozen=True)
class OwnLoss:
    """A holder's own loss as the reply has it: its count, and the least and largest value."""

    count: int
    least: float
    most: float


@dataclass(frozen=True, eq=False)
class ToldCurvature:
    """Second derivatives by group [A, f, f] as the reply has them, and what their traces sum to.

    They must be positive semidefinite, and the traces sum to ``max_trace`` at most.
    """

    matrices: Tensor
    max_trace: float


@dataclass(frozen=True, eq=False)
class ExpectedReply:
    """What an honest reply has.

    Args:
        numbers: how many numbers the step has.
        scale: the scale, up to rounding.
        rows: how many rows group counts and losses are over, none of them counted twice.
        evaluations: gradient evaluations.
        reach: the step's length is at most this times the length of the sender's rows...
        fixed: ...plus this.
        is_limit: that is so for every table; else it is a yardstick, to compare senders by.
        curvature: the part of the scale that only shortens the step.
        own_loss: the holder's own loss, if the method asks for it.
        least, most: limits of each of the statistics.
        told_curvature: what the statistics say of second derivatives, if the method asks for them.
    """

    numbers: int
    scale: float
    rows: int
    evaluations: int
    reach: float = 0.0
    fixed: float = 0.0
    is_limit: bool = True
    curvature: float = 0.0
    own_loss: OwnLoss | None = None
    least: Tensor = NO_STATISTICS
    most: Tensor = NO_STATISTICS
    told_curvature: ToldCurvature | None = None


@dataclass(frozen=True)
class Path:
    """What local training can do: the slope of a row's loss on the way, and if it is a limit."""

    slope: float
    is_limit: bool


def path_of(sender: Sender, reply: Sums) -> Path:
    """Return the slope along local training.

    Known for a linear model and a loss of limited slope. Else it is a guess: that of the model
    which entered the round, or where that has no limit either, that of rows with the mean loss
    that the reply tells, and at least 1.
    """
    limits = sender.limits
    if math.isfinite(limits.slope):
        return Path(limits.slope, limits.at_every_model)
    told = int(reply.group_count.sum())
    mean_loss = float(reply.group_loss.sum()) / told if told else 0.0
    return Path(math.sqrt(limits.squared_slope_per_loss * max(mean_loss, 1.0)), is_limit=False)


def reach_of_batches(sizes: Iterable[int], rate: float) -> float:
    """Return the reach of steps on batches of which no two share a row, per unit of slope.

    Each step is ``rate`` times a mean over its batch, so each row counts rate / size:
    sqrt(sum over batches of size (rate / size)^2).
    """
    return rate * math.sqrt(math.fsum(1.0 / size for size in sizes))


def reach_of_one_batch(sender: Sender, reply: Sums, size: int) -> float:
    """Return the reach of the mean gradient of some rows at the order's model.

    Their losses sum to no more than those of all rows.
    """
    total = reply.group_loss.sum()
    slopes = sender.limits.squared_slopes(torch.tensor(size), total)
    return math.sqrt(float(slopes)) / size


def batch_sizes(rows: int, batch_size: int | None) -> list[int]:
    """Return the sizes of one epoch's batches; the last one may be smaller.

    >>> batch_sizes(250, 100)
    [100, 100, 50]
    """
    size = rows if batch_size is None else min(batch_size, rows)
    batches = batches_per_epoch(rows, batch_size)
    return [size] * (batches - 1) + [rows - size * (batches - 1)]


def expect_local_epochs(
    order: Order,
    sender: Sender,
    reply: Sums,
    plan: LocalEpochs,
    *,
    weight: float,
    row_weight: float = 1.0,
    slope_of_scores: float = 0.0,
) -> ExpectedReply:
    """Expect ``weight`` times the displacement by local epochs, and losses over all rows.

    ``row_weight`` is the largest weight of a row in its batch, ``slope_of_scores`` the largest
    factor of a row's score beside its loss.
    """
    path, rows = path_of(sender, reply), sender.rows
    per_epoch = reach_of_batches(batch_sizes(rows, plan.batch_size), plan.learning_rate)
    slope = row_weight * path.slope + slope_of_scores * sender.limits.score_slope
    return ExpectedReply(
        numbers=len(order.parameters),
        scale=weight,
        rows=rows,
        evaluations=rows * plan.epochs,
        reach=weight * plan.epochs * per_epoch * slope,
        fixed=weight
        * rounding_of_steps(order, plan.epochs * batches_per_epoch(rows, plan.batch_size)),
        is_limit=path.is_limit,
    )


def rounding_of_steps(order: Order, steps: int) -> float:
    """Return how far rounding alone moves a model in so many steps in single precision."""
    return SINGLE_PRECISION * steps * float(order.parameters.norm())


def with_numbers(vector: Tensor, numbers: int) -> Tensor:
    """Return the vector if it has so many numbers, else as many zeros.

    Limits are taken from it alone: a vector of another length is refused whatever they are.
    """
    return vector if len(vector) == numbers else vector.new_zeros(numbers)


def limits_by_cell(reply: Sums, sender: Sender) -> tuple[Tensor, Tensor]:
    """Return limits of sums by cell (label, group) over numbers in [0, 1], and of cells' counts.

    The counts of a group's cells sum to its rows.
    """
    numbers = 2 * LABELS * len(sender.counts)
    _, counts = with_numbers(reply.statistics[:numbers], numbers).view(2, LABELS, -1)
    rows = sender.counts.to(torch.float64)
    positive = counts[1].clamp(min=0.0).minimum(rows).round()
    cells = torch.stack([rows - positive, positive])
    least = torch.stack([torch.zeros_like(cells), cells])
    return least.flatten(), torch.stack([cells, cells]).flatten()


def layout_of(parameters: int, sender: Sender) -> LinearStructure | None:
    """Return the layout of a sender's linear model with so many numbers; None for a network."""
    if not sender.limits.at_every_model:
        return None
    classes = sender.limits.classes
    outputs, loss = max(classes, 1), "cross_entropy" if classes else "squared_error"
    return LinearStructure(outputs, parameters // outputs - 1, intercept=True, loss=loss)


def limits_of_curvature(
    structure: LinearStructure, sender: Sender, reply: Sums
) -> tuple[Tensor, ToldCurvature]:
    """Return the largest value of each curvature sum of a linear model, and the told matrices.

    Sums are over w x x' with |w| <= 2 for squared error and 1/4 for the others (p_c p_d, and for
    Brier 2 p_c p_d (p_c + p_d - |p|^2)), so none is above that times the squared length of the
    rows. The trace of a row's second derivatives in the outputs is 2, or at most 1 - |p|^2: for
    cross-entropy that is diag(p) - p p', for Brier 2 J J' with J = diag(p) - p p', whose
    eigenvalues are at most 1/2.
    """
    classes, squared_length = sender.limits.classes, sender.lengths.rows**2
    numbers = structure.curvature_numbers
    largest_weight, trace = (0.25, 1.0 - 1.0 / classes) if classes else (2.0, 2.0)
    most = torch.where(sender.counts > 0, largest_weight * squared_length, 0.0).double()
    packed = with_numbers(reply.statistics, len(sender.counts) * numbers).reshape(-1, numbers)
    told = ToldCurvature(structure.free_curvature(packed), trace * squared_length)
    return most.repeat_interleave(numbers), told
