"""A method of your own: the mean risk of the worst-off share of people.

Minimax looks at one group alone, the mean at all of them alike. Between the two: take the groups
from the worst-off one on until they are half of all rows (``share``), and minimise their mean risk.
With weights mu over groups this is

    max over mu of sum_a mu_a r_a,  where 0 <= mu_a <= rho_a / share and sum_a mu_a = 1,

the superquantile of group risks (Laguel, Pillutla, Malick, Harchaoui: *A superquantile approach to
federated learning with heterogeneous devices*, 2021, for devices in place of groups). ``share=1``
is the mean risk, and a small share minimax. The best weights are known in closed form: fill up the
groups in the order of their risks.

How the pieces go together, and how to make a package of them:
[your own method](../docs/own_method.md).
"""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from fedminmax import Simulation, fit
from fedminmax.extend import (
    Census,
    FedMinMaxState,
    Iterate,
    MethodCard,
    Order,
    Over,
    Pace,
    Reveals,
    RoundKey,
    RowWeights,
    Sums,
    Weights,
    check_positive,
    check_share,
    descend,
    weigh_by_group,
)
from fedminmax.losses import squared_error_loss
from fedminmax.testing import check_method


@MethodCard(
    key="worst-share",
    paper="Laguel et al. 2021, with groups in place of devices",
    optimises="mean risk of the worst-off share of rows",
    over=Over.GROUPS,
    pace=Pace.ONE_STEP,
    weights=Weights.GROUPS,
)
@dataclass(frozen=True)
class WorstShare:
    """Minimise the mean risk of the worst-off groups that make up a share of all rows."""

    learning_rate: float = 0.1
    share: float = 0.5
    name: str = "WorstShare"
    output: Iterate = Iterate.TAIL_AVERAGE
    reveals: Reveals = field(default=Reveals.SUMS, init=False)

    def __post_init__(self) -> None:
        check_positive(self.name, learning_rate=self.learning_rate)
        check_share(self.name, share=self.share)

    def init(self, parameters: Tensor, census: Census) -> FedMinMaxState:
        """Begin with the groups' shares of all rows."""
        return FedMinMaxState(parameters, census.group_shares, census.group_shares, census.included)

    def order(self, state: FedMinMaxState, key: RoundKey) -> Order:
        """Send the model, and mu / rho as the weight of a row."""
        return Order(key, state.parameters, state.weights / state.group_shares)

    def weigh(self, order: Order, sites: Tensor, counts: Tensor) -> RowWeights:
        """Weigh rows by their group alone."""
        return weigh_by_group(order, sites, counts)

    def update(self, state: FedMinMaxState, total: Sums) -> FedMinMaxState:
        """Take the step, and fill up the groups; those that were absent keep their weight."""
        moves = (total.group_count > 0) & state.included
        mass = state.weights[moves].sum()
        order = total.group_risks[moves].argsort(descending=True, stable=True)
        limits = state.group_shares[moves][order]
        limits = limits * (mass / limits.sum() / self.share)
        filled = limits.cumsum(0).clamp(max=float(mass))
        filled = torch.diff(filled, prepend=filled.new_zeros(1))
        weights = state.weights.masked_scatter(moves, filled[order.argsort()])
        return replace(state, parameters=descend(state.parameters, total), weights=weights)


def main() -> None:
    """Check the contract that every method keeps; then train for three different shares."""
    check_method(WorstShare(learning_rate=0.3))
    print("WorstShare fulfils the contract")
    generator = torch.Generator().manual_seed(0)
    sites = []
    for group, (rows, centre) in enumerate([(500, 0.0), (300, 1.0), (200, 3.0)]):
        y = centre + torch.randn(rows, generator=generator)
        sites.append((torch.ones(rows, 1), y, torch.full((rows,), group)))
    for share in (1.0, 0.5, 0.2):
        model = torch.nn.Linear(1, 1, bias=False)
        federation = Simulation(model, squared_error_loss, sites)
        done = fit(federation, WorstShare(0.05, share=share), rounds=300)
        print(share, [round(risk, 3) for risk in done.risks.tolist()])


if __name__ == "__main__":
    main()
