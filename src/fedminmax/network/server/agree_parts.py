"""How sites agree on what a plan leaves open: categories, an additive model, a learning rate.

Categories of columns without a list come before everything else, and are kept with the run, so that
a resumed run tells the sites the same. Of an additive model, bins come from counts in cells,
refined where many rows are; smoothing and pairs from rounds of the plain mean fit. The totals are
those of the pooled rows, and so are the bins (``data.tables.agree.bin_rounds``) and the choices
(``training.additive_class``). A site whose counts contradict its summary, or what it counted
before, is refused, and its counts are in no total. Masked, nobody may be missing. The learning rate
comes from the power iteration of ``core.bounds``, with sums over sites: every group has a direction
of its own, and all of them travel in one message.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedminmax.config.planned_runs import needs_learning_rate
from fedminmax.config.schema import Schema
from fedminmax.core.additive.model import AdditiveModel, Pair
from fedminmax.core.bounds import (
    POWER_ITERATIONS,
    RowLengths,
    first_direction,
    rate_for_eigenvalue,
    rounded_rate,
)
from fedminmax.core.errors import InputError
from fedminmax.core.linear_structure import linear_structure_of
from fedminmax.core.losses import LOSSES_BY_NAME
from fedminmax.core.messages import Order, RoundKey, Sums
from fedminmax.data.tables.agree import Grids, bin_rounds, counts_by_column
from fedminmax.data.tables.agreed_values import check_totals, with_values
from fedminmax.data.tables.bins import ColumnBins, Counts, counts_fault
from fedminmax.data.tables.encoding import Encoding, lengths_with
from fedminmax.data.tables.site_summary import SiteSummary
from fedminmax.methods.method import AnyMethod
from fedminmax.methods.shared.replies import NO_WEIGHTS
from fedminmax.network.server.agreement import Agreed, Agreement
from fedminmax.network.server.log import RoundNotes
from fedminmax.network.server.masked_sites import Sites
from fedminmax.network.server.remote import RemoteFederation
from fedminmax.network.server.sites import Received, cells_query, curvature_query, values_query
from fedminmax.network.wire.codec import RefusedError, check_finite, read_record, write_record
from fedminmax.network.wire.plan import NetworkPlan, task_of
from fedminmax.network.wire.values import by_column, check_counts
from fedminmax.training.additive_class import (
    AdditiveClass,
    ClassQuestion,
    ClassTotals,
    class_rounds,
    class_structure,
    encoding_of_class,
)
from fedminmax.training.certify import MEAN_FIT, CellSums


def agree_on_class(
    agreement: Agreement, sites: Sites, notice: Path
) -> tuple[AdditiveClass, tuple[int, int]]:
    """Ask for the sums of the mean fit; ``agreement`` has the encoding without smoothing.

    Also returns the bytes that a site was sent, and that it sent.
    """
    down = up = 0
    plan, encoding = agreement.plan, agreement.encoding
    rounds = class_rounds(
        class_structure(encoding.outputs, encoding.blocks, plan.model.class_ridge),
        encoding.blocks,
        encoding.records,
        max_pairs=plan.model.pairs,
        smoothness=plan.model.smoothness,
    )
    try:
        question, number = next(rounds), 1
        while True:
            total, notes = _total(agreement, sites, question, number, notice)
            down, up = down + notes.bytes_out, up + notes.bytes_in
            totals = ClassTotals(float(total.group_loss.sum()), total.step, total.statistics)
            question, number = rounds.send(totals), number + 1
    except StopIteration as finished:
        chosen: AdditiveClass = finished.value
        return chosen, (down, up)


def with_class(
    agreed: Agreed, chosen: AdditiveClass, plan: NetworkPlan, class_bytes: tuple[int, int]
) -> Agreed:
    """Return what is agreed with the chosen smoothing and pairs, and where training starts."""
    before, network = agreed.encoding, not plan.model.is_additive
    encoding = encoding_of_class(before, chosen, network=network)
    agreed = replace(
        agreed,
        encoding=encoding,
        lengths={site: lengths_with(own, before, encoding) for site, own in agreed.lengths.items()},
        class_bytes=class_bytes,
    )
    task = task_of(plan, encoding)
    if not isinstance(task.model, AdditiveModel):
        return agreed
    task.model.load_effects(chosen.effects, chosen.intercepts)
    rate = None
    if needs_learning_rate(plan.runs):
        rate = rounded_rate(
            rate_for_eigenvalue(task.loss, encoding.longest_row, linear=True, ridge=task.ridge)
        )
    return replace(agreed, learning_rate=rate, start=task.initial_parameters.tolist())


def _total(
    agreement: Agreement, sites: Sites, question: ClassQuestion, number: int, notice: Path
) -> tuple[Sums, RoundNotes]:
    staged = with_pairs(agreement, question.pairs)
    federation = RemoteFederation(staged, sites, 0, notice, pairs=question.pairs)
    weights = torch.ones(1, dtype=torch.float64) if question.curvature else NO_WEIGHTS
    key = RoundKey(agreement.plan.seed, number)
    order = Order(key, question.parameters, weights, phase=int(question.cells))
    method: AnyMethod[Any] = CellSums() if question.cells else MEAN_FIT
    total = federation.ask(method, order, staged.census.occupied).total
    return total, federation.take_notes()


def coded_lengths(encoding: Encoding, rows: Tensor) -> Tensor:
    """Return the roots of the sums of squared lengths of this many coded rows, by group."""
    return (encoding.longest_row * rows.double()).sqrt()


def with_pairs(agreement: Agreement, pairs: Sequence[Pair]) -> Agreement:
    """Return the agreement for rows that have the codes of these pairs, too."""
    encoding = replace(agreement.encoding, pairs=tuple(pairs))
    lengths = tuple(
        lengths_with(own, agreement.encoding, encoding) for own in agreement.row_lengths
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
            received = sites.query(cells_query(asked[-1]), tuple(summaries))
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


ROUNDING = 1e-4


def agree_on_rate(
    plan: NetworkPlan,
    encoding: Encoding,
    counts: Mapping[str, Sequence[int]],
    lengths: Mapping[str, RowLengths],
    sites: Sites,
) -> tuple[str, dict[str, str]]:
    """Return the largest learning rate that is safe for all groups, as text, and refused sites.

    A site that does not reply is skipped in the sums, and in the counts that divide them.
    """
    refused: dict[str, str] = {}
    start = first_direction(len(encoding.names), torch.float64)
    directions = start.repeat(len(encoding.groups), 1)
    sizes = directions.new_ones(len(encoding.groups))
    for number in range(1, POWER_ITERATIONS + 1):
        directions = directions / directions.norm(dim=1, keepdim=True).clamp(min=1e-300)
        sums = torch.zeros_like(directions)
        rows = torch.zeros(len(directions), dtype=torch.float64)
        query = curvature_query(sites.layouts, directions, number)
        received = sites.query(query, [site for site in counts if site not in refused])
        refused |= received.unreadable
        for site, along in received.records.items():
            try:
                _check_curvature(along, directions, lengths[site], site)
            except RefusedError as error:
                refused[site] = str(error)
                continue
            sums += along
            rows += torch.tensor(counts[site], dtype=torch.float64)
        # Rows have a 1 appended, so sums of 0 mean that there are no rows.
        if not bool(sums.any()):
            reasons = "; ".join([*received.failures.values(), *refused.values()])
            raise InputError(
                f"no site helped to find a safe learning rate ({reasons}); set learning_rate in "
                "[method]"
            )
        directions = sums / rows.clamp(min=1.0)[:, None]
        sizes = directions.norm(dim=1)
    loss = LOSSES_BY_NAME[plan.model.loss]
    rate = rate_for_eigenvalue(
        loss, float(sizes.max()), linear=not plan.model.hidden, ridge=plan.model.ridge
    )
    return rounded_rate(rate), refused


def _check_curvature(own: Tensor, directions: Tensor, lengths: RowLengths, site: str) -> None:
    """Refuse sums of x (x . v) that are impossible for rows of this length.

    With M the sum of x x^T over a group's rows, |M v| <= tr M for |v| = 1, and the traces of all
    groups sum to the squared length of the rows; M has no negative eigenvalue.
    """
    check_finite(own, "sums", site)
    most = lengths.rows**2
    curved = (own * directions).sum(dim=1)
    too_long = float(own.norm(dim=1).sum()) > most * (1.0 + ROUNDING)
    if too_long or bool((own.square().sum(dim=1) > most * (curved + ROUNDING * most)).any()):
        raise RefusedError(f"{site} sent a curvature that is impossible for its rows; refused")


VALUES_FILE = "values.json"


@dataclass(frozen=True)
class KeptValues:
    """Rows of all sites by bucket, and the values that they agreed on, by column."""

    totals: tuple[int, ...]
    values: dict[str, tuple[str, ...]]


def agree_on_values(
    plan: NetworkPlan, sites: Sites, folder: Path, refused: Mapping[str, str]
) -> tuple[NetworkPlan, Received[SiteSummary]]:
    """Return the plan with the agreed categories, and the summaries of all rows with them.

    ``refused`` says why sites did not take the plan.
    """
    path = folder / VALUES_FILE
    kept = read_record(path, KeptValues, "start a new run")
    if kept is None:
        kept = _agreed(plan, sites, refused)
        write_record(path, kept)
    schema = with_values(plan.schema, {name: [own] for name, own in kept.values.items()})
    told = replace(plan, schema=schema)
    received = sites.take_values(torch.tensor(kept.totals), kept.values, told)
    return told, replace(received, failures={**received.failures, **refused})


def _agreed(plan: NetworkPlan, sites: Sites, refused: Mapping[str, str]) -> KeptValues:
    counted = sites.query(values_query(plan.schema), plan.senders)
    possible, reasons = dict(counted.records), {**counted.reasons, **refused}
    most = plan.site_rules.max_rows * plan.max_sites_per_reply
    for sender, own in counted.records.items():
        try:
            check_counts(own, plan.schema, most, sender)
        except RefusedError as error:
            reasons[sender] = str(error)
            del possible[sender]
    check_enough(plan, len(possible), reasons)
    totals = reduce(add, possible.values())
    for column, counts in by_column(totals, plan.schema).items():
        check_totals(counts, column)
    named = sites.name_values(totals, tuple(possible))
    check_enough(plan, len(named.records), {**named.reasons, **refused})
    columns = plan.schema.open_columns
    by_site = {column: [own[column] for own in named.records.values()] for column in columns}
    completed = with_values(plan.schema, by_site)
    lists = {feature.column: feature.categories for feature in completed.features}
    return KeptValues(tuple(totals.tolist()), {column: lists.get(column, ()) for column in columns})


def check_enough(plan: NetworkPlan, replies: int, reasons: Mapping[str, str]) -> None:
    """Refuse to begin with fewer replies than the plan needs."""
    if replies < plan.minimum_replies:
        raise InputError(
            f"{replies} of {len(plan.sites)} sites can take part, at least {plan.minimum_sites} "
            f"are needed ({'; '.join(reasons.values())})"
        )
