"""A holder's sums over all of its rows, for servers that look ahead but not at its groups."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from fedminmax.core.group_sums import gradients_by_part, linear_group_sums
from fedminmax.core.linear_structure import LinearStructure
from fedminmax.core.messages import Order, Sums, zero_sums
from fedminmax.core.workspace import Workspace
from fedminmax.methods.expected_reply import (
    ExpectedReply,
    Sender,
    layout_of,
    limits_of_curvature,
)
from fedminmax.methods.fast_server import FastSettings, with_curvature
from fedminmax.methods.local_sums import sum_by_group
from fedminmax.methods.method import Holder


def sums_of_all_rows(
    linear: LinearStructure | None, order: Order, holder: Holder, workspaces: Sequence[Workspace]
) -> Sums:
    """Return gradient and, for a linear model, curvature sums at the broadcast model.

    Losses are by group: that is what a run shows.
    """
    rows = holder.examples
    if linear is not None:
        sums = linear_group_sums(linear, order.parameters, rows, holder.groups)
        step, curvature = sums.gradients.sum(dim=0), sums.curvature.sum(dim=0)
        group_loss = sums.losses
    else:
        for workspace in workspaces:
            workspace.load(order.parameters)
        everyone = torch.zeros_like(rows.group)
        losses, gradients = gradients_by_part(workspaces, rows, everyone, 1, holder.rows_per_chunk)
        step, curvature = gradients[0].cpu(), torch.zeros(0, dtype=torch.float64)
        group_loss = sum_by_group(losses, holder)
    return replace(
        zero_sums(0, holder.groups, 0),
        step=step,
        scale=float(len(rows)),
        group_loss=group_loss,
        group_count=torch.bincount(rows.group, minlength=holder.groups).cpu(),
        statistics=curvature,
        gradient_evaluations=len(rows),
    )


def expected_of_all_rows(
    settings: FastSettings, players: int, order: Order, sender: Sender, reply: Sums
) -> ExpectedReply:
    """Return what an honest sender of these sums replies."""
    squares = sender.limits.squared_slopes(torch.tensor(sender.rows), reply.group_loss.sum())
    expected = ExpectedReply(
        numbers=len(order.parameters),
        scale=float(sender.rows),
        rows=sender.rows,
        evaluations=sender.rows,
        reach=float(squares.sqrt()),
    )
    linear = with_curvature(settings, layout_of(len(order.parameters), sender), players)
    if linear is None:
        return expected
    everyone = replace(sender, counts=sender.counts.sum(dim=0, keepdim=True))
    most, told = limits_of_curvature(linear, everyone, reply)
    return replace(expected, least=-most, most=most, told_curvature=told)
