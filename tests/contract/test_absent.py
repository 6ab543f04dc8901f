"""Not seen in a round is not risk zero: whoever is absent keeps its weight to the last bit.

Group 2 lives at holder 2 alone, so it is absent whenever that holder is not drawn.
"""

import torch

from fedminmax.federation.train import start_of, train
from tests.contract.cases import Case, Over, every_method
from tests.problems import softmax_problem

COUNTS = [[4, 1, 0], [1, 5, 0], [1, 0, 3], [2, 2, 0]]
PROBLEM = softmax_problem(COUNTS, seed=4, classes=2)


@every_method
def test_the_absent_keep_their_weight(case: Case) -> None:
    federation = PROBLEM.federation()
    weights = start_of(federation, case.full_batch).state.weights
    absences = changes = 0
    for done in train(federation, case.full_batch, rounds=30, seed=1, participation=0.5):
        seen = torch.tensor([number in done.participants for number in range(4)])
        group_seen = torch.tensor(COUNTS)[seen].sum(dim=0) > 0
        assert torch.equal(done.risks.isnan(), ~group_seen)
        if case.weights_over is Over.NOTHING:
            assert done.weights.numel() == 0
        if case.weights_over not in (Over.GROUPS, Over.HOLDERS):
            continue
        present = group_seen if case.weights_over is Over.GROUPS else seen
        assert torch.equal(done.weights[~present], weights[~present])
        assert abs(float(done.weights.sum()) - 1.0) < 1e-12
        absences += int((~present).sum())
        changes += int((done.weights[present] != weights[present]).sum())
        weights = done.weights
    if case.weights_over in (Over.GROUPS, Over.HOLDERS):
        assert absences > 5
        assert changes > 5


@every_method
def test_counts_are_those_of_the_participants(case: Case) -> None:
    for done in train(PROBLEM.federation(), case.full_batch, rounds=6, participation=0.5):
        expected = [sum(COUNTS[k][a] for k in done.participants) for a in range(3)]
        assert done.total.group_count.tolist() == expected
        assert len(done.participants) == 2
