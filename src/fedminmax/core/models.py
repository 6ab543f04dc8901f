"""The models of Papadaki et al. 2021, Appendix B, as ordinary torch modules.

The paper leaves open the activation (we take ReLU), and the CNN's channels and head (we take
16 and 32 channels and one linear layer). None of them has batch statistics, so that a gradient
over the union of holders is the sum of the holders' gradients.
"""

from collections.abc import Sequence

from torch import nn


def linear(features: int, outputs: int) -> nn.Module:
    """One affine map: logistic regression under a softmax loss, least squares for regression."""
    return nn.Linear(features, outputs)


def mlp(features: int, outputs: int, hidden: Sequence[int] = (512, 512, 512, 512)) -> nn.Module:
    """Fully connected network with ReLU; the default is the paper's, four layers of 512."""
    layers: list[nn.Module] = []
    width = features
    for next_width in hidden:
        layers += [nn.Linear(width, next_width), nn.ReLU()]
        width = next_width
    return nn.Sequential(*layers, nn.Linear(width, outputs))


def linear_or_mlp(features: int, outputs: int, hidden: Sequence[int]) -> nn.Module:
    """Return a network as torch draws it; without hidden layers a linear model that starts at 0.

    >>> linear_or_mlp(2, 1, ()).weight.tolist()
    [[0.0, 0.0]]
    """
    if hidden:
        return mlp(features, outputs, hidden)
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
    depth, height, width = image
    first, second = channels
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
