"""The limit of a one-step round, a centralized pass and nothing else, and the obvious loop.

The loop has for each site a copy of the model and an optimizer: Algorithm 1 of Papadaki et al. 2021
word for word. It is the yardstick for users who come from a tutorial, and an independent check of
the risks.
"""

import copy
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.timing import Contestant
from benchmarks.workload import CLASSES, Workload
from fedminmax.core.losses import brier_loss
from fedminmax.core.solvers.simplex import project_on_simplex

CHUNK_SIZES = (500, 1000, 2000, 4000, 8000)
STEP = 0.1
ROWS_PER_CHUNK = 250


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


def naive_rounds(work: Workload) -> Iterator[Tensor]:
    """Yield the parameters after each round of FedMinMax."""
    model = copy.deepcopy(work.model)
    groups = int(work.group.max()) + 1
    share = torch.bincount(work.group, minlength=groups).double() / work.rows
    weight = share.clone()
    parts = [work.rows_of(site) for site in range(work.sites)]
    while True:
        # In float32 a sum of 10,000 models drifts: risks differed by 2.5e-5 after seven rounds.
        average = {name: torch.zeros_like(p).double() for name, p in model.state_dict().items()}
        losses, counts = torch.zeros(groups).double(), torch.zeros(groups).double()
        for part in parts:
            own = copy.deepcopy(model)
            optimizer = torch.optim.SGD(own.parameters(), lr=STEP)
            optimizer.zero_grad()
            x, y, group = work.x[part], work.y[part], work.group[part]
            row_weight = (weight / share).to(x.dtype)[group] / len(y)
            for start in range(0, len(y), ROWS_PER_CHUNK):
                chunk = slice(start, start + ROWS_PER_CHUNK)
                loss = brier_loss(own(x[chunk]), y[chunk])
                torch.autograd.backward(torch.dot(loss, row_weight[chunk]))
                losses.index_add_(0, group[chunk], loss.detach().double())
                counts += torch.bincount(group[chunk], minlength=groups)
            optimizer.step()
            for name, value in own.state_dict().items():
                average[name] += value * (len(y) / work.rows)
        model.load_state_dict(average)
        weight = project_on_simplex(weight + STEP * losses / counts)
        yield torch.cat([p.detach().reshape(-1) for p in model.parameters()])
