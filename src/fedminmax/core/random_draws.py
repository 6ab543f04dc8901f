"""Whether a model or a loss draws random numbers, and whether a seed makes it repeat them.

Found by trying, before the first round: a few rows go through model, loss and backward pass more
than once. Whoever draws moves a global random state of torch, numpy or Python (they are put back);
whoever draws from elsewhere, or counts its calls, gives other numbers for the same seed.
"""

import torch
from torch import Tensor, nn

from fedminmax.core.errors import InputError
from fedminmax.core.examples import Examples
from fedminmax.core.randomness import Purpose, global_states, globally_seeded
from fedminmax.core.task import Task, trainable_parameters, try_task

ROWS_TRIED = 8
# Sums on other devices than the CPU may differ from call to call.
ROUNDING_ELSEWHERE = 1e-3


def draws_random_numbers(task: Task, examples: Examples) -> bool:
    """Whether a pass over rows draws random numbers (dropout and the like).

    A task that moves its own buffers is refused: they would depend on who came when. So is one
    whose draws no seed repeats.
    """
    few = examples.rows(torch.arange(min(ROWS_TRIED, len(examples))))
    modules = [part for part in (task.model, task.loss) if isinstance(part, nn.Module)]
    buffers = [buffer for module in modules for buffer in module.buffers()]
    # Torch counts writes to a tensor: even one that happens to change no value is seen.
    versions = [buffer._version for buffer in buffers]
    first, moved = _try(task, few, seed=0)
    again, _ = _try(task, few, seed=0)
    now = [buffer for module in modules for buffer in module.buffers()]
    if any(
        new is not old or new._version != version
        for old, new, version in zip(buffers, now, versions, strict=True)
    ):
        raise InputError(
            "the model changes its own buffers in a forward pass, so its results would "
            "depend on the order of holders; use a model without running statistics"
        )
    if not _same(first, again):
        raise InputError(
            "the model or the loss gives other numbers for the same rows and the same seed, so no "
            "run could be repeated; draw from torch's, numpy's or Python's global generator, "
            "which are seeded in every round, and keep no count of calls"
        )
    if moved or few.x.device.type == "cpu":
        return moved
    # Other devices have random states of their own.
    return not _same(first, _try(task, few, seed=1)[0])


def _try(task: Task, few: Examples, seed: int) -> tuple[Tensor, bool]:
    """Return losses and gradients of some rows, and whether they moved a random state."""
    with globally_seeded(seed, Purpose.DROPOUT), torch.enable_grad():
        before = global_states()
        _, losses = try_task(task, few, "a few rows")
        gradients = torch.autograd.grad(
            losses.sum(), trainable_parameters(task.model), materialize_grads=True
        )
        moved = global_states() != before
    found = [losses.detach(), *(g.reshape(-1) for g in gradients)]
    return torch.nan_to_num(torch.cat(found)), moved


def _same(one: Tensor, other: Tensor) -> bool:
    if one.device.type == "cpu":
        return torch.equal(one, other)
    return bool((one - other).norm() <= ROUNDING_ELSEWHERE * one.norm())
