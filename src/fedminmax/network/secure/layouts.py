"""How masked answers are rounded: each site computes it from what all sites agreed on.

A layout follows from the plan, the encoding, the sizes and the order, all of which are in the hash
that masks are derived from; under a privacy guarantee it follows from the plan and the order. So
a server cannot choose how a site rounds, and a run that goes on asks with the same layout again.

Sizes are upper bounds on all sites' rows together, as powers of two: exponents need no more, and
sites learn no more of one another. A server that lies about them gets sums that are rounded
otherwise, at all sites alike, or learns how many sites have numbers above the bound.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

import torch
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config
from torch import nn

from fedminmax.core.bounds import RowLengths, row_limits
from fedminmax.core.linear_structure import linear_structure_of
from fedminmax.core.messages import Order
from fedminmax.core.privacy.mechanism import Mechanism
from fedminmax.core.task import Task
from fedminmax.data.tables.encoding import Encoding
from fedminmax.methods.method import AnyMethod
from fedminmax.methods.shared.expected_reply import Sender
from fedminmax.metrics.score_rows import metric_names
from fedminmax.network.secure.answers import (
    counts_layout,
    curvature_layout,
    losses_layout,
    reply_layout,
    scores_layout,
)
from fedminmax.network.secure.fixed_point import Layout
from fedminmax.network.secure.noisy_answers import census_layout, mechanism_of_plan, round_layout
from fedminmax.network.wire.codec import RefusedError, checked_bytes
from fedminmax.network.wire.plan import NetworkPlan, task_of
from fedminmax.training.certify import prover_for

MAX_SIZES_BYTES = 200
# 2^40 rows, and lengths beyond those of any numbers that training can use.
RowBits = Annotated[int, Field(ge=0, le=40)]
LengthBits = Annotated[int, Field(ge=0, le=400)]


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


SIZES = TypeAdapter(Sizes)


def sizes_to_bytes(sizes: Sizes) -> bytes:
    """Write sizes as JSON."""
    return SIZES.dump_json(sizes)


def sizes_from_bytes(message: object, sender: str) -> Sizes:
    """Read sizes."""
    content = checked_bytes(message, MAX_SIZES_BYTES, sender)
    try:
        return SIZES.validate_json(content)
    except ValidationError as error:
        raise RefusedError(f"{sender} sent no sizes of all sites' rows; refused") from error


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

    @property
    def _sites(self) -> int:
        return len(self.plan.sites)

    def counts(self) -> Layout:
        """Return the sections of row counts, with noise if the plan promises privacy."""
        if self.plan.privacy is None:
            return counts_layout(self._groups * (2 if self.plan.validation else 1))
        return census_layout(self._mechanism, self._groups, linear_structure_of(self.task))

    def curvature(self) -> Layout:
        """Return the sections of sums along directions."""
        numbers = self._groups * (len(self.encoding.names) + 1)
        return curvature_layout(numbers, self.sizes.lengths.rows**2, self._sites)

    def round(self, method: AnyMethod[Any], order: Order) -> Layout:
        """Return the sections of a round's replies."""
        if self.plan.privacy is not None:
            return round_layout(self._mechanism, method, order, self.task, self._groups)
        validates = self.plan.validation > 0 and order.phase == 0
        set_aside = self._rows() if validates else self._rows()[:0]
        return reply_layout(method, order, self._everyone(order), set_aside, self._sites)

    def proof(self, order: Order) -> Layout:
        """Return the sections of sums for a proof."""
        prover = prover_for(linear_structure_of(self.task), self._groups)
        everyone = self._everyone(order)
        return reply_layout(prover, order, everyone, self._rows()[:0], self._sites)

    def validation(self, order: Order) -> Layout:
        """Return the sections of losses on validation rows."""
        return losses_layout(self._everyone(order), self._rows(), self._sites)

    def measure(self, runs: int) -> Layout:
        """Return the sections of sums of the scores of this many runs' models."""
        classifies = self.encoding.outputs > 1
        largest, rows = 2.0 if classifies else math.inf, 2**self.sizes.rows
        return scores_layout(self.score_lines, self.scores(runs), largest, rows, self._sites)

    @property
    def score_lines(self) -> int:
        """How many groups have scores of their own, those within a merged one included."""
        return self._groups + len(self.encoding.merged_groups)

    def scores(self, runs: int) -> int:
        """Return how many scores a row has for the models of this many runs."""
        return runs * 2 * len(metric_names(self.encoding))

    def _rows(self) -> torch.Tensor:
        """Return the most rows that each group can have."""
        return torch.full((self._groups,), 2**self.sizes.rows, dtype=torch.int64)

    def _everyone(self, order: Order) -> Sender:
        """Return all sites as one sender, whose numbers are the largest that sizes allow."""
        layers = [layer for layer in self.task.model.modules() if isinstance(layer, nn.Linear)]
        limits = row_limits(layers, order.parameters, self.task.loss, self.task.ridge)
        lengths = self.sizes.lengths
        return Sender(0, self._rows(), sites=1, limits=limits, lengths=lengths, is_total=True)
