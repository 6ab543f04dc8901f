"""The fused path: all holders' one-step replies from one pass over the pooled rows.

The sum over holders of one-step replies is one weighted gradient, with a weight per (holder,
group) cell that is known before the pass; loss sums per cell come from the same pass. The cost
does not depend on the number of holders.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedminmax.core.examples import Examples, concatenate
from fedminmax.core.messages import Census, Order, Reveals, Sums
from fedminmax.core.one_step import weighted_gradient
from fedminmax.core.workspace import Workspace
from fedminmax.methods.method import OneStepMethod, StateT


@dataclass(frozen=True, eq=False)
class PooledRows:
    """All rows, holder after holder, each with the number of its (holder, group) cell."""

    examples: Examples
    cell: Tensor
    holder: Tensor


def pool_rows(holders: list[Examples], groups: int) -> PooledRows:
    """Put the holders' rows one after another; an empty holder adds none, of whatever type."""
    examples = concatenate([rows for rows in holders if len(rows)])
    sizes = torch.tensor([len(rows) for rows in holders])
    holder = torch.repeat_interleave(torch.arange(len(holders)), sizes).to(examples.x.device)
    return PooledRows(examples, holder * groups + examples.group, holder)


def ask_fused(
    method: OneStepMethod[StateT],
    order: Order,
    rows: PooledRows,
    census: Census,
    participants: Tensor,
    workspaces: Sequence[Workspace],
    rows_per_chunk: int,
) -> Sums:
    """Return what adding up the participants' replies would give."""
    cells = census.holders * census.groups
    table = torch.zeros(census.holders, census.groups, dtype=torch.float64)
    weighed = method.weigh(order, participants, census.counts[participants])
    table[participants] = weighed.coefficients
    present = _rows_of(rows, participants, census.holders)
    for workspace in workspaces:
        workspace.load(order.parameters)
    row_weights = table.reshape(-1).to(order.parameters)[present.cell]
    gradient, losses = weighted_gradient(workspaces, present.examples, row_weights, rows_per_chunk)
    loss = torch.bincount(present.cell, weights=losses.to(torch.float64), minlength=cells)
    loss = loss.cpu().view(census.holders, census.groups)
    count = torch.zeros_like(census.counts)
    count[participants] = census.counts[participants]
    shown = slice(None) if method.reveals is Reveals.OWN_LOSS else slice(0)
    return Sums(
        step=gradient.cpu() * method.learning_rate,
        scale=float(weighed.scale.sum()),
        curvature=0.0,
        group_loss=loss.sum(dim=0),
        group_count=count.sum(dim=0),
        holder_loss=loss.sum(dim=1)[shown],
        holder_count=count.sum(dim=1)[shown],
        statistics=torch.zeros(0, dtype=torch.float64),
        gradient_evaluations=len(present.examples),
    )


def _rows_of(rows: PooledRows, participants: Tensor, holders: int) -> PooledRows:
    """Return the participants' rows; uncopied if everyone who has rows takes part."""
    taking_part = torch.zeros(holders, dtype=torch.bool)
    taking_part[participants] = True
    row_takes_part = taking_part.to(rows.holder.device)[rows.holder]
    if bool(row_takes_part.all()):
        return rows
    index = row_takes_part.nonzero().squeeze(1)
    return PooledRows(rows.examples.rows(index), rows.cell[index], rows.holder[index])
