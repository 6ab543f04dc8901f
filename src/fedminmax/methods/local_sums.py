"""The part of a reply that every locally training method has: risks before training, counts."""

from dataclasses import replace

import torch
from torch import Tensor

from fedminmax.core.messages import Order, Sums, zero_sums
from fedminmax.core.one_step import losses_of
from fedminmax.core.workspace import Workspace
from fedminmax.methods.method import Holder


def sums_before_training(order: Order, holder: Holder, workspace: Workspace) -> Sums:
    """Load the broadcast model and return its loss sums on this holder's rows.

    The step is left empty: the caller puts its own in its place.
    """
    workspace.load(order.parameters)
    losses = losses_of(workspace, holder.examples, holder.rows_per_chunk)
    return replace(
        zero_sums(0, holder.groups, 0),
        group_loss=sum_by_group(losses, holder),
        group_count=torch.bincount(holder.examples.group, minlength=holder.groups).cpu(),
    )


def sum_by_group(values: Tensor, holder: Holder) -> Tensor:
    """Add up one number per row by the row's group, in float64."""
    return torch.bincount(
        holder.examples.group, weights=values.to(torch.float64), minlength=holder.groups
    ).cpu()


def displacement(order: Order, trained: Tensor) -> Tensor:
    """How far local training went, theta - theta_k, in the model's own precision."""
    return order.parameters - trained
