"""How sites agree on an additive model: on bins of number columns, then on smoothing and pairs.

Bins come from counts in cells, refined where many rows are; smoothing and pairs from rounds of the
plain mean fit. The totals are those of the pooled rows, and so are the bins
(``data.tables.agree.bin_rounds``) and the choices (``training.additive_class``). A site whose
counts contradict its summary, or what it counted before, is refused, and its counts are in no
total. Masked, nobody may be missing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedminmax.config.planned_runs import needs_learning_rate
from fedminmax.config.schema import Schema
from fedminmax.core.additive.model import AdditiveModel, Pair
from fedminmax.core.bounds import rate_for_eigenvalue, rounded_rate
from fedminmax.core.linear_structure import linear_structure_of
from fedminmax.core.messages import Order, RoundKey, Sums
from fedminmax.data.tables.agree import Grids, bin_rounds, counts_by_column
from fedminmax.data.tables.bins import ColumnBins, Counts, counts_fault
from fedminmax.data.tables.encoding import Encoding, longer_lengths
from fedminmax.data.tables.site_summary import SiteSummary
from fedminmax.methods.method import AnyMethod
from fedminmax.methods.shared.replies import NO_WEIGHTS
from fedminmax.network.server.agreement import Agreed, Agreement
from fedminmax.network.server.remote import RemoteFederation
from fedminmax.network.server.sites import Sites
from fedminmax.network.wire.plan import NetworkPlan, task_of
from fedminmax.training.additive_class import (
    AdditiveClass,
    ClassQuestion,
    ClassTotals,
    class_rounds,
    class_structure,
)
from fedminmax.training.cell_sums import MEAN_FIT, CellSums
from fedminmax.training.class_encoding import encoding_of_class


def agree_on_class(agreement: Agreement, sites: Sites, notice: Path) -> AdditiveClass:
    """Ask for the sums of the mean fit; ``agreement`` has the encoding without smoothing."""
    plan, encoding = agreement.plan, agreement.encoding
    rounds = class_rounds(
        class_structure(encoding.outputs, encoding.blocks, plan.model.ridge),
        encoding.blocks,
        encoding.records,
        max_pairs=plan.model.pairs,
        smoothness=plan.model.smoothness,
    )
    try:
        question, number = next(rounds), 1
        while True:
            total = _total(agreement, sites, question, number, notice)
            totals = ClassTotals(float(total.group_loss.sum()), total.step, total.statistics)
            question, number = rounds.send(totals), number + 1
    except StopIteration as finished:
        chosen: AdditiveClass = finished.value
        return chosen


def with_class(agreed: Agreed, chosen: AdditiveClass, plan: NetworkPlan) -> Agreed:
    """Return what is agreed with the chosen smoothing and pairs, and where training starts."""
    encoding = encoding_of_class(agreed.encoding, chosen)
    before, now = len(agreed.encoding.blocks), len(encoding.blocks)
    task = task_of(plan, encoding)
    if isinstance(task.model, AdditiveModel):
        task.model.load_effects(chosen.effects, chosen.intercepts)
    rate = None
    if needs_learning_rate(plan.runs):
        # No coded row with its 1 is longer than this.
        rate = rounded_rate(
            rate_for_eigenvalue(task.loss, now + 1.0, linear=True, ridge=task.ridge)
        )
    return replace(
        agreed,
        encoding=encoding,
        learning_rate=rate,
        lengths={site: longer_lengths(own, before, now) for site, own in agreed.lengths.items()},
        start=task.initial_parameters.tolist(),
    )


def _total(
    agreement: Agreement, sites: Sites, question: ClassQuestion, number: int, notice: Path
) -> Sums:
    staged = with_pairs(agreement, question.pairs)
    federation = RemoteFederation(staged, sites, 0, notice, pairs=question.pairs)
    weights = torch.ones(1, dtype=torch.float64) if question.curvature else NO_WEIGHTS
    key = RoundKey(agreement.plan.seed, number)
    order = Order(key, question.parameters, weights, phase=int(question.cells))
    method: AnyMethod[Any] = CellSums() if question.cells else MEAN_FIT
    return federation.ask(method, order, staged.census.occupied).total


def coded_lengths(encoding: Encoding, rows: Tensor) -> Tensor:
    """Return the roots of the sums of squared lengths of this many coded rows, by group."""
    return ((len(encoding.blocks) + 1.0) * rows.double()).sqrt()


def with_pairs(agreement: Agreement, pairs: Sequence[Pair]) -> Agreement:
    """Return the agreement for rows that have the codes of these pairs, too."""
    encoding = replace(agreement.encoding, pairs=tuple(pairs))
    lengths = tuple(
        longer_lengths(own, len(agreement.encoding.blocks), len(encoding.blocks))
        for own in agreement.row_lengths
    )
    census = agreement.census
    linear = linear_structure_of(task_of(agreement.plan, encoding))
    by_group = coded_lengths(encoding, census.counts.sum(dim=0))
    return replace(
        agreement,
        encoding=encoding,
        census=replace(census, linear=linear, row_lengths=by_group),
        row_lengths=lengths,
    )


def agree_on_bins(
    schema: Schema, sites: Sites, summaries: dict[str, SiteSummary], refused: dict[str, str]
) -> Mapping[str, ColumnBins]:
    """Ask for counts and return the bins; refused sites lose their summary."""
    rounds = bin_rounds(schema, reduce(add, summaries.values()))
    asked: list[Grids] = []
    counts: dict[str, list[Counts]] = {site: [] for site in summaries}
    try:
        asked.append(next(rounds))
        while True:
            received = sites.count_cells(asked[-1], tuple(summaries))
            refused |= received.reasons
            for site, vector in received.records.items():
                counts[site].append(vector.numpy())
                fault = _fault(asked, counts[site], summaries[site])
                if fault is not None:
                    refused[site] = f"{site} sent {fault}; refused"
            for site in [site for site in summaries if site in refused]:
                del summaries[site], counts[site]
            if not counts:
                return {}
            totals = [reduce(add, vectors) for vectors in zip(*counts.values(), strict=True)]
            asked.append(rounds.send(totals))
    except StopIteration as finished:
        bins: Mapping[str, ColumnBins] = finished.value
        return bins


def _fault(asked: list[Grids], counts: list[Counts], summary: SiteSummary) -> str | None:
    """Return why a sender's counts are impossible; None if they are possible."""
    by_column = counts_by_column(asked, counts)
    faults = (
        counts_fault(grid, by_column[grid.column], summary.quantities[grid.column].count)
        for grid in asked[-1]
    )
    return next((fault for fault in faults if fault is not None), None)
