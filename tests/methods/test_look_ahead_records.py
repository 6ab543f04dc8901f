"""FedAvgFast: the plain optimum, as scikit-learn and least squares find it, in a few rounds."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn

from fedminmax.core.losses import brier_loss, cross_entropy_loss, squared_error_loss
from fedminmax.methods.look_ahead import FedAvgFast
from fedminmax.training.simulation import Simulation
from fedminmax.training.train import train
from tests.methods.look_ahead_problems import by_group, classes, network


def test_logistic_regression_is_that_of_scikit_learn() -> None:
    """A ridge m/2 |theta|^2 on the mean of n rows is scikit-learn's with C = 1 / (m n)."""
    x, y, group = classes(0, 5, 3, 4)
    model = nn.Linear(x.shape[1], int(y.max()) + 1, bias=False).double()
    federation = Simulation(model, cross_entropy_loss, by_group((x, y, group)), ridge=1e-2)
    *_, last = train(federation, FedAvgFast(optimality_gap=0.0), rounds=12)
    other = LogisticRegression(C=1 / (1e-2 * len(x)), fit_intercept=False, tol=1e-12, max_iter=5000)
    other.fit(x.numpy(), y.numpy())
    ours = last.members[0].reshape(model.weight.shape).numpy()
    shares = torch.softmax(x @ torch.from_numpy(ours).T, dim=1).numpy()
    np.testing.assert_allclose(shares, other.predict_proba(x.numpy()), atol=1e-6)


def test_least_squares_take_one_round() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, 3, dtype=torch.float64, generator=generator)
    y = torch.randn(40, dtype=torch.float64, generator=generator)
    group = torch.arange(40) % 2
    model = nn.Linear(3, 1, bias=False).double()
    federation = Simulation(model, squared_error_loss, [(x, y, group)])
    *_, last = train(federation, FedAvgFast(), rounds=5)
    least = np.linalg.lstsq(x.numpy(), y.numpy(), rcond=None)[0]
    np.testing.assert_allclose(last.members[0].numpy(), least, atol=1e-9)
    assert last.number <= 2


@pytest.mark.parametrize("model", [nn.Linear(3, 2).double(), network(0)])
def test_the_mean_risk_never_rises_and_nobody_is_weighed(model: nn.Module) -> None:
    rows = classes(3, 3, 3, 2)
    federation = Simulation(model, brier_loss, by_group(rows))
    shares = federation.census.group_shares
    best = float("inf")
    for done in train(federation, FedAvgFast(optimality_gap=0.0), rounds=15):
        assert len(done.weights) == 0
        assert done.certificate is None
        answer = federation.model(done.members[0])
        mean = float(brier_loss(answer(rows[0]), rows[1]).mean().detach())
        assert mean <= best + 1e-12
        best = mean
    first = float(shares @ next(train(federation, FedAvgFast(), rounds=1)).risks)
    assert best < 0.95 * first
