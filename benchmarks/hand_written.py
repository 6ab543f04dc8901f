"""FedAvg and q-FedAvg as an expert writes them by hand for one model: all buffers reused.

Two kinds of worker (autograd, or explicit gradients that go straight into the weights) and three
ways to run them (one after another with all threads, two threads, two processes).
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.workload import SEED, Workload
from fedminmax.core.randomness import Purpose, torch_stream

MIN_LOSS = 1e-10


@dataclass(frozen=True)
class LocalPlan:
    """What each site does; ``q`` None is FedAvg."""

    epochs: int
    batch_size: int
    learning_rate: float
    q: float | None


class Worker(Protocol):
    """Buffers that the sites take turns in; ``flat`` holds all parameters."""

    flat: Tensor

    def mean_loss(self, x: Tensor, y: Tensor) -> float:
        """Return the mean Brier score with the current parameters."""
        ...

    def step(self, x: Tensor, y: Tensor, index: Tensor | None, learning_rate: float) -> None:
        """Descend once on these rows (None: all of them)."""
        ...


MakeWorker = Callable[[nn.Sequential, int], Worker]


@dataclass
class Total:
    """The running sums of a round, in reused buffers."""

    step: Tensor
    scale: float = 0.0

    def clear(self) -> None:
        """Start a new round."""
        self.step.zero_()
        self.scale = 0.0


def empty_total(model: nn.Sequential) -> Total:
    """Make the buffers for sums of this model's parameters."""
    return Total(torch.zeros_like(flatten(model)))


def flatten(model: nn.Sequential) -> Tensor:
    """Return all parameters in one new vector, convolutions with their channels last."""
    return torch.cat(
        [
            (p.detach().permute(0, 2, 3, 1) if p.dim() == 4 else p.detach()).reshape(-1)
            for p in model.parameters()
        ]
    )


def views_of(flat: Tensor, model: nn.Sequential) -> list[Tensor]:
    """Cut a vector from ``flatten`` into views with the parameters' shapes."""
    views = []
    pieces = torch.split(flat, [p.numel() for p in model.parameters()])
    for piece, like in zip(pieces, model.parameters(), strict=True):
        if like.dim() == 4:
            out, into, height, width = like.shape
            views.append(piece.view(out, height, width, into).permute(0, 3, 1, 2))
        else:
            views.append(piece.view_as(like))
    return views


def classes_of(model: nn.Sequential) -> int:
    """Number of outputs of the last layer."""
    last = model[-1]
    assert isinstance(last, nn.Linear)
    return last.out_features


def train_site(
    worker: Worker, work: Workload, plan: LocalPlan, theta: Tensor, round_site: tuple[int, int]
) -> float | None:
    """Train from theta in the worker's buffers; return F_k of theta if q-FedAvg needs it."""
    round_number, site = round_site
    part = work.rows_of(site)
    x, y = work.x[part], work.y[part]
    worker.flat.copy_(theta)
    loss = None if plan.q is None else worker.mean_loss(x, y)
    generator = torch_stream(SEED, Purpose.LOCAL_WORK, round_number, site)
    for _ in range(plan.epochs):
        if len(y) <= plan.batch_size:
            worker.step(x, y, None, plan.learning_rate)
            continue
        order = torch.randperm(len(y), generator=generator)
        for index in torch.split(order, plan.batch_size):
            worker.step(x, y, index, plan.learning_rate)
    return loss


def add_site(
    total: Total, theta: Tensor, trained: Tensor, rows: int, loss: float | None, plan: LocalPlan
) -> None:
    """Add one site's reply; overwrites ``trained``."""
    moved = trained.sub_(theta).neg_()
    if plan.q is None or loss is None:
        total.step.add_(moved, alpha=rows)
        total.scale += rows
        return
    lipschitz = 1.0 / plan.learning_rate
    safe = loss + MIN_LOSS
    weight = rows * safe**plan.q
    squared_length = float(torch.dot(moved, moved)) * lipschitz**2
    total.step.add_(moved, alpha=weight * lipschitz)
    total.scale += weight * (lipschitz + plan.q * squared_length / safe)


def serve(
    worker: Worker,
    total: Total,
    work: Workload,
    plan: LocalPlan,
    theta: Tensor,
    round_number: int,
    sites: range,
) -> None:
    """Put the sums of these sites into ``total``."""
    total.clear()
    for site in sites:
        loss = train_site(worker, work, plan, theta, (round_number, site))
        part = work.rows_of(site)
        add_site(total, theta, worker.flat, part.stop - part.start, loss, plan)


class AutogradWorker:
    """The model itself, with its parameters in one vector, and one-hot targets made once."""

    def __init__(self, model: nn.Sequential, _batch_size: int) -> None:
        self._model = copy.deepcopy(model)
        self.flat = flatten(model)
        self._parameters = tuple(self._model.parameters())
        self._one_hot = torch.eye(classes_of(model), dtype=self.flat.dtype)
        for parameter, view in zip(self._parameters, views_of(self.flat, model), strict=True):
            parameter.data = view

    def _loss(self, x: Tensor, y: Tensor) -> Tensor:
        miss = torch.softmax(self._model(x), dim=1) - functional.embedding(y, self._one_hot)
        return miss.square().sum() / len(y)

    def mean_loss(self, x: Tensor, y: Tensor) -> float:
        """Return the mean Brier score with the current parameters."""
        with torch.no_grad():
            return float(self._loss(x, y))

    def step(self, x: Tensor, y: Tensor, index: Tensor | None, learning_rate: float) -> None:
        """Descend once on these rows (None: all of them)."""
        if index is not None:
            x, y = x.index_select(0, index), y.index_select(0, index)
        gradients = torch.autograd.grad(self._loss(x, y), self._parameters)
        with torch.no_grad():
            torch._foreach_add_(self._parameters, gradients, alpha=-learning_rate)


@dataclass(frozen=True, eq=False)
class _Batch:
    """Buffers for one size of batch: inputs of each layer, errors at them, outputs."""

    inputs: list[Tensor]
    errors: list[Tensor]
    target: Tensor
    logits: Tensor
    probability: Tensor
    error: Tensor
    dot: Tensor
    ones: Tensor


class ExplicitWorker:
    """Explicit gradients; each layer's product is added directly to its weights."""

    def __init__(self, model: nn.Sequential, batch_size: int) -> None:
        layers = [layer for layer in model if isinstance(layer, nn.Linear)]
        self.flat = flatten(model)
        views = views_of(self.flat, model)
        self._weights, self._biases = views[0::2], views[1::2]
        self._widths = [layer.in_features for layer in layers]
        self._classes = classes_of(model)
        self._one_hot = torch.eye(self._classes, dtype=self.flat.dtype)
        self._batches: dict[int, _Batch] = {}
        self._batch(batch_size)

    def _batch(self, rows: int) -> _Batch:
        if rows not in self._batches:

            def new(width: int) -> Tensor:
                return torch.empty(rows, width, dtype=self.flat.dtype)

            self._batches[rows] = _Batch(
                [new(width) for width in self._widths],
                [new(width) for width in self._widths],
                target=new(self._classes),
                logits=new(self._classes),
                probability=new(self._classes),
                error=new(self._classes),
                dot=new(1),
                ones=torch.ones(rows, dtype=self.flat.dtype),
            )
        return self._batches[rows]

    def _forward(self, batch: _Batch) -> None:
        last = len(self._weights) - 1
        for number, (weight, bias) in enumerate(zip(self._weights, self._biases, strict=True)):
            out = batch.logits if number == last else batch.inputs[number + 1]
            torch.addmm(bias, batch.inputs[number], weight.t(), out=out)
            if number < last:
                out.clamp_min_(0.0)
        torch.softmax(batch.logits, dim=1, out=batch.probability)
        torch.sub(batch.probability, batch.target, out=batch.error)

    def mean_loss(self, x: Tensor, y: Tensor) -> float:
        """Return the mean Brier score with the current parameters."""
        batch = self._batch(len(y))
        batch.inputs[0].copy_(x)
        torch.index_select(self._one_hot, 0, y, out=batch.target)
        self._forward(batch)
        flat_error = batch.error.view(-1)
        return float(torch.dot(flat_error, flat_error)) / len(y)

    def step(self, x: Tensor, y: Tensor, index: Tensor | None, learning_rate: float) -> None:
        """Descend once on these rows (None: all of them)."""
        rows = len(y) if index is None else len(index)
        batch = self._batch(rows)
        if index is None:
            batch.inputs[0].copy_(x)
        else:
            torch.index_select(x, 0, index, out=batch.inputs[0])
            y = y.index_select(0, index)
        torch.index_select(self._one_hot, 0, y, out=batch.target)
        self._forward(batch)
        # d loss / d logits = p * (g - <g, p>) with g = 2 (p - target) / rows
        error, probability = batch.error.mul_(2.0 / rows), batch.probability
        torch.mul(error, probability, out=batch.logits)
        torch.sum(batch.logits, 1, keepdim=True, out=batch.dot)
        error.sub_(batch.dot).mul_(probability)
        for number in range(len(self._weights) - 1, -1, -1):
            below = batch.errors[number]
            if number:
                torch.mm(error, self._weights[number], out=below)
                torch.ops.aten.threshold_backward.grad_input(
                    below, batch.inputs[number], 0.0, grad_input=below
                )
            transposed = error.t()
            self._weights[number].addmm_(transposed, batch.inputs[number], alpha=-learning_rate)
            self._biases[number].addmv_(transposed, batch.ones, alpha=-learning_rate)
            error = below
