"""The reply of many is the sum of the replies of each, whoever else is asked and in what order."""

import torch

from fedminmax.core.messages import Moment, Sums
from fedminmax.federation.train import start_of
from tests.contract.cases import Case, ask, every_method
from tests.problems import softmax_problem

PROBLEM = softmax_problem([[4, 0, 2], [1, 5, 0], [0, 0, 3]], seed=2, classes=2)


def assert_sum(total: Sums, parts: list[Sums]) -> None:
    for name in ("step", "group_loss", "group_count", "holder_loss", "holder_count", "statistics"):
        expected = torch.stack([getattr(part, name) for part in parts]).sum(dim=0)
        torch.testing.assert_close(getattr(total, name), expected, rtol=0, atol=1e-12)
    for name in ("scale", "curvature", "gradient_evaluations"):
        difference = getattr(total, name) - sum(getattr(part, name) for part in parts)
        assert abs(difference) < 1e-12


@every_method
def test_asking_all_is_asking_each_and_adding(case: Case) -> None:
    federation, method = PROBLEM.federation(), case.mini_batch
    order = method.order(start_of(federation, method).state, Moment(seed=3, round=2))
    backwards = [ask(federation, method, order, [number]) for number in (2, 1, 0)]
    first = backwards[0]
    assert float(first.step.norm() + first.statistics.norm() + first.holder_loss.norm()) > 1e-3
    assert_sum(ask(federation, method, order, [0, 1, 2]), backwards)
    assert_sum(ask(federation, method, order, [0, 2]), [backwards[2], backwards[0]])
