"""Lots over holders: how often the server draws each of them, and the loss of a drawn one.

Holders are drawn with replacement, and one that came up c times counts c times: sums over the
drawn ones are then unbiased.
"""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from fedminmax.core.messages import Sums
from fedminmax.methods.method import Holder


def draw_holders(odds: Tensor, draws: int, lots: np.random.Generator) -> Tensor:
    """Draw in proportion to ``odds``; return how often each holder came up, in float64."""
    probabilities = odds.to(torch.float64) / odds.sum()
    drawn = lots.choice(len(odds), size=draws, p=probabilities.tolist())
    return torch.tensor(np.bincount(drawn, minlength=len(odds)), dtype=torch.float64)


def only_rows(holder: Holder, batch: Tensor | None) -> Holder:
    """Return the holder with these rows alone; None stands for all rows."""
    if batch is None:
        return holder
    return replace(holder, examples=holder.examples.rows(batch.to(holder.examples.group.device)))


def mean_loss(reply: Sums) -> float:
    """Return the mean loss over the rows of one holder's reply."""
    return float(reply.group_loss.sum()) / int(reply.group_count.sum())


def tell_loss(reply: Sums, holder: Holder, loss: float) -> Sums:
    """Put the holder's own number into its reply, with count 1: it took part."""
    losses = torch.zeros(holder.holders, dtype=torch.float64)
    counts = torch.zeros(holder.holders, dtype=torch.int64)
    losses[holder.number], counts[holder.number] = loss, 1
    return replace(reply, holder_loss=losses, holder_count=counts)
