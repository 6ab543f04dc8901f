"""The synthetic population as rows: 10 per group and side, with exactly u_a of them labelled 1.

The model gives each side of 0 its own probability, so its minimum over the rows is the analytic
optimum of fedminmax.data.synthetic.
"""

from typing import Any

import torch
from torch import Tensor, nn

from fedminmax.core.losses import Loss, brier_loss
from fedminmax.data.synthetic import PROBABILITIES
from fedminmax.training.simulation import Simulation
from fedminmax.training.train import Round, train
from tests.problems import Rows

PER_CELL = 10


def rows() -> Rows:
    """One-hot side, label, group of all 40 rows."""
    cells = [(group, side) for group in (0, 1) for side in (0, 1)]
    labels = [
        int(number < round(PER_CELL * PROBABILITIES[group][side]))
        for group, side in cells
        for number in range(PER_CELL)
    ]
    side = torch.tensor([side for _, side in cells]).repeat_interleave(PER_CELL)
    group = torch.tensor([group for group, _ in cells]).repeat_interleave(PER_CELL)
    return nn.functional.one_hot(side, 2).to(torch.float64), torch.tensor(labels), group


def split_rows() -> list[Rows]:
    """The same rows at three sites, of which one has only group 0."""
    x, y, group = rows()
    parts = [torch.arange(0, 15), torch.arange(15, 40, 3)]
    rest = torch.tensor([row for row in range(15, 40) if row % 3])
    return [(x[part], y[part], group[part]) for part in [*parts, rest]]


def federation(sites: list[Rows] | None = None, *, loss: Loss = brier_loss) -> Simulation:
    """All rows at one site, or at these; every probability starts at 1/2."""
    model = nn.Linear(2, 2, bias=False, dtype=torch.float64)
    nn.init.zeros_(model.weight)
    return Simulation(model, loss, sites or [rows()])


def after(method: Any, fits: int, *, loss: Loss = brier_loss) -> Round[Any]:
    """The last round of this many outer steps."""
    return list(train(federation(loss=loss), method, rounds=fits * (method.fit_rounds + 1)))[-1]


def member_risks(members: Tensor) -> Tensor:
    """Brier risks [m, 2] of models, each given by the logits theta[class, side]."""
    x, y, group = rows()
    losses = torch.stack([brier_loss(x @ theta.view(2, 2).T, y) for theta in members])
    return torch.stack([losses[:, group == a].mean(dim=1) for a in (0, 1)], dim=1)


def mixture_risks(members: Tensor) -> list[float]:
    """Brier risks of the uniform mixture: the means of the members' risks."""
    risks: list[float] = member_risks(members).mean(dim=0).tolist()
    return risks
