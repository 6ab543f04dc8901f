"""How sites agree on bins of number columns: counts in cells, refined where many rows are.

The totals are those of the pooled rows, and so are the bins (``data.tables.agree.bin_rounds``). A
site whose counts contradict its summary, or what it counted before, is refused, and its counts are
in no total. Masked, nobody may be missing.
"""

from collections.abc import Mapping
from functools import reduce
from operator import add

from fedminmax.config.schema import Schema
from fedminmax.data.tables.agree import Grids, bin_rounds, counts_by_column
from fedminmax.data.tables.bins import ColumnBins, Counts, counts_fault
from fedminmax.data.tables.site_summary import SiteSummary
from fedminmax.network.server.sites import Sites


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
