"""Score a classifier on test rows: Brier risk and accuracy by group."""

import copy

import torch
from torch import nn

from fedminmax.core.examples import Examples
from fedminmax.core.losses import brier_loss
from fedminmax.report.run_result import GroupScores

# Small enough for the activations of a convolutional network to stay in the cache.
ROWS_AT_ONCE = 100


def score_by_group(model: nn.Module, examples: Examples, groups: int) -> GroupScores:
    """Return the mean Brier loss and the share of correct labels of each group's rows."""
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
    correct = (logits.argmax(dim=1) == examples.y).double()
    count = torch.bincount(examples.group, minlength=groups)
    return GroupScores(
        *(
            tuple(
                (torch.bincount(examples.group, weights=values, minlength=groups) / count).tolist()
            )
            for values in (losses, correct)
        )
    )
