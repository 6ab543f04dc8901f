"""How sure a classifier of two classes is that a row's answer is positive (class 1)."""

import torch
from torch import Tensor

from fedminmax.core.examples import Examples
from fedminmax.core.workspace import Workspace


def positive_scores(outputs: Tensor) -> Tensor:
    """Return p_1, the probability of class 1, from the model's outputs [n, 2].

    >>> positive_scores(torch.zeros(1, 2)).tolist()
    [0.5]
    """
    return torch.softmax(outputs, dim=1)[:, 1]


def positive_scores_of(workspace: Workspace, examples: Examples, rows_per_chunk: int) -> Tensor:
    """Return p_1 of each row at the loaded parameters."""
    with torch.no_grad():
        return torch.cat(
            [positive_scores(workspace.model(x)) for x in torch.split(examples.x, rows_per_chunk)]
        )


def positive_answers(scores: Tensor) -> Tensor:
    """Return 1 where class 1 is the likelier one, else 0, in float64.

    >>> positive_answers(torch.tensor([0.4, 0.5, 0.6])).tolist()
    [0.0, 0.0, 1.0]
    """
    return (scores > 0.5).to(torch.float64)
