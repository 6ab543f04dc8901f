"""The sections of masked answers with noise, under a privacy guarantee (see ``core.privacy``).

A site adds its share of the noise to its own sums before it masks them, so that the total has the
noise of all. There are two such answers: the census, once, and a round's step and centred losses.
Counts and scales do not travel with a round: they would be further releases.

Numbers are rounded to a grid that is FINENESS bits below the deviation of a site's noise or finer,
and sites take no other: rounding, and the word that a number does not fit, are about one site's
numbers, whose noise is only a share. The grid follows from the order and the plan alone.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from fedminmax.core.bounds import RowLengths, row_limits
from fedminmax.core.linear_structure import LinearStructure, linear_structure_of
from fedminmax.core.losses import LOSSES_BY_NAME
from fedminmax.core.messages import Order, Sums, zero_sums
from fedminmax.core.privacy.mechanism import Mechanism
from fedminmax.core.task import Task
from fedminmax.data.tables.encoding import Encoding
from fedminmax.methods.method import AnyMethod
from fedminmax.methods.shared.expected_reply import Sender
from fedminmax.network.secure.answers import Values
from fedminmax.network.secure.fixed_point import (
    MAX_EXPONENT,
    Kind,
    Layout,
    Section,
)
from fedminmax.network.wire.checks import expected_reply
from fedminmax.network.wire.codec import RefusedError
from fedminmax.network.wire.plan import NetworkPlan, task_of
from fedminmax.training.private import mechanism_of, packed_zeros, step_size_of

# Of a site's noise, a step of the grid is at most 2^-FINENESS: rounding of K sites is then off by
# K 2^-25 of it. A site has room for 2^62 / K steps: for its noise and for millions of rows.
FINENESS = 24
# What a unit may add to a step. Beyond that single precision has too few digits, or none: rates and
# weights are the server's, and a sum that overflows would tell of single rows.
MIN_STEP, MAX_STEP = 1e-20, 1e20


def mechanism_of_plan(plan: NetworkPlan, key: bytes = b"") -> Mechanism:
    """Return the noise of a plan that promises privacy: sites and server compute it themselves."""
    if plan.privacy is None:
        raise RefusedError("the plan promises no privacy")
    return mechanism_of(
        plan.privacy,
        LOSSES_BY_NAME[plan.model.loss],
        classes=len(plan.schema.target.classes),
        sites=len(plan.sites),
        key=key,
    )


def census_layout(mechanism: Mechanism, groups: int, linear: LinearStructure | None) -> Layout:
    """Return the sections of rows by group and, for a linear model, of the packed sum of x x'."""
    on_counts, on_moment = mechanism.census_deviations_at_site()
    return Layout(
        (
            _section("counts", groups, on_counts),
            _section("moment", len(packed_zeros(linear)), on_moment),
        )
    )


def empty_census(plan: NetworkPlan, encoding: Encoding) -> Tensor:
    """Return zeros in place of rows by group and the packed sum of x x'."""
    lower = packed_zeros(linear_structure_of(task_of(plan, encoding)))
    return torch.cat([torch.zeros(len(encoding.groups), dtype=torch.float64), lower])


def round_layout(
    mechanism: Mechanism, method: AnyMethod[Any], order: Order, task: Task, groups: int
) -> Layout:
    """Return the sections of a round."""
    size = step_size_of(mechanism, method, order, groups)
    if size and not MIN_STEP <= size <= MAX_STEP:
        raise RefusedError(f"steps of up to {size:g} per row cannot be computed exactly; refused")
    on_step, on_losses = mechanism.deviations_at_site(size)
    numbers = _step_numbers(method, order, task, groups)
    return Layout((_section("step", numbers, on_step), _section("losses", groups, on_losses)))


def _step_numbers(method: AnyMethod[Any], order: Order, task: Task, groups: int) -> int:
    """Return how long a step is: that of a site with one row of each group."""
    layers = [layer for layer in task.model.modules() if isinstance(layer, nn.Linear)]
    limits = row_limits(layers, order.parameters, task.loss, task.ridge)
    counts = torch.ones(groups, dtype=torch.int64)
    sender = Sender(0, counts, sites=1, limits=limits, lengths=RowLengths(1.0, 1.0))
    reply = replace(zero_sums(0, groups, 0), group_count=counts)
    return expected_reply(method, order, sender, reply).numbers


def census_values(counts: Tensor, lower: Tensor) -> Values:
    """Return a noisy census as sections."""
    return {"counts": counts.numpy(), "moment": lower.numpy()}


def round_values(step: Tensor, losses: Tensor) -> Values:
    """Return a round's noisy sums as sections."""
    return {"step": step.numpy(), "losses": losses.numpy()}


def noisy_reply_of(values: Mapping[str, Any]) -> Sums:
    """Return a round's noisy sums; the server has yet to complete them."""
    losses = torch.from_numpy(values["losses"])
    return replace(
        zero_sums(0, len(losses), 0), step=torch.from_numpy(values["step"]), group_loss=losses
    )


def _section(name: str, length: int, deviation: float) -> Section:
    """Return a section whose grid is the coarsest that is fine enough for this noise."""
    if deviation == 0.0:
        # Only if the order gives every row the weight 0: all numbers are 0, too.
        return Section(name, length, Kind.FIXED)
    bits = FINENESS - (math.frexp(deviation)[1] - 1)
    if abs(bits) > MAX_EXPONENT:
        raise RefusedError(f"noise of deviation {deviation:g} on {name} cannot be sent; refused")
    return Section(name, length, Kind.FIXED, bits)
