"""Which models take their steps without autograd."""

from torch import nn

from fedminmax.core.explicit_layers import ExplicitLayers


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
