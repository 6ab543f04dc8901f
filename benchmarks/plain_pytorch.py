"""The limit of a one-step round: one centralized forward and backward pass, nothing else."""

import copy

import torch
from torch.nn import functional

from benchmarks.timing import Contestant
from benchmarks.workload import CLASSES, Workload

CHUNK_SIZES = (500, 1000, 2000, 4000, 8000)


def plain_pass(work: Workload, rows_per_chunk: int) -> Contestant:
    """Gradient of the mean Brier score over all rows, in chunks; targets are already one-hot."""
    model = copy.deepcopy(work.model)
    targets = functional.one_hot(work.y, CLASSES).to(work.x.dtype)
    chunks = [
        (work.x[start : start + rows_per_chunk], targets[start : start + rows_per_chunk])
        for start in range(0, work.rows, rows_per_chunk)
    ]

    def run() -> torch.Tensor:
        model.zero_grad()
        for x, target in chunks:
            loss = (torch.softmax(model(x), dim=1) - target).square().sum() / work.rows
            torch.autograd.backward(loss)
        return torch.cat([p.grad.view(-1) for p in model.parameters() if p.grad is not None])

    return Contestant(run)
