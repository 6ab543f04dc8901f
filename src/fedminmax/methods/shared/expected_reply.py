"""What a server can expect of an honest reply, whatever the method: exact numbers, or limits.

Most numbers of a reply follow from the order, the sender's census and the reply's own losses. A
method may declare how; a reply that contradicts this must be wrong. One-step methods need no
declaration: their row weights determine everything. Of local work without one, shape, counts and
scale are expected.

The length of a step: if a step is sum_i c_i grad_i and |grad_i| <= s_i |x_i|, Cauchy and Schwarz
give |step| <= sqrt(sum_i c_i^2 s_i^2) sqrt(sum_i |x_i|^2). The first factor is ``reach``; the
second, the length of the sender's rows, is known from its summary.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fedminmax.core.bounds import RowLengths, RowLimits
from fedminmax.core.linear_structure import LinearStructure
from fedminmax.core.local_epochs import LocalEpochs, batches_per_epoch
from fedminmax.core.messages import NO_STATISTICS, Order, Reveals, Sums
from fedminmax.core.parity import LABELS
from fedminmax.methods.method import (
    AnyMethod,
    OneStepMethod,
    declares_replies,
    rate_of,
    sums_over_rows,
    takes_one_step,
)

SINGLE_PRECISION = 2.0**-23


@dataclass(frozen=True, eq=False)
class Sender:
    """The site that replies: its number, its rows by group, and a row's limits at the model.

    ``lengths`` are those of its rows, which limit sums over them. It ``is_total`` if it stands for
    several sites whose replies were added up before anybody saw them. ``group_curvature`` limits
    the second derivatives of each group's loss sum over the rows of all sites, if it is known.
    """

    number: int
    counts: Tensor
    _: KW_ONLY
    sites: int
    limits: RowLimits
    lengths: RowLengths
    is_total: bool = False
    group_curvature: Tensor | None = None

    @property
    def rows(self) -> int:
        """Rows of this site, n_k."""
        return int(self.counts.sum())


@dataclass(frozen=True)
class OwnLoss:
    """A site's own loss in its reply: the count, and the minimum and maximum value."""

    count: int
    lower: float
    upper: float


@dataclass(frozen=True, eq=False)
class ReportedCurvature:
    """Second derivatives by group [A, f, f] in a reply, and the limit of their traces.

    They must be positive semidefinite, and the traces must sum to at most ``max_trace``.
    """

    matrices: Tensor
    max_trace: float


@dataclass(frozen=True, eq=False)
class ExpectedReply:
    """The contents of an honest reply.

    Args:
        numbers: how many numbers the step has.
        scale: the scale, up to rounding.
        rows: how many rows group counts and losses cover, each counted once.
        evaluations: gradient evaluations.
        reach: the step's length is at most this times the length of the sender's rows...
        fixed: ...plus this.
        is_limit: whether that holds for every table; if not, it only serves to compare senders.
        curvature: the part of the scale that only shortens the step.
        own_loss: the site's own loss, if the method needs it.
        lower: the least that each of the statistics can be.
        upper: the most that each of the statistics can be.
        reported_curvature: second derivatives from the statistics, if the method needs them.
        adds_up: of local training, whether all of it also holds for replies of several sites that
            were added up, if the sender is their total.
        by_loss: whether a record's weight depends on its loss, so that the step is no gradient of
            the reported losses.
    """

    numbers: int
    scale: float
    _: KW_ONLY
    rows: int
    evaluations: int
    reach: float = 0.0
    fixed: float = 0.0
    is_limit: bool = True
    curvature: float = 0.0
    own_loss: OwnLoss | None = None
    lower: Tensor = NO_STATISTICS
    upper: Tensor = NO_STATISTICS
    reported_curvature: ReportedCurvature | None = None
    adds_up: bool = False
    by_loss: bool = False


@dataclass(frozen=True)
class Path:
    """The slope of a row's loss during local training, and whether it is a strict limit."""

    slope: float
    is_limit: bool


def path_of(sender: Sender, reply: Sums) -> Path:
    """Return the slope along local training.

    It is known for a linear model and a loss of limited slope. Otherwise it is an estimate: the
    slope at the model that entered the round, or, if that has no limit either, the slope of rows
    with the reply's mean loss, and at least 1.
    """
    limits = sender.limits
    if math.isfinite(limits.slope):
        return Path(limits.slope, limits.at_every_model)
    rows = int(reply.group_count.sum())
    mean_loss = float(reply.group_loss.sum()) / rows if rows else 0.0
    return Path(math.sqrt(limits.squared_slope_per_loss * max(mean_loss, 1.0)), is_limit=False)


def batches_reach(sizes: Iterable[int], rate: float) -> float:
    """Return the reach of steps on disjoint batches, per unit of slope.

    Each step is ``rate`` times a mean over its batch, so each row counts rate / size:
    sqrt(sum over batches of size (rate / size)^2).
    """
    return rate * math.sqrt(math.fsum(1.0 / size for size in sizes))


def one_batch_reach(sender: Sender, reply: Sums, size: int) -> float:
    """Return the reach of the mean gradient of some rows at the order's model.

    Their loss sum is at most that of all rows.
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


def reach_of_an_epoch(sender: Sender, plan: LocalEpochs) -> float:
    """Return the reach of one epoch's steps; of a total, n times it is that of n_k times each's.

    Site k's step times n_k is at most n_k sqrt(sum_i 1 / size_i) times the length of its rows.
    By Cauchy and Schwarz all of them together are at most the root of
    sum_k n_k^2 sum_i 1 / size_i times the length of all rows. Without batches the former is
    sum_k n_k = n; with batches of b rows, of which each site's last may have a single row, it is
    at most sum_k n_k^2 (n_k / b^2 + 1) <= n^2 (n / b^2 + 1).
    """
    rows, size = sender.rows, plan.batch_size
    if sender.is_total and size is not None and rows:
        return plan.learning_rate * math.sqrt(rows / min(size, rows) ** 2 + 1.0)
    return batches_reach(batch_sizes(rows, size), plan.learning_rate)


def expect_local_epochs(
    order: Order,
    sender: Sender,
    reply: Sums,
    plan: LocalEpochs,
    *,
    weight: float | None = None,
    row_weight: float = 1.0,
    slope_of_scores: float = 0.0,
) -> ExpectedReply:
    """Expect ``weight`` times the displacement by local epochs, and losses over all rows.

    The weight is n_k if none is given. ``row_weight`` is the largest weight of a row in its batch,
    ``slope_of_scores`` the largest factor of a row's score that is added to its loss.
    """
    path, rows = path_of(sender, reply), sender.rows
    weight = float(rows) if weight is None else weight
    per_epoch = reach_of_an_epoch(sender, plan)
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
        adds_up=weight == rows,
    )


def rounding_of_steps(order: Order, steps: int) -> float:
    """Return how far rounding alone can move a model in this many single-precision steps."""
    return SINGLE_PRECISION * steps * float(order.parameters.norm())


def with_numbers(vector: Tensor, numbers: int) -> Tensor:
    """Return the vector if it has this many numbers, else as many zeros.

    It is only used to compute limits; a vector of another length is refused anyway.
    """
    return vector if len(vector) == numbers else vector.new_zeros(numbers)


def limits_by_cell(reply: Sums, sender: Sender) -> tuple[Tensor, Tensor]:
    """Return limits of sums by cell (label, group) over values in [0, 1], and of the counts.

    The counts of a group's cells sum to its rows.
    """
    numbers = 2 * LABELS * len(sender.counts)
    _, counts = with_numbers(reply.statistics[:numbers], numbers).view(2, LABELS, -1)
    rows = sender.counts.to(torch.float64)
    positive = counts[1].clamp(min=0.0).minimum(rows).round()
    cells = torch.stack([rows - positive, positive])
    lower = torch.stack([torch.zeros_like(cells), cells])
    return lower.flatten(), torch.stack([cells, cells]).flatten()


def layout_of(parameters: int, sender: Sender) -> LinearStructure | None:
    """Return the layout of a sender's linear model of this size; None for a network."""
    if not sender.limits.at_every_model:
        return None
    classes = sender.limits.classes
    outputs, loss = max(classes, 1), "cross_entropy" if classes else "squared_error"
    columns, coded = parameters // outputs - 1, sender.limits.coded
    return LinearStructure(outputs, columns, intercept=True, loss=loss, coded=coded)


def curvature_limits(
    structure: LinearStructure, sender: Sender, reply: Sums
) -> tuple[Tensor, ReportedCurvature]:
    """Return the largest value of each curvature sum of a linear model, and the reported ones.

    Sums are over w x x' with |w| <= 2 for squared error and 1/4 for the others (p_c p_d, and for
    Brier 2 p_c p_d (p_c + p_d - |p|^2)), so none is above that times the squared length of the
    rows. The trace of a row's second derivatives in the outputs is 2, or at most 1 - |p|^2: for
    cross-entropy that is diag(p) - p p', for Brier 2 J J' with J = diag(p) - p p', whose
    eigenvalues are at most 1/2.
    """
    classes, squared_length = sender.limits.classes, sender.lengths.rows**2
    numbers = structure.curvature_numbers
    largest_weight, trace = (0.25, 1.0 - 1.0 / classes) if classes else (2.0, 2.0)
    upper = torch.where(sender.counts > 0, largest_weight * squared_length, 0.0).double()
    packed = with_numbers(reply.statistics, len(sender.counts) * numbers).reshape(-1, numbers)
    reported = ReportedCurvature(structure.free_curvature(packed), trace * squared_length)
    return upper.repeat_interleave(numbers), reported


def expected_reply(
    method: AnyMethod[Any], order: Order, sender: Sender, reply: Sums
) -> ExpectedReply:
    """Return what an honest sender with these losses replies."""
    if declares_replies(method):
        expected = method.expected(order, sender, reply)
        return replace(expected, adds_up=expected.adds_up or sums_over_rows(method))
    if takes_one_step(method):
        return _expected_of_one_step(method, order, sender, reply)
    return _expected_of_local_work(method, order, sender, reply)


def _expected_of_one_step(
    method: OneStepMethod[Any], order: Order, sender: Sender, reply: Sums
) -> ExpectedReply:
    """The step is eta sum_i c_i grad_i: the row weights determine everything."""
    row_weights = method.weigh(order, torch.tensor([sender.number]), sender.counts.unsqueeze(0))
    slopes = sender.limits.squared_slopes(sender.counts, reply.group_loss)
    return ExpectedReply(
        numbers=len(order.parameters),
        scale=float(row_weights.scale[0]),
        rows=sender.rows,
        evaluations=sender.rows,
        reach=rate_of(method)
        * math.sqrt(float(torch.dot(row_weights.coefficients[0] ** 2, slopes))),
        own_loss=_loss_of_all_rows(method, sender, reply),
        adds_up=True,
    )


def _expected_of_local_work(
    method: AnyMethod[Any], order: Order, sender: Sender, reply: Sums
) -> ExpectedReply:
    """Of work that the method does not describe: shape, counts and scale, n_k times a displacement.

    How long a step is depends on the work, so steps are only compared with each other, in units of
    FedAvg's with the method's epochs and batches, or of one step on all rows if it has none.
    """
    epochs, batch_size = getattr(method, "epochs", 1), getattr(method, "batch_size", None)
    plan = LocalEpochs(epochs, batch_size, rate_of(method))
    return replace(
        expect_local_epochs(order, sender, reply, plan),
        evaluations=reply.gradient_evaluations,
        is_limit=False,
        own_loss=_loss_of_all_rows(method, sender, reply),
    )


def _loss_of_all_rows(method: AnyMethod[Any], sender: Sender, reply: Sums) -> OwnLoss | None:
    """Return the sender's own loss, if the method needs it: the sum of its groups' losses."""
    total = float(reply.group_loss.sum())
    return OwnLoss(sender.rows, total, total) if method.reveals is Reveals.OWN_LOSS else None


@dataclass(frozen=True, eq=False)
class ReportedGradient:
    """The gradient of sum_i c_i loss_i over the sender's rows, c_i being their group's weight.

    Its length is at most ``reach`` times that of the rows.
    """

    weights: Tensor
    gradient: Tensor
    reach: float


def reported_gradients(
    method: AnyMethod[Any], order: Order, sender: Sender, reply: Sums, reach: float
) -> Iterator[ReportedGradient]:
    """Yield the gradients in a reply's step: of all rows, or of each group."""
    step = reply.step.double()
    if sums_over_rows(method):
        groups, gradients = len(sender.counts), step.reshape(-1, len(order.parameters))
        each = torch.eye(groups, dtype=torch.float64)
        if len(gradients) > groups:
            # Of other models than the order's: the groups' own.
            return
        weights = each if len(gradients) == groups else torch.ones_like(each[:1])
        for own_weights, gradient in zip(weights, gradients, strict=True):
            yield ReportedGradient(own_weights, gradient, reach)
    elif takes_one_step(method):
        row_weights = method.weigh(order, torch.tensor([sender.number]), sender.counts.unsqueeze(0))
        gradient = step / rate_of(method)
        if sender.limits.ridge:
            # The ridge's part is known, and not included in the losses.
            penalised = float(row_weights.coefficients[0] @ sender.counts.to(torch.float64))
            gradient = gradient - sender.limits.ridge * penalised * order.parameters.to(gradient)
        yield ReportedGradient(row_weights.coefficients[0], gradient, reach / rate_of(method))
