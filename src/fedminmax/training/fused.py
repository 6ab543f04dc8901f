"""The fused path: all sites' one-step replies from one pass over the pooled rows.

The sum over sites of one-step replies is one weighted gradient, with a weight per (site,
group) cell that is known before the pass; loss sums per cell come from the same pass. The cost
does not depend on the number of sites.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedminmax.core.examples import Examples, concatenate
from fedminmax.core.messages import NO_STATISTICS, Order, Reveals, Sums
from fedminmax.core.one_step import weighted_gradient
from fedminmax.core.workspace import Workspace
from fedminmax.methods.method import OneStepMethod, StateT, rate_of


@dataclass(frozen=True, eq=False)
class PooledRows:
    """All rows, site after site, each with the number of its (site, group) cell.

    ``counts`` are the rows in each cell [sites, groups].
    """

    examples: Examples
    cell: Tensor
    site: Tensor
    counts: Tensor

    def by_site(self) -> list[Examples]:
        """Return each site's rows, as views of the pooled ones."""
        sizes = self.counts.sum(dim=1).tolist()
        parts = (self.examples.x, self.examples.y, self.examples.group)
        return [
            Examples(*own)
            for own in zip(*(torch.split(part, sizes) for part in parts), strict=True)
        ]


def pool_rows(sites: list[Examples], counts: Tensor) -> PooledRows:
    """Concatenate copies of the sites' rows; an empty site is skipped, whatever its type."""
    examples = concatenate([rows for rows in sites if len(rows)])
    sizes = torch.tensor([len(rows) for rows in sites])
    site = torch.repeat_interleave(torch.arange(len(sites)), sizes).to(examples.x.device)
    return PooledRows(examples, site * counts.shape[1] + examples.group, site, counts)


def ask_fused(
    method: OneStepMethod[StateT],
    order: Order,
    rows: PooledRows,
    participants: Tensor,
    *,
    workspaces: Sequence[Workspace],
    rows_per_chunk: int,
) -> Sums:
    """Return the sum of the participants' replies."""
    present = rows_of(rows, participants)
    counts = present.counts
    weighed = method.weigh(order, participants, counts[participants])
    table = torch.zeros_like(counts, dtype=torch.float64)
    table[participants] = weighed.coefficients
    for workspace in workspaces:
        workspace.load(order.parameters)
    row_weights = table.to(order.parameters).view(-1)[present.cell]
    gradient, losses = weighted_gradient(workspaces, present.examples, row_weights, rows_per_chunk)
    loss = torch.bincount(present.cell, weights=losses.to(torch.float64), minlength=counts.numel())
    loss = loss.cpu().view_as(counts)
    shown = slice(None) if method.reveals is Reveals.OWN_LOSS else slice(0)
    return Sums(
        step=gradient.cpu() * rate_of(method),
        scale=float(weighed.scale.sum()),
        curvature=0.0,
        group_loss=loss.sum(dim=0),
        group_count=counts.sum(dim=0),
        site_loss=loss[shown].sum(dim=1),
        site_count=counts[shown].sum(dim=1),
        statistics=NO_STATISTICS,
        gradient_evaluations=len(present.examples),
    )


def rows_of(rows: PooledRows, participants: Tensor) -> PooledRows:
    """Return the participants' rows; not copied if all sites with rows take part."""
    if int(rows.counts[participants].sum()) == len(rows.examples):
        return rows
    taking_part = torch.zeros(len(rows.counts), dtype=torch.bool)
    taking_part[participants] = True
    index = taking_part.to(rows.site.device)[rows.site].nonzero().squeeze(1)
    return PooledRows(
        rows.examples.rows(index),
        rows.cell[index],
        rows.site[index],
        rows.counts * taking_part.unsqueeze(1),
    )
