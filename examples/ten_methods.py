"""Ten methods side by side, on data of your own.

``fedminmax compare`` does this on the built-in data sets. For your own tensors a loop is enough:
every method is a record, and ``train`` runs them all in the same way. The data are made up so that
differences show: two groups, of which the smaller one follows another pattern, at twelve sites
with different mixes.

The table has the risk of each group on new rows. Methods for the worst-off group end at nearly
equal risks. FedAvg leaves the small group behind; methods for sites are in between.
"""

from typing import Any

import torch

from fedminmax import FedAvg, FedMinMax, FedMinMaxFast, Simulation, fit, methods
from fedminmax.data import partition_by_dirichlet
from fedminmax.losses import cross_entropy_loss
from fedminmax.models import linear

TEN: dict[str, tuple[Any, int]] = {
    "FedMinMaxFast": (FedMinMaxFast(), 50),
    "FedMinMax": (FedMinMax(adversary_rate=0.5), 300),
    "FedMinMaxLocal": (methods.FedMinMaxLocal(0.3, adversary_rate=0.5, epochs=2), 60),
    "GroupSCAFFPD": (methods.GroupSCAFFPD(), 60),
    "GroupTERM, tilt 5": (methods.GroupTERM(tilt=5.0), 300),
    "APStar": (methods.APStar(), 300),
    "FedAvg": (FedAvg(0.3, epochs=2), 60),
    "QFedAvg, q 1": (methods.QFedAvg(q=1.0), 60),
    "AFLFast": (methods.AFLFast(), 50),
    "AFL": (methods.AFL(), 300),
}


def draw_rows(rows: int, rare: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Draw features, labels and groups; group 1 follows another pattern."""
    generator = torch.Generator().manual_seed(rows)
    x = torch.randn(rows, 4, generator=generator)
    group = (torch.rand(rows, generator=generator) < rare).long()
    direction = torch.where(group == 1, x[:, 1], x[:, 0])
    y = (direction + 0.5 * torch.randn(rows, generator=generator) > 0).long()
    return x, y, group


def main() -> None:
    """Train each method from the same start, and print a line for each."""
    x, y, group = draw_rows(6000, rare=0.2)
    places = partition_by_dirichlet(group, sites=12, concentration=2.0, seed=0)
    sites = [(x[rows], y[rows], group[rows]) for rows in places]
    new_x, new_y, new_group = draw_rows(5000, rare=0.5)
    print(f"{'method':20} {'group 0':>8} {'group 1':>8} {'rounds':>7}")
    for name, (method, rounds) in TEN.items():
        federation = Simulation(linear(4, 2), cross_entropy_loss, sites)
        done = fit(federation, method, rounds=rounds, seed=0)
        with torch.no_grad():
            losses = cross_entropy_loss(done.model()(new_x), new_y)
        risks = [float(losses[new_group == number].mean()) for number in (0, 1)]
        print(f"{name:20} {risks[0]:8.4f} {risks[1]:8.4f} {done.number:7}")


if __name__ == "__main__":
    main()
