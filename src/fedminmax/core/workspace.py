"""One worker's buffers: a private copy of the model whose parameters are views of a flat vector.

Sites take turns in the same buffers. Loading new parameters is one copy and an update is one
addition; nothing is rebuilt per site, which is where simulators usually lose time.

On a CPU the weights of 2D convolutions are stored with the channels last, which halves the time of
a pass (benchmarks/results/README.md); inputs and outputs of this class are in the model's order.
"""

import torch
from torch import Tensor, nn

from fedminmax.core.additive.model import AdditiveModel
from fedminmax.core.errors import InputError
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
