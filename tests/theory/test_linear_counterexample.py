"""Lemma 1's last claim needs uniqueness: a documentation test.

theta in [0, 1], r_0 = theta, r_1 = 1 - theta, one site with both groups alike. Its risk is
1/2 for every theta, so every theta is minimax over sites, and AFL stays where it starts. Yet
theta = 1 leaves group 0 with risk 1, twice the group minimax value 1/2.

FedMinMax: the regret of both players with D_theta = 1 on [0, 1], gradient at most
1, D_mu^2 <= 1/2 from the middle of the simplex and risks within [-.5, 1.5] on this run bounds
the gap of the averages by 1/(2 eta T) + eta/2 + 1/(4 eta T) + 2.25 eta = .0651 for eta = .01 and
T = 2000; the minimum of mu_0 theta + mu_1 (1 - theta) over [0, 1] is at most 1/2.
"""

import torch
from torch import Tensor

from fedminmax.core.iterates import Iterate
from fedminmax.methods.afl import AFL
from fedminmax.methods.fedminmax import FedMinMax
from fedminmax.training.simulation import Simulation
from fedminmax.training.train import train
from tests.problems import Point, points


def linear_risk(outputs: Tensor, targets: Tensor) -> Tensor:
    """theta where the target is 0, and 1 - theta where it is 1."""
    return torch.where(targets[:, 0] == 0.0, outputs[:, 0], 1.0 - outputs[:, 0])


def federation() -> Simulation:
    return Simulation(Point([1.0]), linear_risk, [points([[[0.0]], [[1.0]]])])


def test_every_model_is_minimax_over_the_site_so_afl_stays_at_the_worst_one() -> None:
    done = list(train(federation(), AFL(), rounds=50))[-1]
    assert done.parameters(Iterate.LAST).tolist() == [1.0]
    assert done.total.site_risks.tolist() == [0.5]
    assert done.risks.tolist() == [1.0, 0.0]


def test_fedminmax_finds_the_minimax_model_over_groups() -> None:
    method = FedMinMax(learning_rate=0.01, adversary_rate=0.01)
    rounds = list(train(federation(), method, rounds=2000))
    assert all(-0.5 <= float(done.risks.min()) <= 1.5 for done in rounds)
    theta = float(rounds[-1].parameters(Iterate.AVERAGE))
    assert max(theta, 1.0 - theta) <= 0.5 + 0.0651
