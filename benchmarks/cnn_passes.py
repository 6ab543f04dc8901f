"""Plain centralized passes of the CNN, in every layout worth trying: the limit of a round.

A pass is the gradient of the mean Brier score over all rows. Layouts differ in the size of the
chunks, the memory format and where the threads are (inside an operation, or one worker per share of
the rows).
"""

import copy
import threading
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.timing import Contestant
from benchmarks.workload import Workload


@dataclass(frozen=True)
class Layout:
    """One way to arrange a pass."""

    rows_per_chunk: int
    channels_last: bool
    workers: int

    def __str__(self) -> str:
        order = "channels last" if self.channels_last else "channels first"
        threads = f"{self.workers} workers" if self.workers > 1 else "threads inside"
        return f"{self.rows_per_chunk} rows, {order}, {threads}"


def plain_cnn_pass(work: Workload, layout: Layout) -> Contestant:
    """Build the pass; each ``run`` returns the gradient."""
    models = [_model(work.model, layout) for _ in range(layout.workers)]
    x = work.x.contiguous(memory_format=torch.channels_last) if layout.channels_last else work.x
    target = functional.one_hot(work.y, int(work.y.max()) + 1).to(x.dtype)
    edges = [work.rows * worker // layout.workers for worker in range(layout.workers + 1)]

    def share(worker: int) -> None:
        model = models[worker]
        model.zero_grad()
        for start in range(edges[worker], edges[worker + 1], layout.rows_per_chunk):
            chunk = slice(start, min(start + layout.rows_per_chunk, edges[worker + 1]))
            miss = torch.softmax(model(x[chunk]), dim=1) - target[chunk]
            torch.autograd.backward(miss.square().sum() / work.rows)

    def share_alone(worker: int) -> None:
        torch.set_num_threads(1)
        share(worker)

    def run() -> Tensor:
        if layout.workers == 1:
            share(0)
        else:
            threads = [
                threading.Thread(target=share_alone, args=(worker,))
                for worker in range(layout.workers)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        return sum((_gradient(model) for model in models[1:]), _gradient(models[0]))

    return Contestant(run)


def _model(model: nn.Module, layout: Layout) -> nn.Module:
    own = copy.deepcopy(model)
    if layout.channels_last:
        own.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return own


def _gradient(model: nn.Module) -> Tensor:
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    return torch.cat([gradient.contiguous().view(-1) for gradient in gradients])
