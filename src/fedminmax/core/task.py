"""What is learned: an architecture and a loss per example, and whether they can be federated."""

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.nn.parameter import is_lazy

from fedminmax.core.errors import InputError
from fedminmax.core.examples import Examples
from fedminmax.core.losses import Loss, brier_loss, cross_entropy_loss

# Errors that an unsuitable model or loss is likely to raise.
_USER_ERRORS = (
    RuntimeError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    AssertionError,
)


@dataclass(frozen=True, eq=False)
class Task:
    """A model (its current parameters are the starting point) and its loss per example.

    A ``ridge`` m, for linear models, adds m/2 |theta|^2 to every risk that is minimised.
    """

    model: nn.Module
    loss: Loss
    ridge: float = 0.0

    @property
    def initial_parameters(self) -> Tensor:
        """The trainable parameters, concatenated to one vector (theta^0)."""
        return torch.cat([p.detach().reshape(-1) for p in trainable_parameters(self.model)])

    @property
    def parameter_shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the trainable parameters, in the order of that vector."""
        return tuple(tuple(p.shape) for p in trainable_parameters(self.model))


def trainable_parameters(model: nn.Module) -> list[nn.Parameter]:
    """Parameters that training changes; frozen ones are part of the architecture."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def copy_model(model: nn.Module) -> nn.Module:
    """Return a copy that shares no tensor with the model.

    Torch refuses to copy tensors that were computed from parameters. Some modules keep such tensors
    and recompute them in every pass (torch.nn.utils.weight_norm, prune): those are copied by value.
    """
    values = {id(tensor): tensor.detach().clone() for _, _, tensor in _computed_tensors(model)}
    try:
        return copy.deepcopy(model, values)
    except (RuntimeError, TypeError, AttributeError) as error:
        raise InputError(f"the model cannot be copied: {first_line(error)}") from error


def check_task(task: Task) -> None:
    """Refuse a model that a federation cannot train as if its data were pooled."""
    given: object = task.model
    if not isinstance(given, nn.Module):
        what = f"the class {given.__name__}" if isinstance(given, type) else repr(given)
        raise InputError(f"the model is {what}; give a torch.nn.Module, such as linear(4, 2)")
    if not callable(task.loss):
        raise InputError(f"the loss is {task.loss!r}; give a function, such as brier_loss")
    for name, module in task.model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            # Observed: the copy lists its own parameters but computes with the original's.
            raise InputError(
                "the model is or has a scripted module, whose copies compute with the original's "
                "parameters; give the module from before torch.jit"
            )
        running = isinstance(module, _NormBase) and module.track_running_stats
        if isinstance(module, _BatchNorm) or running:
            raise InputError(
                f"the model's '{name}' ({type(module).__name__}) keeps statistics of batches, "
                "which would differ by site; use torch.nn.GroupNorm"
            )
    if any(is_lazy(parameter) for parameter in task.model.parameters()):
        raise InputError("the model has lazy layers; run one batch through it first")
    parameters = trainable_parameters(task.model)
    if not parameters:
        raise InputError("the model has no trainable parameter; give a model that can learn")
    kinds = {(parameter.dtype, parameter.device) for parameter in parameters}
    if len(kinds) > 1:
        raise InputError(f"the model mixes dtypes or devices {kinds}; move it to one of each")
    first = parameters[0]
    inference = first.is_inference() or torch.is_inference_mode_enabled()
    if not first.is_floating_point() or first.is_meta or inference:
        raise InputError(
            f"the model's parameters are {first.dtype} on {first.device}"
            f"{', in inference mode' if inference else ''}; "
            "give real numbers that can be trained"
        )
    for name, parameter in task.model.named_parameters():
        if not bool(torch.isfinite(parameter).all()):
            raise InputError(f"the model's parameter '{name}' is NaN or infinite; start elsewhere")
        if parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None):
            raise InputError(
                f"the model's parameter '{name}' has a gradient hook, which copies of the model do "
                "not have; write what it does into the model's forward or the loss"
            )
    _check_memory(task.model)


def _check_memory(model: nn.Module) -> None:
    """Refuse parameters that share memory in part: a copy would separate them.

    One parameter under two names is fine: it stays one in the copy.
    """
    parameters = [
        (*_span(parameter), name, parameter)
        for name, parameter in model.named_parameters()
        if parameter.numel() > 0 and parameter.layout is torch.strided
    ]
    open_ones: list[tuple[int, str, Tensor]] = []
    for first, end, name, parameter in sorted(parameters, key=lambda entry: entry[0]):
        places = None if parameter.is_contiguous() else _places(parameter)
        if places is not None and len(torch.unique(places)) < len(places):
            raise InputError(
                f"the model's parameter '{name}' has several entries at one memory address (as "
                "after expand), which a copy separates; expand it in the model's forward"
            )
        # Nearly always empty: only views of one tensor overlap.
        open_ones = [entry for entry in open_ones if entry[0] > first]
        for _, other_name, other in open_ones:
            if bool(torch.isin(_places(parameter), _places(other)).any()):
                raise InputError(
                    f"the model's parameters '{other_name}' and '{name}' are views of the same "
                    "memory, which copies separate; use one nn.Parameter for both, or give each "
                    "its own"
                )
        open_ones.append((end, name, parameter))


def _span(tensor: Tensor) -> tuple[int, int]:
    """Return the start and end of a tensor's memory."""
    reach = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (reach + 1) * tensor.element_size()


def _places(tensor: Tensor) -> Tensor:
    """Return each entry's memory address."""
    places = torch.zeros(1, dtype=torch.int64)
    for n, step in zip(tensor.shape, tensor.stride(), strict=True):
        places = (places.unsqueeze(1) + step * torch.arange(n)).flatten()
    return tensor.data_ptr() + places * tensor.element_size()


def check_fit(task: Task, examples: Examples, owner: str) -> None:
    """Try the model and the loss on two rows, and refuse labels outside the model's outputs."""
    few = examples.rows(torch.arange(min(2, len(examples))))
    # Labels without an output are reported below.
    outputs, losses = try_task(
        task, replace(few, y=few.y.clamp(min=0, max=0)) if labelled(few) else few, owner
    )
    if not losses.requires_grad:
        raise InputError("the loss has no gradient in the model's outputs; use a smooth loss")
    if losses.dtype != outputs.dtype:
        raise InputError(
            f"the loss gives {losses.dtype} for outputs of {outputs.dtype}; keep their precision"
        )
    precision = trainable_parameters(task.model)[0].dtype
    if outputs.dtype != precision:
        raise InputError(
            f"the model gives {outputs.dtype} from parameters of {precision}; keep their precision"
        )
    if labelled(examples) and outputs.numel() == len(few):
        raise InputError(
            f"{owner}: y holds class labels, but the model has one output; give a model with "
            "an output per class, or y in floating point for regression"
        )
    if tuple(losses.shape) != (len(few),):
        raise InputError(
            f"the loss must give one number per row, got shape {tuple(losses.shape)} for "
            f"{len(few)} rows; use a loss without mean or sum (reduction='none')"
            f"{_hint(task, few, '')}"
        )
    if labelled(examples) and outputs.dim() == 2:
        classes = int(outputs.shape[1])
        outside = (examples.y < 0) | (examples.y >= classes)
        if bool(outside.any()):
            row = int(outside.nonzero()[0])
            raise InputError(
                f"{owner}: label {int(examples.y[row])} in row {row}, but the model has "
                f"{classes} outputs; labels must be 0 to {classes - 1}"
            )
    elif labelled(examples):
        try_task(task, few, owner)
    own = {id(parameter) for parameter in task.model.parameters()}
    for tensor in _leaves_of(losses):
        if id(tensor) not in own:
            raise InputError(
                f"the model or the loss computes with a trainable tensor of shape "
                f"{tuple(tensor.shape)} that is not a parameter of the model, so it would not be "
                "trained; register it (nn.Parameter, nn.ModuleList), detach it, or bind a patched "
                "forward to the model (types.MethodType)"
            )


def check_recomputed(given: nn.Module, copied: nn.Module) -> None:
    """Refuse a tensor that was computed from parameters only once: training would not change it.

    ``copied`` is a copy after a pass; what a pass recomputes differs from the copied value.
    """
    modules = dict(copied.named_modules())
    for owner, name, _ in _computed_tensors(given):
        if getattr(modules[owner], name).is_leaf:
            raise InputError(
                f"the model's '{f'{owner}.{name}'.lstrip('.')}' was computed from parameters "
                "before training, which would not update it; compute it in forward"
            )


def try_task(task: Task, rows: Examples, owner: str) -> tuple[Tensor, Tensor]:
    """Return outputs and losses of some rows; raise an ``InputError`` if there are none."""
    outputs: object = None
    losses: object = None
    # Torch counts writes to a tensor.
    before = rows.x._version, rows.y._version
    try:
        with torch.enable_grad():
            outputs = task.model(rows.x)
            losses = task.loss(outputs, rows.y)  # type: ignore[arg-type]
    except _USER_ERRORS as error:
        raise InputError(
            f"{owner}: model and loss do not fit x of shape {tuple(rows.x.shape)} "
            f"and y of {rows.y.dtype}: {first_line(error)}{_hint(task, rows, str(error))}"
        ) from error
    for name, found in (("model", outputs), ("loss", losses)):
        if not isinstance(found, Tensor):
            raise InputError(f"the {name} gives {type(found).__name__}; make it give one tensor")
    if (rows.x._version, rows.y._version) != before:
        raise InputError(
            "the model or the loss writes into the x or y that it is given, which would change the "
            "rows from pass to pass; make it write into a copy (x.clone(), inplace=False)"
        )
    return outputs, losses  # type: ignore[return-value]


def first_line(error: Exception) -> str:
    """Return the first line of an error's message; its type if it has none."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def labelled(examples: Examples) -> bool:
    """Return whether targets are class numbers (one integer per row), not quantities or shares."""
    return examples.y.dtype == torch.int64 and examples.y.dim() == 1


def classes_of(task: Task, examples: Examples) -> int:
    """Return how many classes the model has; 0 if targets are quantities."""
    if not labelled(examples):
        return 0
    with torch.no_grad():
        outputs = task.model(examples.x[:1])
    return int(outputs.shape[1]) if outputs.dim() == 2 else 0


def _hint(task: Task, rows: Examples, said: str) -> str:
    """Return a hint for this torch message, or an empty string."""
    if rows.y.dim() == 2 and rows.y.shape[1] == 1:
        return "; y has one column: give the vector y.squeeze(1)"
    if rows.y.is_floating_point() and task.loss in (brier_loss, cross_entropy_loss):
        return "; class labels must be whole numbers: give y.long(), or y.argmax(1) for shares"
    if not rows.x.is_floating_point():
        return f"; x is {rows.x.dtype}: give x.float() unless the model uses an embedding"
    if labelled(rows) and "Long" in said:
        return "; y is torch.int64: give y.float() unless it holds classes"
    return ""


def _computed_tensors(model: nn.Module) -> Iterator[tuple[str, str, Tensor]]:
    """Yield the computed tensors that modules keep: module, attribute, tensor."""
    for owner, module in model.named_modules():
        for name, value in vars(module).items():
            if isinstance(value, Tensor) and not value.is_leaf:
                yield owner, name, value


def _leaves_of(result: Tensor) -> Iterator[Tensor]:
    """Yield the trainable tensors that a result was computed from, through autograd's graph."""
    seen = set()
    rest = [result.grad_fn]
    while rest:
        node = rest.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            yield node.variable
        rest += [following for following, _ in node.next_functions]
