"""Score a classifier on test rows: Brier risk, accuracy and rates by group."""

import copy

import torch
from torch import Tensor, nn

from fedminmax.core.examples import Examples
from fedminmax.core.losses import brier_loss
from fedminmax.core.parity import LABELS
from fedminmax.report.run_result import GroupScores

# Small enough for the activations of a convolutional network to stay in the cache.
ROWS_AT_ONCE = 100


def score_by_group(model: nn.Module, examples: Examples, groups: int) -> GroupScores:
    """Return each group's mean Brier loss and share of correct labels; with two classes, rates."""
    device = next(model.parameters()).device
    # A copy of our own: channels last is the fastest order on a CPU, and not the caller's.
    fast = copy.deepcopy(model)
    fast.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    with torch.no_grad():
        outputs = [
            fast(examples.x[start : start + ROWS_AT_ONCE].to(device)).cpu()
            for start in range(0, len(examples), ROWS_AT_ONCE)
        ]
    logits = torch.cat(outputs)
    losses = brier_loss(logits, examples.y).double()
    answers = logits.argmax(dim=1)
    everyone = torch.ones_like(examples.group, dtype=torch.bool)
    columns = [(losses, everyone), (answers == examples.y, everyone)]
    if logits.shape[1] == LABELS:
        columns += [(answers == 1, everyone), (answers == 1, examples.y == 1)]
    return GroupScores(*(_mean_by_group(*column, examples.group, groups) for column in columns))


def _mean_by_group(
    values: Tensor, counted: Tensor, group: Tensor, groups: int
) -> tuple[float, ...]:
    """Return each group's mean over the rows that count; NaN for a group without any."""
    own = group[counted]
    sums = torch.bincount(own, weights=values[counted].double(), minlength=groups)
    return tuple((sums / torch.bincount(own, minlength=groups)).tolist())
