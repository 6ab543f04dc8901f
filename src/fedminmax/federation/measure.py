"""Ask all sites how the trained models do on rows that were held out, and add up what they tell."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from pathlib import Path

import torch
from torch import Tensor

from fedminmax.core.score_sums import ScoreSums
from fedminmax.data.tables.score_rows import metric_names
from fedminmax.federation.agreement import Agreement
from fedminmax.federation.measure_message import models_to_bytes, score_sums_from_bytes
from fedminmax.federation.tensor_file import read_tensors, write_tensors
from fedminmax.federation.transport import Transport, gathered
from fedminmax.federation.wire_vectors import RefusedError

MEASURED_FILE = "measured.safetensors"


@dataclass(frozen=True, eq=False)
class Measured:
    """Sums of all runs' scores over sites; the scores of run 0 come first.

    ``rows`` counts held-out rows by site, in the plan's order, and group.
    """

    sums: ScoreSums
    rows: Tensor


def measure(
    agreement: Agreement, transport: Transport, members: Sequence[Tensor]
) -> tuple[Measured, dict[str, str]]:
    """Return what the sites tell of each run's models, and why some tell nothing."""
    plan, groups = agreement.plan, len(agreement.encoding.groups)
    scores = len(members) * 2 * len(metric_names(agreement.encoding))
    asked = [site for site in plan.sites if site not in agreement.refused]
    precision = plan.precision.dtype
    message = models_to_bytes([table.to(precision) for table in members])
    answers = gathered(transport(asked, "measure", {"models": message}))
    told, silent = _told(answers.messages, groups, scores)
    rows = torch.zeros(len(plan.sites), groups, dtype=torch.int64)
    for site, sums in told.items():
        rows[plan.sites.index(site)] = sums.counts
    nothing = ScoreSums(
        torch.zeros(groups, dtype=torch.int64),
        torch.zeros(groups, scores, dtype=torch.float64),
        torch.zeros(groups, scores, scores, dtype=torch.float64),
    )
    in_order = [told[site] for site in plan.sites if site in told]
    return Measured(reduce(add, in_order, nothing), rows), dict(answers.failures) | silent


def _told(
    messages: Mapping[str, object], groups: int, scores: int
) -> tuple[dict[str, ScoreSums], dict[str, str]]:
    told, refused = {}, {}
    for site, message in messages.items():
        try:
            told[site] = score_sums_from_bytes(message, groups, scores, site)
        except RefusedError as error:
            refused[site] = str(error)
    return told, refused


def write_measured(folder: Path, measured: Measured) -> None:
    """Keep what was measured."""
    sums = measured.sums
    vectors = {"counts": sums.counts, "totals": sums.totals, "products": sums.products}
    write_tensors(folder / MEASURED_FILE, vectors | {"rows": measured.rows})


def read_measured(folder: Path) -> Measured:
    """Read what was measured."""
    *sums, rows = read_tensors(folder / MEASURED_FILE, ("counts", "totals", "products", "rows"))
    return Measured(ScoreSums(*sums), rows)
