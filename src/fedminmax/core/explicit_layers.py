"""Gradients of fully connected ReLU networks without autograd, in reusable buffers.

Autograd is expensive when steps are small: it allocates every weight gradient and reads it back for
the update. For a stack of linear layers with ReLU between them the backward pass is short
(Rumelhart, Hinton, Williams 1986), buffers can be reused, and matrix multiplication adds the update
to the weights directly. ``find_explicit_layers`` recognises such models. Any loss works: its
gradient at the network's outputs is computed elsewhere.
benchmarks/round_speed.py and table_speed.py measure the gain.

| symbol                             | name             |
|------------------------------------|------------------|
| h_j (input of layer j)             | inputs           |
| W_j, b_j                           | weight, bias     |
| d loss / d (W_j h_j + b_j)         | output_gradient  |
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.module import (
    _global_backward_hooks,
    _global_backward_pre_hooks,
    _global_forward_hooks,
    _global_forward_pre_hooks,
)

# Torch calls these for every module.
_GLOBAL_HOOKS = (
    _global_forward_hooks,
    _global_forward_pre_hooks,
    _global_backward_hooks,
    _global_backward_pre_hooks,
)


@dataclass(frozen=True, eq=False)
class _Buffers:
    """Buffers for one batch size: each layer's output and the gradient at its input.

    The gradient at the first layer's input is never needed and has no buffer.
    """

    outputs: list[Tensor]
    gradients: list[Tensor]
    ones: Tensor


class ExplicitLayers:
    """A stack of linear layers with ReLU between them; the layers are the workspace's own.

    The layers' parameters must not be reallocated: views of them are taken once, because looking up
    a module's weight thousands of times costs as much as a small matrix product.
    """

    def __init__(self, layers: list[nn.Linear]) -> None:
        self._weights = [layer.weight.detach() for layer in layers]
        self._transposed = [weight.t() for weight in self._weights]
        biases = [layer._parameters["bias"] for layer in layers]
        self._biases = [None if bias is None else bias.detach() for bias in biases]
        self._room = self._allocate(0)
        self._views = {0: self._room}
        self._inputs: list[Tensor] = []

    @property
    def shapes(self) -> tuple[tuple[int, int, bool], ...]:
        """Outputs and inputs of each layer, and whether it has an intercept."""
        pairs = zip(self._weights, self._biases, strict=True)
        return tuple((*weight.shape, bias is not None) for weight, bias in pairs)

    def forward(self, x: Tensor) -> Tensor:
        """Return the network's outputs, in a buffer that the next call overwrites."""
        outputs = self._buffers_for(len(x)).outputs
        self._inputs = [x, *outputs[:-1]]
        last = len(outputs) - 1
        for number, output in enumerate(outputs):
            bias = self._biases[number]
            if bias is None:
                torch.mm(self._inputs[number], self._transposed[number], out=output)
            else:
                torch.addmm(bias, self._inputs[number], self._transposed[number], out=output)
            if number < last:
                output.relu_()
        return outputs[-1]

    def descend(self, output_gradient: Tensor, rate: float) -> None:
        """Propagate the gradient at the outputs back and take one step of this rate."""
        self._propagate(output_gradient, self._weights, self._biases, -rate)

    def add_gradient(self, output_gradient: Tensor, slots: Sequence[Tensor]) -> None:
        """Propagate the gradient back and add each parameter's gradient to its slot."""
        rest = iter(slots)
        both = [(next(rest), None if bias is None else next(rest)) for bias in self._biases]
        self._propagate(output_gradient, [w for w, _ in both], [b for _, b in both], 1.0)

    def squared_row_lengths(self, output_gradient: Tensor) -> Tensor:
        """Return |d loss_i / d parameters|^2 of every row, without any row's own gradient.

        Row i's gradient of W_j is an outer product, so its length is the product of two lengths
        (Goodfellow: Efficient per-example gradient computations, 2015).
        """
        gradients, total = self._buffers_for(len(output_gradient)).gradients, None
        for number in range(len(self._weights) - 1, -1, -1):
            inputs = self._inputs[number]
            lengths = inputs.square().sum(dim=1)
            if self._biases[number] is not None:
                lengths += 1.0
            lengths *= output_gradient.square().sum(dim=1)
            total = lengths if total is None else total + lengths
            if number > 0:
                output_gradient = self._passed_on(output_gradient, number, gradients[number])
        return torch.zeros(0) if total is None else total

    def _passed_on(self, output_gradient: Tensor, number: int, out: Tensor) -> Tensor:
        """Return the gradient at a layer's inputs, before the ReLU that they come from."""
        torch.mm(output_gradient, self._weights[number], out=out)
        torch.ops.aten.threshold_backward.grad_input(out, self._inputs[number], 0, grad_input=out)
        return out

    def _propagate(
        self,
        output_gradient: Tensor,
        weights: Sequence[Tensor],
        biases: Sequence[Tensor | None],
        factor: float,
    ) -> None:
        """Add ``factor`` times the gradients to these weights and biases, last layer first.

        A layer passes its gradient on before its weights change.
        """
        buffers = self._buffers_for(len(output_gradient))
        for number in range(len(weights) - 1, -1, -1):
            inputs, bias = self._inputs[number], biases[number]
            passed_on = buffers.gradients[number]
            if number > 0:
                self._passed_on(output_gradient, number, passed_on)
            transposed = output_gradient.t()
            weights[number].addmm_(transposed, inputs, alpha=factor)
            if bias is not None:
                bias.addmv_(transposed, buffers.ones, alpha=factor)
            output_gradient = passed_on

    def _buffers_for(self, rows: int) -> _Buffers:
        """Return buffers for a batch of this size: the first rows of the largest buffers."""
        if rows > len(self._room.ones):
            self._room = self._allocate(rows)
            self._views = {}
        if rows not in self._views:
            self._views[rows] = _Buffers(
                [buffer[:rows] for buffer in self._room.outputs],
                [buffer[:rows] for buffer in self._room.gradients],
                self._room.ones[:rows],
            )
        return self._views[rows]

    def _allocate(self, rows: int) -> _Buffers:
        new = self._weights[0].new_empty
        return _Buffers(
            [new(rows, weight.shape[0]) for weight in self._weights],
            [
                new(rows, weight.shape[1] if number else 0)
                for number, weight in enumerate(self._weights)
            ],
            self._weights[0].new_ones(rows),
        )


def find_explicit_layers(model: nn.Module) -> ExplicitLayers | None:
    """Recognise a stack of linear layers with ReLU between them; None for any other model.

    Only exact types with nothing added or replaced: a subclass, a shared weight, a hook, a patched
    ``forward`` or a parameter of the stack itself may change what the model computes.
    """
    modules = list(model) if type(model) is nn.Sequential else [model]
    layers = [module for module in modules[::2] if type(module) is nn.Linear]
    alternating = len(layers) == len(modules[::2]) and all(
        type(module) is nn.ReLU for module in modules[1::2]
    )
    if not alternating or len(modules) % 2 == 0:
        return None
    if not all(_is_unmodified(module) for module in (model, *modules)):
        return None
    both = [(layer._parameters.get("weight"), layer._parameters.get("bias")) for layer in layers]
    if any(weight is None for weight, _ in both):
        return None
    expected = [parameter for pair in both for parameter in pair if parameter is not None]
    # Compare with what training sees: no other parameter, none shared, and all in this order.
    found = list(model.parameters())
    if len(found) != len(expected) or any(a is not b for a, b in zip(found, expected, strict=True)):
        return None
    if not all(type(own) is nn.Parameter and own.requires_grad for own in expected):
        return None
    return ExplicitLayers(layers)


def has_global_hooks() -> bool:
    """Return whether global module hooks are set right now; they can change at any time."""
    return any(_GLOBAL_HOOKS)


def _is_unmodified(module: nn.Module) -> bool:
    """Return whether calling this module runs the code of its class, and nothing else."""
    hooks = (
        module._forward_hooks,
        module._forward_pre_hooks,
        module._backward_hooks,
        module._backward_pre_hooks,
    )
    kind = type(module)
    # An instance attribute hides the class's, for example a patched forward.
    hidden = any(hasattr(kind, name) or name in module._parameters for name in vars(module))
    if hidden or any(hooks):
        return False
    return kind.forward.__module__ == kind.__module__ and not hasattr(kind.forward, "__wrapped__")
