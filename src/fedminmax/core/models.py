"""The models of Papadaki et al. 2021, Appendix B, and mixtures of models, as torch modules.

The paper leaves open the activation (we take ReLU), and the CNN's channels and head (we take
16 and 32 channels and one linear layer). None of the models has batch statistics, so that a
gradient over the union of sites is the sum of the sites' gradients.
"""

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from fedminmax.core.errors import InputError
from fedminmax.core.task import Task
from fedminmax.core.text import is_whole
from fedminmax.core.workspace import model_with


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
    """Return the widths of hidden layers as integers; raise an ``InputError`` if invalid.

    >>> checked_widths(8)
    Traceback (most recent call last):
    fedminmax.core.errors.InputError: hidden = 8; give the width of each layer, such as (64, 64)
    """
    given: object = hidden
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InputError(f"hidden = {given!r}; give the width of each layer, such as (64, 64)")
    return tuple(_size("width", width) for width in given)


def linear_or_mlp(features: int, outputs: int, hidden: Sequence[int]) -> nn.Module:
    """Return a randomly initialised network; without hidden layers, a linear model of zeros.

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


class Mixture(nn.Module):
    """A mixture of models with equal shares, as one torch module.

    Several papers return a mixture: for each row, one of its models is drawn at random. Its
    expected loss is the mean of its members' losses. ``forward`` averages predictions instead of
    drawing: for a loss that is convex in the prediction this is at least as good (Jensen), and the
    prediction does not change from one call to the next.

    Args:
        members: at least one model; all give outputs of the same shape.
        classifies: outputs are logits of classes, and the members' probabilities are averaged;
            False averages the outputs themselves, for regression.

    >>> Mixture([nn.Identity(), nn.ReLU()], classifies=False)(torch.tensor([[-2.0]])).tolist()
    [[-1.0]]
    """

    def __init__(self, members: Sequence[nn.Module], *, classifies: bool) -> None:
        super().__init__()
        if isinstance(members, nn.Module) or not all(isinstance(m, nn.Module) for m in members):
            raise InputError("the members of a mixture are torch modules; give a list of them")
        if not members:
            raise InputError("a mixture of no models cannot predict; give at least one model")
        self.members = nn.ModuleList(members)
        self.classifies = classifies

    def forward(self, x: Tensor) -> Tensor:
        """Return the logarithm of the mean probabilities, or the mean output.

        The members are added one at a time, so memory does not grow with their number.
        """
        first, *others = self.members
        total = self._prediction(first, x)
        for member in others:
            own = self._prediction(member, x)
            total = torch.logaddexp(total, own) if self.classifies else total + own
        share = len(self.members)
        return total - math.log(share) if self.classifies else total / share

    def draw(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Return for each row the outputs of one member, drawn at random."""
        drawn = torch.randint(len(self.members), (len(x),), generator=generator).to(x.device)
        outputs = torch.cat([member(x[drawn == m]) for m, member in enumerate(self.members)])
        # The outputs are grouped by member: restore the order of the rows.
        return outputs[drawn.argsort(stable=True).argsort()]

    def _prediction(self, member: nn.Module, x: Tensor) -> Tensor:
        outputs: Tensor = member(x)
        return torch.log_softmax(outputs, dim=1) if self.classifies else outputs


def single_model(models: Sequence[nn.Module], *, classifies: bool) -> nn.Module:
    """Return a single model unchanged, several as their mixture, ready to predict."""
    return models[0] if len(models) == 1 else Mixture(models, classifies=classifies).eval()


def mixture_with(task: Task, members: Tensor, *, classifies: bool) -> Mixture:
    """Return a mixture of copies of the task's model, one with each line's parameters."""
    models = [model_with(task, parameters) for parameters in members]
    return Mixture(models, classifies=classifies).eval()
