"""The models of Papadaki et al. 2021, Appendix B, as ordinary torch modules.

The paper leaves open the activation (we take ReLU), and the CNN's channels and head (we take
16 and 32 channels and one linear layer). None of them has batch statistics, so that a gradient
over the union of holders is the sum of the holders' gradients.
"""

from collections.abc import Iterable, Sequence

from torch import nn

from fedminmax.core.errors import InputError
from fedminmax.core.numbers import is_whole


def linear(features: int, outputs: int) -> nn.Module:
    """One affine map: logistic regression under a softmax loss, least squares for regression."""
    return nn.Linear(_size("features", features), _size("outputs", outputs))


def mlp(features: int, outputs: int, hidden: Sequence[int] = (512, 512, 512, 512)) -> nn.Module:
    """Fully connected network with ReLU; the default is the paper's, four layers of 512."""
    layers: list[nn.Module] = []
    width = _size("features", features)
    for next_width in checked_widths(hidden):
        layers += [nn.Linear(width, next_width), nn.ReLU()]
        width = next_width
    return nn.Sequential(*layers, nn.Linear(width, _size("outputs", outputs)))


def checked_widths(hidden: Sequence[int]) -> tuple[int, ...]:
    """Return the widths of hidden layers as plain numbers, or say what is wrong with them.

    >>> checked_widths(8)
    Traceback (most recent call last):
    fedminmax.core.errors.InputError: hidden = 8; give the width of each layer, such as (64, 64)
    """
    given: object = hidden
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InputError(f"hidden = {given!r}; give the width of each layer, such as (64, 64)")
    return tuple(_size("width", width) for width in given)


def linear_or_mlp(features: int, outputs: int, hidden: Sequence[int]) -> nn.Module:
    """Return a network as torch draws it; without hidden layers a linear model that starts at 0.

    >>> linear_or_mlp(2, 1, ()).weight.tolist()
    [[0.0, 0.0]]
    """
    widths = checked_widths(hidden)
    if widths:
        return mlp(features, outputs, widths)
    model = linear(features, outputs)
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    return model


def cnn(
    image: tuple[int, int, int] = (1, 28, 28),
    outputs: int = 10,
    channels: tuple[int, int] = (16, 32),
) -> nn.Module:
    """Two 3x3 convolutions (stride 1, padding 1), each with 2x2 max-pooling and ReLU, one head.

    ReLU after pooling is the same function as before it, on a quarter of the numbers.
    """
    depth, height, width = _sizes("image", image, 3)
    first, second = _sizes("channels", channels, 2)
    if min(height, width) < 4:
        raise InputError(f"image = {image!r}; give images of at least 4 by 4 pixels")
    return nn.Sequential(
        nn.Conv2d(depth, first, kernel_size=3, stride=1, padding=1),
        nn.MaxPool2d(kernel_size=2, stride=2),
        nn.ReLU(),
        nn.Conv2d(first, second, kernel_size=3, stride=1, padding=1),
        nn.MaxPool2d(kernel_size=2, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(second * (height // 4) * (width // 4), outputs),
    )


def _size(name: str, value: int) -> int:
    if not is_whole(value, 1):
        raise InputError(f"{name} = {value!r}; give a whole number of at least 1")
    return int(value)


def _sizes(name: str, given: Sequence[int], count: int) -> tuple[int, ...]:
    if len(given) != count:
        raise InputError(f"{name} = {given!r}; give {count} whole numbers")
    return tuple(_size(name, value) for value in given)
