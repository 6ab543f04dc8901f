"""One worker's buffers: a private copy of the model whose parameters lie in one flat vector.

Holders take turns in the same buffers. Loading new parameters is one copy and an update is one
addition; nothing is rebuilt per holder, which is where simulators usually lose their time.
"""

import copy

import torch
from torch import Tensor, nn

from fedminmax.core.explicit_layers import find_explicit_layers
from fedminmax.core.task import Task, trainable_parameters


class Workspace:
    """A model copy in training mode; ``parameters`` are views of the flat vector ``flat``."""

    def __init__(self, task: Task) -> None:
        self.model = copy.deepcopy(task.model).train()
        self.loss = task.loss
        self.explicit_layers = find_explicit_layers(self.model)
        self.parameters = trainable_parameters(self.model)
        self.flat = task.initial_parameters.clone()
        self.gradient = torch.zeros_like(self.flat)
        for parameter, values, slots in zip(
            self.parameters,
            split_like(self.flat, self.parameters),
            split_like(self.gradient, self.parameters),
            strict=True,
        ):
            parameter.data = values
            parameter.grad = slots

    def load(self, parameters: Tensor) -> None:
        """Make the model compute with these parameters."""
        self.flat.copy_(parameters)


def split_like(vector: Tensor, parameters: list[nn.Parameter]) -> list[Tensor]:
    """Cut a flat vector into views with the shapes of these parameters."""
    sizes = [parameter.numel() for parameter in parameters]
    pieces = torch.split(vector, sizes)
    return [piece.view_as(like) for piece, like in zip(pieces, parameters, strict=True)]


def model_with(task: Task, parameters: Tensor) -> nn.Module:
    """Return a fresh copy of the task's model with these parameters, ready to predict."""
    model = copy.deepcopy(task.model)
    own = trainable_parameters(model)
    with torch.no_grad():
        for parameter, values in zip(own, split_like(parameters, own), strict=True):
            parameter.copy_(values)
    return model.eval()
