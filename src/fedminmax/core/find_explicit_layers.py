"""Which models take their steps without autograd."""

from torch import nn
from torch.nn.modules.module import (
    _global_backward_hooks,
    _global_backward_pre_hooks,
    _global_forward_hooks,
    _global_forward_pre_hooks,
)

from fedminmax.core.explicit_layers import ExplicitLayers

# Torch calls these for every module.
_HOOKS_ON_ALL_MODULES = (
    _global_forward_hooks,
    _global_forward_pre_hooks,
    _global_backward_hooks,
    _global_backward_pre_hooks,
)


def find_explicit_layers(model: nn.Module) -> ExplicitLayers | None:
    """Recognise a stack of linear layers with ReLU between them; None for any other model.

    Exact types only, with nothing added or replaced: a subclass, a shared weight, a hook, a patched
    ``forward`` or a parameter of the stack itself may make the model compute something else.
    """
    modules = list(model) if type(model) is nn.Sequential else [model]
    layers = [module for module in modules[::2] if type(module) is nn.Linear]
    alternating = len(layers) == len(modules[::2]) and all(
        type(module) is nn.ReLU for module in modules[1::2]
    )
    if not alternating or len(modules) % 2 == 0:
        return None
    if not all(_is_as_torch_made_it(module) for module in (model, *modules)):
        return None
    both = [(layer._parameters.get("weight"), layer._parameters.get("bias")) for layer in layers]
    if any(weight is None for weight, _ in both):
        return None
    expected = [parameter for pair in both for parameter in pair if parameter is not None]
    # Compared with what training sees: no other parameter, none shared, and all in this order.
    found = list(model.parameters())
    if len(found) != len(expected) or any(a is not b for a, b in zip(found, expected, strict=True)):
        return None
    if not all(type(own) is nn.Parameter and own.requires_grad for own in expected):
        return None
    return ExplicitLayers(layers)


def hooked_everywhere() -> bool:
    """Tell whether hooks on all modules are set at this moment: they come and go."""
    return any(_HOOKS_ON_ALL_MODULES)


def _is_as_torch_made_it(module: nn.Module) -> bool:
    """Tell whether calling this module runs the code of its class, and nothing else."""
    hooks = (
        module._forward_hooks,
        module._forward_pre_hooks,
        module._backward_hooks,
        module._backward_pre_hooks,
    )
    kind = type(module)
    # An attribute of the instance hides the class's: a forward of its own, for one.
    hidden = any(hasattr(kind, name) or name in module._parameters for name in vars(module))
    if hidden or any(hooks):
        return False
    return kind.forward.__module__ == kind.__module__ and not hasattr(kind.forward, "__wrapped__")
