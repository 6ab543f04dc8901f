"""How masked answers are rounded: each site computes it from what all sites agreed on.

A layout follows from the plan, the encoding, the sizes and the order, all of which are in the hash
that masks are derived from; under a privacy guarantee it follows from the plan and the order. So
a server cannot choose how a site rounds, and a run that goes on asks with the same layout again.

Sizes are upper bounds on all sites' rows together, as powers of two: exponents need no more, and
sites learn no more of one another. A server that lies about them gets sums that are rounded
otherwise, at all sites alike, or learns how many sites have numbers above the bound. The exponents
of a round are those of the largest numbers that the sizes allow (``expected_reply``), with
headroom. Sums that have no such limit (losses on validation rows and scores, where a row's loss can
be any number) travel as exact fractions.

Under a privacy guarantee a site adds its share of the noise to its own sums before it masks them,
so that the total has the noise of all. There are two such answers: the census, once, and a round's
step and centred losses. Counts and scales do not travel with a round: they would be further
releases. Numbers are rounded to a grid that is GRID_BITS below the deviation of a site's noise or
finer, and sites take no other: rounding, and the word that a number does not fit, are about one
site's numbers, whose noise is only a share.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import ConfigDict, Field, with_config
from torch import Tensor

from fedminmax.config.schema import Schema
from fedminmax.core.additive.model import AdditiveModel, Pair
from fedminmax.core.additive.sums import curvature_places
from fedminmax.core.bounds import RowLengths, row_limits_at
from fedminmax.core.linear_structure import linear_structure_of
from fedminmax.core.losses import LOSSES_BY_NAME
from fedminmax.core.messages import Order, Sums, zero_sums
from fedminmax.core.privacy.mechanism import Mechanism
from fedminmax.core.task import Task
from fedminmax.data.tables.agree import Grids
from fedminmax.data.tables.encoding import Encoding
from fedminmax.methods.method import AnyMethod
from fedminmax.methods.shared.expected_reply import Sender, expected_reply
from fedminmax.methods.shared.look_ahead import LookAhead
from fedminmax.metrics.code_sums import code_shape
from fedminmax.metrics.sums import curves_length, metric_names
from fedminmax.network.secure.fixed_point import MAX_EXPONENT, Kind, Layout, Section, exponent_for
from fedminmax.network.wire.codec import RefusedError, record_from_bytes
from fedminmax.network.wire.plan import NetworkPlan, task_of
from fedminmax.network.wire.sections import MeasuredShape, categories_of, quantities_of, strata_of
from fedminmax.network.wire.values import COUNTS_PER_COLUMN
from fedminmax.training.certify import prover_for
from fedminmax.training.private import mechanism_of, packed_zeros, step_size_of

MAX_SIZES_BYTES = 200
# Most of what is sent for an additive model. Its numbers have a limit that no records exceed. With
# a byte less, rounding moved probabilities by 2e-8, in directions that only the ridge holds.
CURVATURE_BYTES = 7
# There are many counts of records by score, and 2^38 records are more than sites have.
CURVE_BYTES = 5
# 2^40 rows, and lengths beyond those of any numbers that training can use.
RowBits = Annotated[int, Field(ge=0, le=40)]
LengthBits = Annotated[int, Field(ge=0, le=400)]
# Of a site's noise, a step of the grid is at most 2^-GRID_BITS: rounding of K sites is then off by
# K 2^-25 of it. A site has room for 2^62 / K steps: for its noise and for millions of rows.
GRID_BITS = 24
# What a unit may add to a step. Beyond that single precision has too few digits, or none: rates and
# weights are the server's, and a sum that overflows would tell of single rows.
MIN_STEP, MAX_STEP = 1e-20, 1e20


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True)
class Sizes:
    """Exponents of two that are not below all sites' training rows, and their lengths."""

    rows: RowBits = 0
    length: LengthBits = 0
    target_length: LengthBits = 0

    @classmethod
    def of(cls, rows: int, lengths: RowLengths) -> "Sizes":
        """Return the sizes of this many rows of these lengths."""
        return cls(_bits(rows), _bits(lengths.rows), _bits(lengths.targets))

    @property
    def lengths(self) -> RowLengths:
        """The lengths that rows of all sites have at most."""
        return RowLengths(2.0**self.length, 2.0**self.target_length)


def _bits(size: float) -> int:
    return max(0, math.frexp(size)[1])


def sizes_from_bytes(message: object, sender: str) -> Sizes:
    """Read sizes."""
    what = "sizes of all sites' rows"
    sizes: Sizes = record_from_bytes(message, Sizes, MAX_SIZES_BYTES, sender, what)
    return sizes


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


def summary_layout(schema: Schema) -> Layout:
    """Return the sections of a summary of training rows."""
    quantities = len(quantities_of(schema))
    return Layout(
        (
            Section("rows", 1, Kind.COUNT),
            Section("quantity_rows", quantities, Kind.COUNT),
            Section("quantity_sums", 2 * quantities, Kind.EXACT),
            Section("categories", sum(categories_of(schema).values()), Kind.COUNT),
            Section("strata", len(strata_of(schema)), Kind.COUNT),
            Section("target_rows", 1, Kind.COUNT),
            Section("target_sums", 2, Kind.EXACT),
        )
    )


def cells_layout(grids: Grids) -> Layout:
    """Return the section of counts of values in cells."""
    return Layout((Section("counts", sum(grid.numbers for grid in grids), Kind.COUNT),))


def values_layout(schema: Schema) -> Layout:
    """Return the section of counts by bucket of the categories that have no list yet."""
    numbers = COUNTS_PER_COLUMN * len(schema.open_columns)
    return Layout((Section("counts", numbers, Kind.COUNT),))


@dataclass(frozen=True, eq=False)
class Layouts:
    """The layouts of a run's questions, once its encoding is agreed on."""

    plan: NetworkPlan
    encoding: Encoding
    sizes: Sizes

    @cached_property
    def task(self) -> Task:
        """The model at its start, and the loss."""
        return task_of(self.plan, self.encoding)

    @cached_property
    def _mechanism(self) -> Mechanism:
        return mechanism_of_plan(self.plan)

    @property
    def _groups(self) -> int:
        return len(self.encoding.groups)

    def counts(self) -> Layout:
        """Return the sections of row counts, with noise if the plan promises privacy."""
        if self.plan.privacy is None:
            numbers = self._groups * (2 if self.plan.validation else 1)
            return Layout((Section("counts", numbers, Kind.COUNT),))
        on_counts, on_moment = self._mechanism.census_deviations_at_site()
        moment = len(packed_zeros(linear_structure_of(self.task)))
        return Layout(
            (_noisy("counts", self._groups, on_counts), _noisy("moment", moment, on_moment))
        )

    def curvature(self) -> Layout:
        """Return the section of sums of x (x . v); |M v| is at most the trace of M."""
        numbers = self._groups * (len(self.encoding.names) + 1)
        largest, sites = self.sizes.lengths.rows**2, len(self.plan.sites)
        return Layout((_fixed("sums", numbers, largest, sites),))

    def round(self, method: AnyMethod[Any], order: Order) -> Layout:
        """Return the sections of a round's replies."""
        if self.plan.privacy is not None:
            return self._noisy_round(method, order)
        layout = self._replies(method, order)
        if self.plan.validation and order.phase == 0:
            return Layout(layout.sections + self.validation(order).sections)
        return layout

    def proof(self, order: Order) -> Layout:
        """Return the sections of sums for a proof."""
        prover = prover_for(linear_structure_of(self.task), self._groups)
        return reply_layout(prover, order, self._everyone(order), len(self.plan.sites))

    def smoothing(self, method: AnyMethod[Any], order: Order, pairs: Sequence[Pair]) -> Layout:
        """Return the sections of sums for an additive model's smoothing and pairs."""
        encoding = replace(self.encoding, pairs=tuple(pairs))
        length = math.sqrt(2**self.sizes.rows * (len(encoding.blocks) + 1.0))
        sizes = replace(self.sizes, length=_bits(length))
        return replace(self, encoding=encoding, sizes=sizes)._replies(method, order)

    def _replies(self, method: AnyMethod[Any], order: Order) -> Layout:
        """Return the sections of sums of the encoding's model."""
        curvature, most_slope = None, math.inf
        structure, model = linear_structure_of(self.task), self.task.model
        if structure is not None and isinstance(model, AdditiveModel):
            # One record adds at most this to any second derivative: a coordinate is at most 1.
            largest = (0.25 if structure.outputs > 1 else 2.0) * 2**self.sizes.rows
            if structure.outputs > 1 and isinstance(method, LookAhead):
                # Slopes of cross-entropy and Brier score are at most 1 in each output.
                most_slope = 2.0**self.sizes.rows
            places = curvature_places(model.design, self.encoding.pairs)
            curvature = Section(
                "statistics",
                structure.curvature_numbers,
                Kind.FIXED,
                exponent_for(largest, len(self.plan.sites), CURVATURE_BYTES, headroom=0),
                CURVATURE_BYTES,
                np.tile(places.numpy(), structure.blocks),
            )
        everyone = self._everyone(order)
        sites = len(self.plan.sites)
        return reply_layout(method, order, everyone, sites, curvature, most_slope)

    def validation(self, order: Order) -> Layout:
        """Return the sections of losses on validation rows."""
        per_row = self._everyone(order).limits.max_loss
        rows, groups = self._groups * 2**self.sizes.rows, self._groups
        return Layout(
            (
                self._fixed_or_exact("validation_loss", groups, per_row * rows),
                self._fixed_or_exact("validation_squares", groups, per_row**2 * rows),
                Section("validation_count", groups, Kind.COUNT),
            )
        )

    def measure(self, runs: int) -> Layout:
        """Return the sections of sums of the scores of this many runs' models."""
        shape = measured_shape(self.plan, self.encoding, runs)
        lines, scores, curves = shape.lines, shape.scores, shape.curves
        codes = {name: math.prod(own) for name, own in shape.codes.numbers.items()}
        largest, rows = 2.0 if self.encoding.outputs > 1 else math.inf, 2**self.sizes.rows
        return Layout(
            (
                Section("counts", lines, Kind.COUNT),
                self._fixed_or_exact("totals", lines * scores, largest * rows),
                self._fixed_or_exact("products", lines * scores**2, largest**2 * rows),
                Section("curves", lines * curves, Kind.COUNT, width=CURVE_BYTES),
                Section("code_counts", codes["code_counts"], Kind.COUNT, width=CURVE_BYTES),
                # Slopes of cross-entropy are at most 1, second derivatives at most 1/4 or 2.
                self._fixed_or_exact("code_slopes", codes["code_slopes"], 0.5 * largest * rows),
                self._fixed_or_exact("code_bends", codes["code_bends"], 2.0 * rows),
                self._fixed_or_exact("code_losses", codes["code_losses"], math.inf),
            )
        )

    def _noisy_round(self, method: AnyMethod[Any], order: Order) -> Layout:
        size = step_size_of(self._mechanism, method, order, self._groups)
        if size and not MIN_STEP <= size <= MAX_STEP:
            raise RefusedError(
                f"steps of up to {size:g} per row cannot be computed exactly; refused"
            )
        on_step, on_losses = self._mechanism.deviations_at_site(size)
        # A step is as long as that of a site with one row of each group.
        one_row_each = torch.ones(self._groups, dtype=torch.int64)
        limits = row_limits_at(self.task, order.parameters)
        sender = Sender(0, one_row_each, sites=1, limits=limits, lengths=RowLengths(1.0, 1.0))
        reply = _reply_with(sender, torch.zeros(self._groups, dtype=torch.float64))
        numbers = expected_reply(method, order, sender, reply).numbers
        return Layout((_noisy("step", numbers, on_step), _noisy("losses", self._groups, on_losses)))

    def _everyone(self, order: Order) -> Sender:
        """Return all sites as one sender, whose numbers are the largest that sizes allow."""
        rows = torch.full((self._groups,), 2**self.sizes.rows, dtype=torch.int64)
        limits, lengths = row_limits_at(self.task, order.parameters), self.sizes.lengths
        return Sender(0, rows, sites=1, limits=limits, lengths=lengths, is_total=True)

    def _fixed_or_exact(self, name: str, length: int, largest: float) -> Section:
        """Return a section of sums whose largest value may be unknown."""
        if math.isfinite(largest):
            return _fixed(name, length, largest, len(self.plan.sites))
        return Section(name, length, Kind.EXACT)


def reply_layout(
    method: AnyMethod[Any],
    order: Order,
    everyone: Sender,
    sites: int,
    curvature: Section | None = None,
    most_slope: float = math.inf,
) -> Layout:
    """Return the sections of replies to an order of all sites, who together are ``everyone``.

    Their losses are the largest that rows can have at the order's model. ``curvature`` is the
    section of an additive model's, if the order asks for it, and no sum of slopes is larger than
    ``most_slope``.
    """
    groups = len(everyone.counts)
    largest = _reply_with(
        everyone, everyone.limits.max_loss_sums(everyone.counts, everyone.lengths)
    )
    expected = expected_reply(method, order, everyone, largest)
    reach = expected.reach * everyone.lengths.rows if expected.reach else 0.0
    step = expected.fixed + min(reach, most_slope)
    limits = torch.cat([expected.lower.abs(), expected.upper.abs()])
    statistics = float(limits.max()) if len(limits) else 0.0
    own = _fixed("statistics", len(expected.lower), statistics, sites)
    if curvature is not None and expected.reported_curvature is not None:
        own = curvature
    scales = max(abs(expected.scale), abs(expected.curvature))
    return Layout(
        (
            _fixed("step", expected.numbers, step, sites),
            _fixed("scales", 2, scales, sites),
            _fixed("group_loss", groups, float(largest.group_loss.max()), sites),
            Section("group_count", groups, Kind.COUNT),
            # The losses of single sites are not part of any total.
            Section("site_loss", 0, Kind.FIXED),
            Section("site_count", 0, Kind.COUNT),
            own,
            Section("evaluations", 1, Kind.COUNT),
        )
    )


def _fixed(name: str, length: int, largest: float, sites: int) -> Section:
    """Return a section of numbers up to about ``largest``."""
    return Section(name, length, Kind.FIXED, exponent_for(largest, sites))


def _reply_with(sender: Sender, losses: Tensor) -> Sums:
    """Return a reply with these losses of all rows of the sender."""
    return replace(
        zero_sums(0, len(sender.counts), 0), group_loss=losses, group_count=sender.counts
    )


def _noisy(name: str, length: int, deviation: float) -> Section:
    """Return a section whose grid is the coarsest that is fine enough for this noise."""
    if deviation == 0.0:
        # Only if the order gives every row the weight 0: all numbers are 0, too.
        return Section(name, length, Kind.FIXED)
    bits = GRID_BITS - (math.frexp(deviation)[1] - 1)
    if abs(bits) > MAX_EXPONENT:
        raise RefusedError(f"noise of deviation {deviation:g} on {name} cannot be sent; refused")
    return Section(name, length, Kind.FIXED, bits)


def measured_shape(plan: NetworkPlan, encoding: Encoding, models: int) -> MeasuredShape:
    """Return the shape of sums of so many models.

    Groups within a merged one have lines of their own. Models are compared with what the training
    rows of groups ask for if each is a run's, not a point of a frontier.
    """
    lines, names = len(encoding.groups) + len(encoding.merged_groups), metric_names(encoding)
    told = models if models == len(plan.runs) and plan.privacy is None else 0
    models = len(plan.audit) or models
    return MeasuredShape(
        lines,
        models * 2 * len(names),
        curves_length(names, models),
        code_shape(encoding, told),
    )
