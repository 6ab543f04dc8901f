"""All sites as one holder: what is known of all their rows, and the layouts of their answers.

A layout follows from the order, the census and the lengths of the rows alone, or under a promise
of privacy from the plan and the order: a run that goes on asks with the same one again.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fedminmax.core.bounds import UNKNOWN_LENGTHS, RowLengths, row_limits
from fedminmax.core.linear_structure import linear_structure_of
from fedminmax.core.messages import Order
from fedminmax.core.privacy.mechanism import whole_counts
from fedminmax.core.task import Task
from fedminmax.data.tables.encoding import Encoding, row_lengths
from fedminmax.federation.certify import prover_for
from fedminmax.federation.secure.answers import (
    counts_layout,
    curvature_layout,
    losses_layout,
    reply_layout,
    scores_layout,
)
from fedminmax.federation.secure.fixed_point import Layout
from fedminmax.federation.secure.noisy_answers import (
    census_layout,
    empty_census,
    mechanism_of_plan,
    round_layout,
)
from fedminmax.federation.wire.messages import vector_from_bytes
from fedminmax.federation.wire.plan import ALL_SITES, NetworkPlan, task_of
from fedminmax.federation.wire.summary import summary_from_bytes
from fedminmax.methods.shared.expected_reply import Sender
from fedminmax.metrics.score_rows import metric_names

# A square of two scores, each of which is a quantity that nobody knows the size of.
LARGEST_SCORE_OF_A_QUANTITY = 2.0**10


@dataclass(frozen=True, eq=False)
class Everyone:
    """What is known of all rows once they are encoded; the learning rate may still be open."""

    plan: NetworkPlan
    encoding: Encoding
    _: KW_ONLY
    task: Task
    lengths: RowLengths
    counts: Tensor
    validation_rows: Tensor

    @property
    def _sites(self) -> int:
        return len(self.plan.sites)

    def curvature_layout(self) -> Layout:
        """Return the sections of sums along directions."""
        numbers = len(self.encoding.groups) * (len(self.encoding.names) + 1)
        return curvature_layout(numbers, self.lengths.rows**2, self._sites)

    def round_layout(self, endpoint: str, run: int, order: Order) -> Layout:
        """Return the sections of answers about a model: a round, a proof, or validation losses."""
        task, groups, set_aside = self.task, len(self.encoding.groups), self.validation_rows
        if self.plan.privacy is not None:
            method: Any = self.plan.runs[run].build()
            return round_layout(mechanism_of_plan(self.plan), method, order, task, groups)
        layers = [layer for layer in task.model.modules() if isinstance(layer, nn.Linear)]
        limits = row_limits(layers, order.parameters, task.loss, task.ridge)
        sender = Sender(
            0, self.counts, holders=1, limits=limits, lengths=self.lengths, is_total=True
        )
        if endpoint == "validate":
            return losses_layout(sender, set_aside, self._sites)
        if endpoint == "certify":
            method = prover_for(linear_structure_of(task), groups)
        else:
            method = self.plan.runs[run].build()
        if order.phase or endpoint == "certify":
            set_aside = set_aside[:0]
        return reply_layout(method, order, sender, set_aside, self._sites)

    @property
    def score_lines(self) -> int:
        """How many groups have scores of their own, those within a merged one included."""
        return len(self.encoding.groups) + len(self.encoding.merged_groups)

    def scores(self, runs: int) -> int:
        """Return how many scores a row has for the models of this many runs."""
        return runs * 2 * len(metric_names(self.encoding))

    def scores_layout(self, runs: int) -> Layout:
        """Return the sections of sums of scores."""
        largest = 2.0 if self.encoding.outputs > 1 else LARGEST_SCORE_OF_A_QUANTITY
        rows = int(self.counts.sum())
        return scores_layout(self.score_lines, self.scores(runs), largest, rows, self._sites)


def layout_of_counts(plan: NetworkPlan, encoding: Encoding) -> Layout:
    """Return the sections of row counts, with noise if the plan promises privacy."""
    groups = len(encoding.groups)
    if plan.privacy is None:
        return counts_layout(groups * (2 if plan.validation else 1))
    linear = linear_structure_of(task_of(plan, encoding))
    return census_layout(mechanism_of_plan(plan), groups, linear)


def everyone_of(plan: NetworkPlan, encoding: Encoding, counts: bytes, summary: bytes) -> Everyone:
    """Return what is known of all rows from the totals of their counts and their summaries."""
    groups, task, lengths = len(encoding.groups), task_of(plan, encoding), UNKNOWN_LENGTHS
    if plan.privacy is not None:
        vector = vector_from_bytes(counts, empty_census(plan, encoding), ALL_SITES)
        rows, set_aside = whole_counts(vector[:groups]), torch.zeros(0, dtype=torch.int64)
    else:
        like = torch.zeros(groups * (2 if plan.validation else 1), dtype=torch.int64)
        vector = vector_from_bytes(counts, like, ALL_SITES)
        rows, set_aside = vector[:groups], vector[groups:]
        lengths = row_lengths(summary_from_bytes(summary, plan.schema, ALL_SITES), encoding)
    return Everyone(
        plan, encoding, task=task, lengths=lengths, counts=rows, validation_rows=set_aside
    )
