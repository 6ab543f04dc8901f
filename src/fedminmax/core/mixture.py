"""A mixture of models with equal shares, as one torch module.

Several papers answer with a mixture: for each row, one of its models is drawn at random. Its
expected loss is the mean of its members' losses. ``forward`` averages predictions instead of
drawing: for a loss that is convex in the prediction this does at least as well (Jensen), and the
answer does not change from one call to the next.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fedminmax.core.errors import InputError
from fedminmax.core.task import Task
from fedminmax.core.workspace import model_with


class Mixture(nn.Module):
    """Models with equal shares.

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

        The members are added up one after another: memory does not grow with their number.
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
        # The outputs come member by member: put them back in the order of the rows.
        return outputs[drawn.argsort(stable=True).argsort()]

    def _prediction(self, member: nn.Module, x: Tensor) -> Tensor:
        outputs: Tensor = member(x)
        return torch.log_softmax(outputs, dim=1) if self.classifies else outputs


def as_one_model(models: Sequence[nn.Module], *, classifies: bool) -> nn.Module:
    """Return a single model as it is, several as their mixture, ready to predict."""
    return models[0] if len(models) == 1 else Mixture(models, classifies=classifies).eval()


def mixture_with(task: Task, members: Tensor, *, classifies: bool) -> Mixture:
    """Return a mixture of copies of the task's model, one with each line's parameters."""
    models = [model_with(task, parameters) for parameters in members]
    return Mixture(models, classifies=classifies).eval()
