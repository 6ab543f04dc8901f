"""Measure the trained models on held-out rows: the server collects and sums the sites' sums.

The result is a file of tensors by name, written in full or not at all, and checked when it is read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from fedminmax.core.errors import InputError
from fedminmax.core.files import write_bytes
from fedminmax.data.tables.encoding import Encoding
from fedminmax.data.tables.groups import merged_key
from fedminmax.metrics.auroc import BINS, CELLS
from fedminmax.metrics.code_sums import CodeShape, CodeSums, no_code_sums
from fedminmax.metrics.row_scores import MISSED
from fedminmax.metrics.sums import ScoreSums, by_group, empty_sums, metric_names
from fedminmax.network.secure.layouts import measured_shape
from fedminmax.network.server.agreement import Agreement
from fedminmax.network.server.sites import models_query
from fedminmax.network.wire.codec import RefusedError, check_finite
from fedminmax.network.wire.plan import max_rows_set_aside
from fedminmax.network.wire.sections import CODE_SECTIONS, SCORE_SECTIONS

if TYPE_CHECKING:  # what was measured is read without the packages of a network, too
    from fedminmax.network.server.masked_sites import Sites

MEASURED_FILE = "measured.safetensors"
ROUNDING = 1e-5


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write these tensors."""
    write_bytes(path, save(dict(tensors)))


def read_tensors(path: Path, names: Sequence[str]) -> list[Tensor]:
    """Read the tensors of these names."""
    try:
        found = load_file(path)
        return [found[name] for name in names]
    except (SafetensorError, KeyError, FileNotFoundError) as error:
        raise InputError(
            f"{path} is missing or damaged; resume the run, which brings it again"
        ) from error


@dataclass(frozen=True, eq=False)
class Measured:
    """Sums of all runs' scores over sites; the scores of run 0 come first.

    They are by group and then, by themselves, of the groups that were merged into one of these.
    ``rows`` counts held-out rows by the plan's sites, in their order, and group. ``totals`` are the
    sums of scores of each of these sites; there are none where they are masked. ``codes`` are sums
    over training rows.
    """

    sums: ScoreSums
    rows: Tensor
    totals: Tensor
    codes: CodeSums


def measure(
    agreement: Agreement, sites: "Sites", members: Sequence[Tensor]
) -> tuple[Measured, dict[str, str]]:
    """Return the sums of each run's models, and why some sites sent none."""
    plan, encoding = agreement.plan, agreement.encoding
    asked = [site for site in plan.senders if site not in agreement.refused]
    models = [table.to(agreement.task.initial_parameters) for table in members]
    received = sites.query(models_query(sites.layouts, models), asked)
    shape = measured_shape(plan, encoding, len(members))
    silent, most = received.reasons, _max_scores(encoding, shape.scores)
    rows = torch.zeros(len(plan.senders), len(encoding.groups), dtype=torch.int64)
    masked = plan.secure_aggregation is not None
    sites_told = 0 if masked else len(plan.senders)
    totals = torch.zeros(sites_told, shape.lines, shape.scores, dtype=torch.float64)
    measured = len(plan.audit) or len(members)
    total = empty_sums(shape.lines, metric_names(encoding), measured)
    codes = no_code_sums(shape.codes)
    for site, both in received.records.items():
        sums = both.scores
        try:
            counts = by_group(sums, encoding)[0].counts
            _check_possible(sums, site)
            _check_held_out(counts.tolist(), agreement, site)
            _check_scores(sums, most, site)
            _check_curves(sums, encoding, measured, site)
            _check_codes(both.codes, shape.codes, agreement, site)
        except RefusedError as error:
            silent[site] = str(error)
            continue
        rows[plan.senders.index(site)] = counts
        if not masked:
            totals[plan.senders.index(site)] = sums.totals
        total += sums
        codes += both.codes
    return Measured(total, rows, totals, codes), silent


def _check_possible(sums: ScoreSums, site: str) -> None:
    """Refuse sums that no rows have, whichever they are."""
    check_finite(sums.totals, "totals", site)
    check_finite(sums.products, "products", site)
    if bool((sums.counts < 0).any()):
        raise RefusedError(f"{site} sent a negative count of held-out rows; refused")
    without = sums.counts == 0
    if bool(sums.totals[without].any()) or bool(sums.products[without].any()):
        raise RefusedError(f"{site} sent scores of a group that it counts no rows of; refused")
    # A variance cannot be below 0 by more than rounding.
    variances = sums.covariances.diagonal(dim1=1, dim2=2)
    squares = sums.products.diagonal(dim1=1, dim2=2)
    if bool((variances < -1e-6 * squares.abs()).any()):
        raise RefusedError(f"{site} sent scores whose squares are too small; refused")


def _check_held_out(counts: list[int], agreement: Agreement, site: str) -> None:
    """Refuse more held-out rows than the agreed share allows for the site's training rows."""
    plan, encoding = agreement.plan, agreement.encoding
    if plan.privacy is not None:
        # How many training rows there are is not known.
        return
    place = plan.senders.index(site)
    if plan.audit:
        if counts != agreement.census.counts[place].tolist():
            raise RefusedError(f"{site} measured other rows than it had counted; refused")
        return
    left = agreement.census.counts[place]
    # Validation rows were set aside after the held-out rows.
    set_aside = agreement.validation_rows
    train = (left + set_aside[place] if len(set_aside) else left).tolist()
    all_rows = max_rows_set_aside(plan, sum(train), plan.held_out, 1)
    classes = max(len(plan.schema.target.classes), 1)
    for key, came, rows in zip(encoding.groups, counts, train, strict=True):
        # How many groups were merged into one is not known.
        merged = key == merged_key(plan.schema)
        most = all_rows if merged else max_rows_set_aside(plan, rows, plan.held_out, classes)
        if came > most or sum(counts) > all_rows:
            raise RefusedError(
                f"{site} counts {came:,} held-out rows of a group with {rows:,} training rows, "
                f"{sum(counts):,} in all; at most {most:,} and {all_rows:,} are possible; refused"
            )


def _max_scores(encoding: Encoding, scores: int) -> Tensor:
    """Return the largest size of each score of one row; quantities have no limit."""
    if encoding.outputs == 1:
        return torch.full((scores,), torch.inf, dtype=torch.float64)
    names = metric_names(encoding)
    # Numerators, then denominators, of each run's metrics in turn.
    numerators = [2.0 if name == "brier_risk" else 1.0 for name in names]
    one_run = torch.tensor([*numerators, *[1.0] * len(names)], dtype=torch.float64)
    return one_run.repeat(scores // len(one_run))


def _check_scores(sums: ScoreSums, most: Tensor, site: str) -> None:
    rows = sums.counts[:, None] * (1.0 + ROUNDING)
    squares = sums.products.diagonal(dim1=1, dim2=2)
    if bool((sums.totals.abs() > rows * most).any()) or bool((squares > rows * most**2).any()):
        raise RefusedError(f"{site} sent scores that are too large for its rows; refused")


def _check_curves(sums: ScoreSums, encoding: Encoding, models: int, site: str) -> None:
    """Refuse counts by score that are not all of the same records, of either class."""
    if not sums.curves.shape[1]:
        return
    names = metric_names(encoding)
    table = sums.curves.reshape(len(sums.counts), 2, -1)
    ends = [*range(0, models * BINS, BINS), *range(models * BINS, table.shape[2] + 1, CELLS)]
    positives = sums.totals[:, len(names) + names.index(MISSED)].round().long()
    records = torch.stack([sums.counts - positives, positives], dim=1)
    parts = [table[:, :, one:other].sum(dim=2) for one, other in pairwise(ends)]
    if bool((table < 0).any()) or not all(torch.equal(own, records) for own in parts):
        raise RefusedError(f"{site} sent counts by score that are of other records; refused")


def _check_codes(sums: CodeSums, shape: CodeShape, agreement: Agreement, site: str) -> None:
    """Refuse sums by code that are not of the site's training rows."""
    check_finite(sums.code_slopes, "slopes by code", site)
    check_finite(sums.code_bends, "second derivatives by code", site)
    check_finite(sums.code_losses, "losses", site)
    rows = agreement.census.counts[agreement.plan.senders.index(site)]
    columns = torch.split(sums.code_counts, list(shape.sizes), dim=2) if shape.models else ()
    most, classifies = sums.code_counts * (1.0 + ROUNDING) + ROUNDING, shape.outputs > 1
    bend = 0.25 if classifies else 2.0
    if (
        bool((sums.code_counts < 0).any())
        or not all(torch.equal(own.sum(dim=2)[0], rows) for own in columns)
        or bool((sums.code_bends < -ROUNDING).any())
        or bool((sums.code_bends > bend * most).any())
        or (classifies and bool((sums.code_slopes.abs() > most).any()))
    ):
        raise RefusedError(f"{site} sent sums by code that are of other records; refused")


def write_measured(folder: Path, measured: Measured) -> None:
    """Keep what was measured."""
    sums = measured.sums
    vectors = {name: getattr(sums, name) for name in SCORE_SECTIONS}
    vectors |= {name: getattr(measured.codes, name) for name in CODE_SECTIONS}
    write_tensors(
        folder / MEASURED_FILE, vectors | {"rows": measured.rows, "by_site": measured.totals}
    )


def read_measured(folder: Path) -> Measured:
    """Read what was measured."""
    names = (*SCORE_SECTIONS, *CODE_SECTIONS, "rows", "by_site")
    *sums, rows, totals = read_tensors(folder / MEASURED_FILE, names)
    scores, codes = sums[: len(SCORE_SECTIONS)], sums[len(SCORE_SECTIONS) :]
    return Measured(ScoreSums(*scores), rows, totals, CodeSums(*codes))
