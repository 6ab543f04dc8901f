"""The order of the holders is a matter of numbering: the model must not depend on it."""

import torch

from fedminmax.core.iterates import Iterate
from fedminmax.federation.train import train
from tests.contract.cases import Case, Over, every_method_without_lots
from tests.problems import softmax_problem

PROBLEM = softmax_problem([[4, 0, 2], [1, 5, 0], [0, 0, 3], [2, 2, 2]], seed=2, classes=2)
ORDER = [2, 0, 3, 1]


@every_method_without_lots
def test_permuting_holders_permutes_their_weights_and_changes_nothing_else(case: Case) -> None:
    permuted = [PROBLEM.holders[number] for number in ORDER]
    plain = list(train(PROBLEM.federation(), case.full_batch, rounds=15))
    mixed = list(train(PROBLEM.federation(holders=permuted), case.full_batch, rounds=15))
    moved = plain[-1].parameters(Iterate.LAST) - torch.from_numpy(PROBLEM.start)
    assert float(moved.norm()) > 1e-2
    for one, other in zip(plain, mixed, strict=True):
        torch.testing.assert_close(
            one.parameters(Iterate.LAST),
            other.parameters(Iterate.LAST),
            rtol=0,
            atol=case.tolerance,
        )
        torch.testing.assert_close(one.risks, other.risks, rtol=0, atol=case.tolerance)
        by_holder = case.weights_over in (Over.HOLDERS, Over.HOLDERS_AHEAD)
        expected = one.weights[ORDER] if by_holder else one.weights
        torch.testing.assert_close(other.weights, expected, rtol=0, atol=case.tolerance)
