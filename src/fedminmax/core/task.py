"""What is learned: an architecture and a loss per example, and whether they can be federated."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.nn.parameter import is_lazy

from fedminmax.core.errors import InputError
from fedminmax.core.examples import Examples
from fedminmax.core.losses import Loss


@dataclass(frozen=True, eq=False)
class Task:
    """A model (its present parameters are the starting point) and its loss per example."""

    model: nn.Module
    loss: Loss

    @property
    def initial_parameters(self) -> Tensor:
        """The trainable parameters, one after another, as one vector (theta^0)."""
        return torch.cat([p.detach().reshape(-1) for p in trainable_parameters(self.model)])

    @property
    def parameter_shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the trainable parameters, in the order of that vector."""
        return tuple(tuple(p.shape) for p in trainable_parameters(self.model))


def trainable_parameters(model: nn.Module) -> list[nn.Parameter]:
    """Parameters that training changes; frozen ones are part of the architecture."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def check_task(task: Task) -> None:
    """Refuse a model that no federation can train as if its data were pooled."""
    parameters = trainable_parameters(task.model)
    if not parameters:
        raise InputError("the model has no trainable parameter; give a model that can learn")
    kinds = {(parameter.dtype, parameter.device) for parameter in parameters}
    if len(kinds) > 1:
        raise InputError(f"the model mixes dtypes or devices {kinds}; move it to one of each")
    for name, module in task.model.named_modules():
        running = isinstance(module, _NormBase) and module.track_running_stats
        if isinstance(module, _BatchNorm) or running:
            raise InputError(
                f"the model's '{name}' ({type(module).__name__}) keeps statistics of batches, "
                "which would differ by holder; use torch.nn.GroupNorm"
            )
    if any(is_lazy(parameter) for parameter in task.model.parameters()):
        raise InputError("the model has lazy layers; run one batch through it first")


def check_fit(task: Task, examples: Examples, owner: str) -> None:
    """Try the model and the loss on two rows, and refuse labels outside the model's outputs."""
    few = examples.rows(torch.arange(min(2, len(examples))))
    try:
        outputs = task.model(few.x)
        losses = task.loss(outputs, few.y.clamp(min=0, max=0) if labelled(few) else few.y)
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"{owner}: model and loss do not fit x of shape {tuple(few.x.shape)} "
            f"and y of {few.y.dtype}: {reason}"
        ) from error
    if not losses.requires_grad:
        raise InputError("the loss has no gradient in the model's outputs; use a smooth loss")
    if losses.dtype != outputs.dtype:
        raise InputError(
            f"the loss gives {losses.dtype} for outputs of {outputs.dtype}; keep their precision"
        )
    if tuple(losses.shape) != (len(few),):
        raise InputError(
            f"the loss must give one number per row, got shape {tuple(losses.shape)} for "
            f"{len(few)} rows; use a loss without mean or sum (reduction='none')"
        )
    if labelled(examples) and outputs.dim() == 2:
        classes = int(outputs.shape[1])
        outside = (examples.y < 0) | (examples.y >= classes)
        if classes == 1:
            raise InputError(
                f"{owner}: y holds class labels, but the model has one output; give a model with "
                "an output per class, or y in floating point for regression"
            )
        if bool(outside.any()):
            row = int(outside.nonzero()[0])
            raise InputError(
                f"{owner}: label {int(examples.y[row])} in row {row}, but the model has "
                f"{classes} outputs; labels must be 0 to {classes - 1}"
            )


def labelled(examples: Examples) -> bool:
    """Whether targets are class numbers (whole) rather than quantities (floating point)."""
    return examples.y.dtype == torch.int64


def classes_of(task: Task, examples: Examples) -> int:
    """Return how many classes the model tells apart; 0 if targets are quantities."""
    if not labelled(examples):
        return 0
    with torch.no_grad():
        return int(task.model(examples.x[:1]).shape[1])


def draws_random_numbers(model: nn.Module, examples: Examples) -> bool:
    """Whether a forward pass in training mode is random (dropout and the like).

    Found by trying: such a model moves torch's global random state, which is put back here. A
    model that moves its own buffers is refused: they would depend on who came when.
    """
    # Torch counts writes to a tensor: even one that happens to change no value is seen.
    buffers = [(buffer, buffer._version) for buffer in model.buffers()]
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        before = torch.get_rng_state()
        model(examples.x[:1])
        random = not torch.equal(before, torch.get_rng_state())
    for (old, version), new in zip(buffers, model.buffers(), strict=True):
        if new is not old or new._version != version:
            raise InputError(
                "the model changes its own buffers in a forward pass, so its results would "
                "depend on the order of holders; use a model without running statistics"
            )
    return random
