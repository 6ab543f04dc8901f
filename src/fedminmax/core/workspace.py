"""One worker's buffers: a private copy of the model whose parameters are views of a flat vector.

Sites take turns in the same buffers. Loading new parameters is one copy and an update is one
addition; nothing is rebuilt per site, which is where simulators usually lose time.

On a CPU the weights of 2D convolutions are stored with the channels last, which halves the time of
a pass (benchmarks/results/README.md); inputs and outputs of this class are in the model's order.

Parallel work on several cores, its chunk sizes, and devices by name.

There is one thread per worker, and torch uses one core in each. Threads inside an operation wait
for each other at the end of every operation; workers with a share of the rows wait once per pass.

The chunk size and the number of workers depend on the cost of a model's rows. That is computed from
the model rather than measured, so the same data on the same machine are always split the same way,
and floating-point sums are reproducible.

Devices are cpu, cuda, cuda:1, mps and any other that torch supports here.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn

from fedminmax.core.additive.model import AdditiveModel
from fedminmax.core.errors import InputError
from fedminmax.core.examples import Examples
from fedminmax.core.explicit_layers import ExplicitLayers, find_explicit_layers, has_global_hooks
from fedminmax.core.linear_structure import linear_start_of, linear_structure_of
from fedminmax.core.losses import explicit_gradient_of, loss_with_gradient_of
from fedminmax.core.noise import ClippedRows
from fedminmax.core.task import Task, copy_model, trainable_parameters


class Workspace:
    """A model copy in training mode; ``parameters`` are views of the flat vector ``flat``.

    With ``limits``, no row adds more than these to a sum.
    """

    def __init__(self, task: Task, limits: ClippedRows | None = None) -> None:
        self.limits = limits
        self.model = copy_model(task.model).train()
        self.loss = task.loss
        self.ridge = task.ridge
        self.linear = linear_structure_of(task)
        self.linear_start = linear_start_of(task)
        # How an additive model's codes become columns; None for other models.
        self.design = task.model.design if isinstance(task.model, AdditiveModel) else None
        self.loss_with_gradient = loss_with_gradient_of(task.loss)
        self.explicit_gradient = explicit_gradient_of(task.loss)
        self.parameters = trainable_parameters(self.model)
        self.flat = task.initial_parameters.clone()
        self.gradient = torch.zeros_like(self.flat)
        self._stored = _storage_order(self.parameters)
        self.gradient_slots = _views(self.gradient, self.parameters)
        for parameter, values, slot in zip(
            self.parameters,
            _views(self.flat, self.parameters),
            self.gradient_slots,
            strict=True,
        ):
            parameter.data = values
            parameter.grad = slot
        self._explicit_layers = find_explicit_layers(self.model)
        self.load(task.initial_parameters)

    @property
    def explicit_layers(self) -> ExplicitLayers | None:
        """The path without autograd; None for an unsuitable model or while global hooks are set."""
        return None if has_global_hooks() else self._explicit_layers

    @property
    def convolutional(self) -> bool:
        """Return whether the model has 2D convolutions that run on a CPU."""
        return self._stored is not None

    def load(self, parameters: Tensor) -> None:
        """Make the model compute with these parameters."""
        self.flat.copy_(self.in_storage_order(parameters))

    def in_storage_order(self, vector: Tensor) -> Tensor:
        """Convert a vector from the model's order to that of ``flat`` and ``gradient``."""
        return vector if self._stored is None else vector[self._stored]

    def in_model_order(self, vector: Tensor) -> Tensor:
        """Convert ``flat`` or ``gradient`` to the order in which the model lists its parameters."""
        if self._stored is None:
            return vector
        ordered = torch.empty_like(vector)
        ordered[self._stored] = vector
        return ordered


def split_like(vector: Tensor, parameters: list[nn.Parameter]) -> list[Tensor]:
    """Cut a flat vector into views with the shapes of these parameters."""
    sizes = [parameter.numel() for parameter in parameters]
    pieces = torch.split(vector, sizes)
    return [piece.view_as(like) for piece, like in zip(pieces, parameters, strict=True)]


def model_with(task: Task, parameters: Tensor) -> nn.Module:
    """Return a new copy of the task's model with these parameters, ready to predict."""
    model = copy_model(task.model)
    own = trainable_parameters(model)
    size, given = sum(parameter.numel() for parameter in own), getattr(parameters, "shape", None)
    if given is None or tuple(given) != (size,):
        came = type(parameters).__name__ if given is None else f"shape {tuple(given)}"
        raise InputError(f"parameters: got {came}; the model needs a vector of {size} numbers")
    with torch.no_grad():
        for parameter, values in zip(own, split_like(parameters, own), strict=True):
            parameter.copy_(values)
    return model.eval()


def _channels_last(parameter: nn.Parameter) -> bool:
    return parameter.dim() == 4 and parameter.device.type == "cpu"


def _views(vector: Tensor, parameters: list[nn.Parameter]) -> list[Tensor]:
    """Cut a vector in storage order into views with the shapes of these parameters."""
    views = []
    for piece, like in zip(split_like(vector, parameters), parameters, strict=True):
        if _channels_last(like):
            out, into, height, width = like.shape
            views.append(piece.reshape(out, height, width, into).permute(0, 3, 1, 2))
        else:
            views.append(piece)
    return views


def _storage_order(parameters: list[nn.Parameter]) -> Tensor | None:
    """Return which entry of the model's vector is stored at each position; None: the same order."""
    if not any(_channels_last(parameter) for parameter in parameters):
        return None
    places = torch.arange(sum(parameter.numel() for parameter in parameters))
    return torch.cat(
        [
            (piece.permute(0, 2, 3, 1) if _channels_last(like) else piece).reshape(-1)
            for piece, like in zip(split_like(places, parameters), parameters, strict=True)
        ]
    )


ResultT = TypeVar("ResultT")
# Activations of one chunk. On a CPU, small enough for the cache and for the allocator to get the
# same blocks back each time; on other devices, large enough to keep them busy.
ACTIVATION_BYTES_ON_CPU = 16 * 2**20
ACTIVATION_BYTES_OFF_CPU = 2**30
# Below this many multiplications per step, two threads lose more to Python's lock than they gain:
# see benchmarks/local_training.py.
MIN_THREAD_MULTIPLICATIONS = 5_000_000


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let torch use this many threads: a single one is faster for very small operations."""
    threads_before = torch.get_num_threads()
    if threads_before == count:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(threads_before)


@contextmanager
def worker_pool(workers: int) -> Iterator[ThreadPoolExecutor]:
    """Yield a pool of single-core threads; meanwhile this thread uses one core, too."""
    threads_before = torch.get_num_threads()
    torch.set_num_threads(1)
    pool = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,))
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)
        # Also undoes the workers' setting, which became the default for new threads.
        torch.set_num_threads(threads_before)


def run_in_parallel(workers: int, work: Callable[[int], ResultT]) -> list[ResultT]:
    """Return ``[work(0), ..., work(workers - 1)]``, computed in parallel."""
    if workers == 1:
        return [work(0)]
    with worker_pool(workers) as pool:
        return list(pool.map(work, range(workers)))


@dataclass(frozen=True)
class WorkSize:
    """The work of one row, and how many threads and workers a pass over many of them is worth.

    >>> size = WorkSize(threads=2, rows_per_chunk=1000, multiplications_per_row=100_000)
    >>> size.workers(10), size.workers(1000)
    (1, 2)
    """

    threads: int
    rows_per_chunk: int
    multiplications_per_row: int

    def fitting_threads(self, rows: int) -> AbstractContextManager[None]:
        """Use one thread if a pass over this many rows is too small for more."""
        light = self.multiplications_per_row * rows < MIN_THREAD_MULTIPLICATIONS
        return torch_threads(1 if light else self.threads)

    def workers(self, rows: int) -> int:
        """Return one worker per core if a step over this many rows is expensive enough, else 1."""
        work = self.multiplications_per_row * min(rows, self.rows_per_chunk, 100)
        return self.threads if work >= MIN_THREAD_MULTIPLICATIONS else 1


def work_size_of(task: Task, examples: Examples, threads: int) -> WorkSize:
    """Return the work of a row like these."""
    chunk = choose_rows_per_chunk(task, examples)
    return WorkSize(threads, chunk, multiplications_per_row(task, examples))


def choose_rows_per_chunk(task: Task, examples: Examples) -> int:
    """Derive the chunk size from what one row stores for the backward pass."""
    few = examples.rows(torch.arange(min(2, len(examples))))
    # Weights exist anyway, and a chunk of the features is a view.
    own = {tensor.data_ptr() for tensor in (*task.model.parameters(), few.x)}
    saved: dict[int, int] = {}

    def count(tensor: Tensor) -> Tensor:
        if tensor.data_ptr() not in own:
            saved[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        task.loss(task.model(few.x), few.y)
    bytes_per_row = max(1, sum(saved.values()) // len(few))
    on_cpu = few.x.device.type == "cpu"
    room = ACTIVATION_BYTES_ON_CPU if on_cpu else ACTIVATION_BYTES_OFF_CPU
    return max(1, room // bytes_per_row)


def multiplications_per_row(task: Task, examples: Examples) -> int:
    """Count the multiplications with weights in one row's forward pass.

    Each output channel at each position needs as many as it has weights.
    """
    found: list[int] = []

    def count(module: nn.Module, _inputs: object, output: object) -> None:
        weight = getattr(module, "weight", None)
        if isinstance(weight, Tensor) and weight.dim() > 1 and isinstance(output, Tensor):
            found.append(output.numel() // weight.shape[0] * weight.numel())

    # A copy: hooks must not stay on the user's model, whatever happens in its forward pass.
    model = copy_model(task.model)
    for module in model.modules():
        module.register_forward_hook(count)
    with torch.no_grad():
        model(examples.rows(torch.arange(1)).x)
    return sum(found)


def usable_device(name: str) -> torch.device:
    """Return the device of this name; raise an ``InputError`` if there is none.

    >>> usable_device("cpu").type
    'cpu'
    """
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"device {name} cannot be used here; give cpu") from error
