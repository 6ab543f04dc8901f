"""Test rows of a run over a network: those that sites held out, and test files of the coordinator.

Rows of sites come as sums; rows of files are scored here and added to them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedminmax.core.score_sums import ScoreSums, sum_scores
from fedminmax.data.row_scores import stacked
from fedminmax.data.tables.config import TableConfig
from fedminmax.data.tables.encode import encode, merged_numbers
from fedminmax.data.tables.score_rows import metric_names, score_rows
from fedminmax.data.tables.sources import read_source
from fedminmax.federation.measure import by_group, read_measured
from fedminmax.federation.network_plan import NetworkPlan
from fedminmax.report.saved_model import SavedModel


@dataclass(frozen=True, eq=False)
class MeasuredTests:
    """Sums of all runs' scores, the metrics' names, and rows by site and by owner of a file.

    ``merged`` are sums of each of the groups that were merged into one.
    """

    metrics: tuple[str, ...]
    sums: ScoreSums
    merged: ScoreSums
    by_site: Tensor
    of_files: dict[str, tuple[int, ...]]


def measured_tests(
    fetched: Path, plan: NetworkPlan, config: TableConfig, models: Sequence[SavedModel]
) -> MeasuredTests:
    """Put together what the sites told, and what these models do on the configuration's files."""
    encoding = models[0].encoding
    measured = read_measured(fetched)
    by_owner: dict[str, ScoreSums] = {}
    for source in config.test:
        for part in read_source(source, config).parts:
            rows = encode(part.rows, encoding, part.source)
            scores = [stacked(score_rows(saved.model, rows, encoding)) for saved in models]
            table = torch.from_numpy(np.concatenate(scores, axis=1))
            apart, groups = merged_numbers(part.rows, encoding), len(encoding.groups)
            group = torch.where(apart >= 0, groups + apart, rows.group)
            own = sum_scores(table, group, groups + len(encoding.merged_groups))
            by_owner[part.owner] = by_owner[part.owner] + own if part.owner in by_owner else own
    by_site = measured.rows.clone()
    counts = {owner: by_group(sums, encoding)[0].counts for owner, sums in by_owner.items()}
    for owner in set(by_owner) & set(plan.sites):
        by_site[plan.sites.index(owner)] += counts[owner]
    sums, merged = by_group(reduce(add, by_owner.values(), measured.sums), encoding)
    return MeasuredTests(
        metric_names(encoding),
        sums,
        merged,
        by_site,
        {
            owner: tuple(int(count) for count in own)
            for owner, own in counts.items()
            if owner not in plan.sites
        },
    )
