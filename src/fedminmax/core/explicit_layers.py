"""Gradient steps of fully connected ReLU networks without autograd, in buffers that stay.

Local training takes thousands of small steps, and for them autograd costs: it forms every weight
gradient in fresh memory and reads it back for the update. For a stack of linear layers with ReLU
between them the backward pass is short (Rumelhart, Hinton, Williams 1986), every buffer can be
used again, and matrix multiplication adds the update to the weights directly. The loss may be
anything: its gradient at the network's outputs still comes from autograd.
See benchmarks/round_speed.py for what it brings.

| symbol                             | name             |
|------------------------------------|------------------|
| h_j (input of layer j)             | activations[j]   |
| W_j, b_j                           | layers[j]        |
| d loss / d (W_j h_j + b_j)         | output_gradient  |
"""

import torch
from torch import Tensor, nn


class ExplicitLayers:
    """A stack of linear layers with ReLU between them; the layers are the workspace's own."""

    def __init__(self, layers: list[nn.Linear]) -> None:
        self._layers = layers
        self._outputs: list[Tensor] = []
        self._gradients: list[Tensor] = []
        self._activations: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        """Return the network's outputs, in a buffer that the next call overwrites."""
        rows = len(x)
        self._make_room(rows)
        self._activations = [x]
        last = len(self._layers) - 1
        for number, layer in enumerate(self._layers):
            output = self._outputs[number][:rows]
            if layer.bias is None:
                torch.mm(self._activations[number], layer.weight.t(), out=output)
            else:
                torch.addmm(layer.bias, self._activations[number], layer.weight.t(), out=output)
            if number < last:
                output.relu_()
            self._activations.append(output)
        return self._activations[-1]

    def descend(self, output_gradient: Tensor, rate: float) -> None:
        """Propagate the gradient at the outputs back and take one step of this rate.

        A layer passes its gradient on before its weights move.
        """
        rows = len(output_gradient)
        for number in reversed(range(len(self._layers))):
            layer, inputs = self._layers[number], self._activations[number]
            passed_on = self._gradients[number][:rows]
            if number > 0:
                torch.mm(output_gradient, layer.weight, out=passed_on)
                torch.ops.aten.threshold_backward.grad_input(
                    passed_on, inputs, 0, grad_input=passed_on
                )
            layer.weight.addmm_(output_gradient.t(), inputs, alpha=-rate)
            if layer.bias is not None:
                layer.bias.add_(output_gradient.sum(dim=0), alpha=-rate)
            output_gradient = passed_on

    def _make_room(self, rows: int) -> None:
        """Have buffers for this many rows; smaller batches use their first rows."""
        if not self._outputs or len(self._outputs[0]) < rows:
            self._outputs = [
                layer.weight.new_empty(rows, layer.out_features) for layer in self._layers
            ]
            self._gradients = [
                layer.weight.new_empty(rows, layer.in_features) for layer in self._layers
            ]


def find_explicit_layers(model: nn.Module) -> ExplicitLayers | None:
    """Recognise a stack of linear layers with ReLU between them; None for any other model.

    Exact types only, all trainable, none used twice and none with hooks: a subclass, a shared
    weight or a hook may compute something else.
    """
    modules = list(model) if type(model) is nn.Sequential else [model]
    layers = [module for module in modules[::2] if type(module) is nn.Linear]
    alternating = len(layers) == len(modules[::2]) and all(
        type(module) is nn.ReLU for module in modules[1::2]
    )
    if not alternating or len(modules) % 2 == 0:
        return None
    parameters = [parameter for layer in layers for parameter in layer._parameters.values()]
    present = [parameter for parameter in parameters if parameter is not None]
    if len({id(parameter) for parameter in present}) < len(present):
        return None
    if not all(parameter.requires_grad for parameter in present):
        return None
    if any(_has_hooks(module) for module in (model, *modules)):
        return None
    return ExplicitLayers(layers)


def _has_hooks(module: nn.Module) -> bool:
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
    )
