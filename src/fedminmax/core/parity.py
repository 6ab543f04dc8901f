"""Parity of rates over groups, for classifiers of two classes of which 1 is the positive one.

Demographic parity is the same rate of positive answers in every group. Equal opportunity (Hardt,
Price, Srebro: Equality of opportunity in supervised learning, NeurIPS 2016) is the same rate among
the rows whose label is positive. With more than two groups the disparity is the largest difference
between two of them. All rates are quotients of sums by cell (label, group), so they can be taken
over a federation. Scores, the probabilities of the positive class, are here as well.
"""

from enum import Enum

import torch
from torch import Tensor

from fedminmax.core.errors import InputError
from fedminmax.core.examples import Examples
from fedminmax.core.messages import Census
from fedminmax.core.workspace import Workspace

LABELS = 2


class Parity(Enum):
    """Which rows a group's rate is taken over."""

    DEMOGRAPHIC = "demographic parity"
    OPPORTUNITY = "equal opportunity"


def check_two_classes(method: str, census: Census) -> None:
    """Refuse to measure parity where there is no positive class."""
    if census.classes != LABELS:
        found = f"{census.classes} classes" if census.classes else "quantities to predict"
        raise InputError(
            f"{method} needs labels of two classes, got {found}; "
            "choose a method that needs no rate of positive answers, such as FedMinMax"
        )


def cells_of(examples: Examples, groups: int) -> Tensor:
    """Return each row's cell: label times the number of groups, plus group."""
    return examples.y * groups + examples.group


def sum_by_cell(values: Tensor, examples: Examples, groups: int) -> Tensor:
    """Add up one number per row by (label, group), in float64: [2, groups]."""
    sums = torch.bincount(
        cells_of(examples, groups), weights=values.to(torch.float64), minlength=LABELS * groups
    )
    return sums.cpu().view(LABELS, groups)


def count_by_cell(examples: Examples, groups: int) -> Tensor:
    """Count rows by (label, group): [2, groups]."""
    cells = torch.bincount(cells_of(examples, groups), minlength=LABELS * groups)
    return cells.cpu().view(LABELS, groups)


def group_rates(parity: Parity, positives: Tensor, counts: Tensor) -> Tensor:
    """Return each group's rate from sums by cell; NaN for a group without such rows.

    >>> positives = torch.tensor([[1.0, 0.0], [3.0, 0.0]])
    >>> counts = torch.tensor([[4, 0], [4, 0]])
    >>> group_rates(Parity.DEMOGRAPHIC, positives, counts).tolist()
    [0.5, nan]
    >>> group_rates(Parity.OPPORTUNITY, positives, counts).tolist()
    [0.75, nan]
    """
    if parity is Parity.OPPORTUNITY:
        return positives[1] / counts[1]
    return positives.sum(dim=0) / counts.sum(dim=0)


def largest_gap(rates: Tensor) -> float:
    """Return the largest difference between two groups' rates; 0 if fewer than two have one.

    >>> largest_gap(torch.tensor([0.25, float("nan"), 0.75]))
    0.5
    """
    known = rates[~rates.isnan()]
    return float(known.max() - known.min()) if len(known) else 0.0


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
