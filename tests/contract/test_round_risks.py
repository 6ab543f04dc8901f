"""The risks of round t are those of theta^{t-1}, evaluated here in numpy from the one-hot form."""

import numpy as np

from fedminmax.core.iterates import Iterate
from fedminmax.federation.train import train
from tests.contract.cases import Case, every_method
from tests.oracles import brier_losses
from tests.problems import softmax_problem, to_numpy

PROBLEM = softmax_problem([[4, 0, 2], [1, 5, 0], [0, 0, 3]], seed=2, classes=2)


@every_method
def test_group_risks_are_those_of_the_model_that_entered_the_round(case: Case) -> None:
    rows = PROBLEM.numpy_rows()
    group = np.concatenate([own for _, _, own in rows])
    theta = PROBLEM.start
    for done in train(PROBLEM.federation(), case.mini_batch, rounds=5):
        losses = np.concatenate([brier_losses(PROBLEM, theta, x, y) for x, y, _ in rows])
        expected = [losses[group == a].mean() for a in range(3)]
        np.testing.assert_allclose(to_numpy(done.risks), expected, atol=1e-13)
        assert done.worst_group == str(int(np.argmax(expected)))
        assert abs(done.worst_risk - max(expected)) < 1e-13
        theta = to_numpy(done.parameters(Iterate.LAST))
