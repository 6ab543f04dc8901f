"""Plausibility checks of a site's reply: every number must be one that an honest site can send.

The limits follow from the order, the site's census and the lengths of its rows: exact values for
counts and scales, limits for losses and steps (``expected_reply``, ``core.bounds``). They hold for
every table, so no honest reply is refused. Only the length of a step by local training has no limit
if the model is a network or the slope of the loss is unbounded; then sites are compared with each
other, relative to the length expected of each. A refused reply is skipped in its round, and the
site's name and the reason are logged. A plausible lie passes.
"""

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fedminmax.core.bounds import LOSS_ROUNDING, RowLengths, RowLimits
from fedminmax.core.messages import Order, Sums
from fedminmax.core.text import counted
from fedminmax.core.validation import LossSums
from fedminmax.methods.method import AnyMethod
from fedminmax.methods.shared.expected_reply import (
    ExpectedReply,
    OwnLoss,
    ReportedCurvature,
    ReportedGradient,
    Sender,
    expected_reply,
    reported_gradients,
)
from fedminmax.network.wire.codec import RefusedError, check_finite

MIN_TO_COMPARE = 3
# Margins for rounding in single precision: of exact values, and of limits.
ROUNDING = 1e-4
LIMIT_ROUNDING = 1e-2
# Curvature is summed in double precision: shares of its trace, and of the largest possible one.
CURVATURE_ROUNDING = 1e-9
CERTAIN_ROUNDING = 1e-12


@dataclass(frozen=True)
class StepLength:
    """A step's length relative to the expected length, and whether that is a strict limit."""

    length: float
    is_limited: bool


@dataclass(frozen=True, eq=False)
class ReportedLosses:
    """The loss sums by group that a sender reported for a model."""

    parameters: Tensor
    losses: Tensor


def check_losses(reply: Sums, sender: Sender, site: str) -> None:
    """Refuse numbers that are not finite, and losses that the sender's rows cannot have."""
    for name in ("step", "group_loss", "site_loss", "statistics"):
        check_finite(getattr(reply, name), name, site)
    if not (math.isfinite(reply.scale) and math.isfinite(reply.curvature)):
        raise RefusedError(f"{site} sent a scale with NaN or infinity; refused")
    _check_losses(reply, sender, site)


def check_validation(losses: LossSums, counts: Tensor, limits: RowLimits, site: str) -> None:
    """Refuse impossible losses on validation rows at the order's model.

    Losses are not negative, so the sum of squares is at most the square of the sum, and n times it
    at least that square. Lengths of validation rows are unknown, so only a loss with a limit for
    every row is limited here.
    """
    for name in ("loss", "squares"):
        check_finite(getattr(losses, name), f"validation {name}", site)
    if losses.count.tolist() != counts.tolist():
        raise RefusedError(
            f"{site} counts other validation rows than it reported before the first round; refused"
        )
    reported = zip(losses.loss.tolist(), losses.squares.tolist(), counts.tolist(), strict=True)
    for loss, squares, count in reported:
        room = ROUNDING * (loss * loss + squares) + LOSS_ROUNDING * count
        possible = loss * loss <= count * squares + room and squares <= loss * loss + room
        # A limit without end times no rows would be no number.
        most = limits.max_loss * count if count else 0.0
        if not possible or not -LOSS_ROUNDING * count <= loss <= most + room:
            raise RefusedError(
                f"{site} sent a loss of {loss:g} over {count:,} validation rows, which they cannot "
                "have; refused"
            )


def check_reply(
    method: AnyMethod[Any],
    order: Order,
    sender: Sender,
    reply: Sums,
    *,
    site: str,
    before: ReportedLosses | None = None,
    is_partial: bool = False,
) -> StepLength:
    """Refuse an impossible reply of this sender, and return how long its step is.

    ``before`` is its report of an earlier round. A total that ``is_partial`` is over some of the
    sites: it says itself over how many rows.
    """
    check_losses(reply, sender, site)
    if is_partial:
        sender = replace(sender, counts=reply.group_count)
    expected = expected_reply(method, order, sender, reply)
    if sender.is_total and not expected.adds_up:
        expected = _of_local_training(expected, sender, reply)
    _check_numbers(reply, expected, site)
    _check_own_loss(reply, sender, expected.own_loss, site)
    _check_curvature(expected.reported_curvature, site)
    length = _check_step(reply, expected, sender.lengths, site)
    if before is not None and sender.limits.at_every_model and not expected.by_loss:
        for reported in reported_gradients(method, order, sender, reply, expected.reach):
            _check_slope(reported, order, sender, reply, before=before, site=site)
    return length


def _of_local_training(expected: ExpectedReply, sender: Sender, reply: Sums) -> ExpectedReply:
    """Return what is still known of a total of local training, which is not that of one site.

    Sums over rows are: all rows could be one site's. But what local steps do depends on who
    trains on which rows, so evaluations and limits do not follow from totals, nor do scales other
    than the number of rows.
    """
    return replace(
        expected,
        scale=expected.scale if expected.scale == sender.rows else reply.scale,
        curvature=reply.curvature,
        evaluations=reply.gradient_evaluations,
        is_limit=False,
    )


def _check_slope(
    reported: ReportedGradient,
    order: Order,
    sender: Sender,
    reply: Sums,
    *,
    before: ReportedLosses,
    site: str,
) -> None:
    """Refuse a gradient that does not fit how the sender's own losses changed.

    With F = sum_i c_i loss_i, whose gradient is reported, and a linear model that moved by d:
    |F(theta - d) - F(theta) + <grad F, d>| <= (curvature / 2) max c |d|^2 sum_i |x_i|^2
    (Taylor's theorem), which holds for every table. If the largest second derivative H_a of each
    group's loss sum is known, it is also at most (1 / 2) |d|^2 sum_a c_a H_a, which is far less for
    a small group with a large weight. Rows of one site have no larger ones than those of all.
    """
    weights = reported.weights.abs()
    moved = (order.parameters - before.parameters).to("cpu", torch.float64)
    distance = math.sqrt(float(torch.dot(moved, moved)))
    change = float(torch.dot(reported.weights, reply.group_loss - before.losses))
    off = abs(change - float(torch.dot(reported.gradient, moved)))
    spread = (distance * sender.lengths.rows) ** 2
    curved = 0.5 * sender.limits.curvature * float(weights.max()) * spread
    if sender.group_curvature is not None:
        by_group = float(torch.dot(weights.double(), sender.group_curvature))
        curved = min(curved, 0.5 * distance**2 * by_group)
    rows = torch.dot(weights, sender.counts.to(torch.float64))
    steepest = reported.reach * sender.lengths.rows
    rounding = 2.0 * LOSS_ROUNDING * float(rows)
    rounding += ROUNDING * (abs(change) + steepest * distance)
    if off > curved * (1.0 + LIMIT_ROUNDING) + rounding:
        raise RefusedError(
            f"{site} sent a step that does not fit how its own losses changed since its last "
            "reply; refused"
        )


def _check_losses(reply: Sums, sender: Sender, site: str) -> None:
    """Refuse counts above the census, and impossible losses at the order's model."""
    # Plain numbers: there are few groups, and every tensor operation has an overhead.
    counts, losses = reply.group_count.tolist(), reply.group_loss.tolist()
    for count, known, loss in zip(counts, sender.counts.tolist(), losses, strict=True):
        if count < 0:
            raise RefusedError(f"{site} sent a negative count of rows of a group; refused")
        if count > known:
            raise RefusedError(
                f"{site} counts {counted(count, 'row')} of a group, but its census has "
                f"{known:,}; refused"
            )
        if count == 0 and loss != 0:
            raise RefusedError(f"{site} sent a loss for a group that it counts no rows of; refused")
        if loss < -LOSS_ROUNDING * count:
            raise RefusedError(f"{site} sent a negative loss ({loss:g}); refused")
    counts, losses = [*counts, sum(counts)], [*losses, math.fsum(losses)]
    limits = sender.limits.max_loss_sums(torch.tensor(counts), sender.lengths).tolist()
    for count, loss, limit in zip(counts, losses, limits, strict=True):
        if loss > limit * (1.0 + ROUNDING) + LOSS_ROUNDING * count:
            raise RefusedError(
                f"{site} sent a loss of {loss:g} over {counted(count, 'row')}, which is at most "
                f"{limit:g} at this model; refused"
            )


def _check_numbers(reply: Sums, expected: ExpectedReply, site: str) -> None:
    """Refuse other lengths, counts, scales and statistics than the order asks for."""
    if len(reply.step) != expected.numbers or len(reply.statistics) != len(expected.lower):
        raise RefusedError(
            f"{site} sent a step of {len(reply.step):,} and {len(reply.statistics):,} further "
            f"numbers, expected {expected.numbers:,} and {len(expected.lower):,}; refused"
        )
    rows = int(reply.group_count.sum())
    if rows != expected.rows:
        raise RefusedError(
            f"{site} counts {counted(rows, 'row')} in this round, but its census has "
            f"{expected.rows:,}; refused"
        )
    for name in ("scale", "curvature"):
        came, right = getattr(reply, name), getattr(expected, name)
        if not abs(came - right) <= ROUNDING * abs(expected.scale):
            raise RefusedError(f"{site} sent a {name} of {came:g}, expected {right:g}; refused")
    if reply.gradient_evaluations != expected.evaluations:
        raise RefusedError(
            f"{site} counts {reply.gradient_evaluations:,} gradient evaluations, expected "
            f"{expected.evaluations:,}; refused"
        )
    room = ROUNDING * (1.0 + expected.upper.abs())
    if bool(
        (
            (reply.statistics < expected.lower - room) | (reply.statistics > expected.upper + room)
        ).any()
    ):
        raise RefusedError(f"{site} sent statistics that its rows cannot have; refused")


def _check_curvature(reported: ReportedCurvature | None, site: str) -> None:
    """Refuse second derivatives that are not positive semidefinite, or too large for the rows."""
    if reported is None:
        return
    traces = reported.matrices.diagonal(dim1=1, dim2=2).sum(dim=1)
    if float(traces.sum()) > reported.max_trace * (1.0 + LIMIT_ROUNDING):
        raise RefusedError(
            f"{site} sent a total curvature of {float(traces.sum()):g}, which is at most "
            f"{reported.max_trace:g} with its rows; refused"
        )
    # For rows whose class is certain, only rounding is left.
    least = CERTAIN_ROUNDING * (reported.max_trace if math.isfinite(reported.max_trace) else 1.0)
    room = CURVATURE_ROUNDING * traces.abs() + least
    lifted = reported.matrices + torch.diag_embed(room[:, None].expand(reported.matrices.shape[:2]))
    if bool(torch.linalg.cholesky_ex(lifted).info.any()):
        raise RefusedError(f"{site} sent curvature that is not positive semidefinite; refused")


def _check_own_loss(reply: Sums, sender: Sender, own: OwnLoss | None, site: str) -> None:
    """Refuse a loss of another site, and an own loss that the groups' losses do not give."""
    sites = sender.sites if own else 0
    if len(reply.site_loss) != sites or len(reply.site_count) != sites:
        raise RefusedError(
            f"{site} sent losses of {len(reply.site_loss)} sites, expected {sites}; refused"
        )
    if own is None:
        return
    others = torch.arange(sites) != sender.number
    if bool(reply.site_loss[others].any()) or bool(reply.site_count[others].any()):
        raise RefusedError(f"{site} sent a loss for another site; refused")
    count, loss = int(reply.site_count[sender.number]), float(reply.site_loss[sender.number])
    room = ROUNDING * (abs(own.upper) + own.count * LOSS_ROUNDING)
    if count != own.count or not own.lower - room <= loss <= own.upper + room:
        raise RefusedError(
            f"{site} sent an own loss of {loss:g} over {count:,}, which its groups' losses do not "
            "give; refused"
        )


def _check_step(reply: Sums, expected: ExpectedReply, lengths: RowLengths, site: str) -> StepLength:
    step = reply.step.double()
    length = math.sqrt(float(torch.dot(step, step)))
    unit = expected.fixed + (expected.reach * lengths.rows if expected.reach > 0 else 0.0)
    if expected.is_limit and length > unit * (1.0 + LIMIT_ROUNDING):
        raise RefusedError(
            f"{site} sent a step of length {length:g}, which is at most {unit:g} with its rows "
            "and this model; refused"
        )
    return StepLength(length / unit if unit > 0 else 0.0, expected.is_limit)


def too_large(steps: Mapping[str, StepLength], ratio: float) -> dict[str, str]:
    """Return the sites whose step is too long compared with the others', each with a reason.

    A step within its expected length never is, and one with a known limit was checked before.
    """
    found = {}
    for site, step in steps.items():
        others = [other.length for name, other in steps.items() if name != site]
        usual = statistics.median(others) if len(steps) >= MIN_TO_COMPARE else 1.0
        if not step.is_limited and step.length > max(ratio * usual, 1.0):
            found[site] = (
                f"{site} sent a step {step.length / usual if usual else math.inf:,.0f} times as "
                f"long as the others', at most {ratio:,.0f} times is allowed; refused"
            )
    return found
