"""Same seed, same numbers; nothing is taken from or left in torch's global random state."""

import torch

from fedminmax.core.iterates import OF_EVERY_RUN
from fedminmax.federation.train import train
from tests.contract.cases import (
    Case,
    Method,
    every_method,
    every_method_with_batches,
    every_method_without_lots,
)
from tests.problems import softmax_problem

PROBLEM = softmax_problem([[4, 0, 2], [1, 5, 0], [0, 0, 3], [2, 2, 2]], seed=2, classes=2)


def run(method: Method, seed: int, participation: float = 1.0) -> torch.Tensor:
    federation = PROBLEM.federation()
    rounds = train(federation, method, rounds=5, seed=seed, participation=participation)
    return torch.cat([done.parameters(which) for done in rounds for which in OF_EVERY_RUN])


@every_method
def test_the_same_seed_gives_the_same_bits_whatever_the_global_state(case: Case) -> None:
    torch.manual_seed(1)
    first = run(case.mini_batch, seed=7, participation=0.5)
    torch.manual_seed(2)
    torch.rand(3)
    assert torch.equal(run(case.mini_batch, seed=7, participation=0.5), first)


@every_method_with_batches
def test_mini_batches_depend_on_the_seed(case: Case) -> None:
    assert not torch.equal(run(case.mini_batch, seed=7), run(case.mini_batch, seed=8))


@every_method_without_lots
def test_full_batches_with_everyone_do_not_depend_on_the_seed(case: Case) -> None:
    assert torch.equal(run(case.full_batch, seed=7), run(case.full_batch, seed=8))


@every_method
def test_who_takes_part_depends_on_the_seed(case: Case) -> None:
    runs = [run(case.full_batch, seed=seed, participation=0.5) for seed in range(3)]
    assert not (torch.equal(runs[0], runs[1]) and torch.equal(runs[1], runs[2]))


@every_method
def test_training_leaves_the_global_random_state_alone(case: Case) -> None:
    federation = PROBLEM.federation()
    before = torch.get_rng_state()
    list(train(federation, case.mini_batch, rounds=3, participation=0.5))
    assert torch.equal(torch.get_rng_state(), before)


@every_method_with_batches
def test_holders_with_the_same_rows_shuffle_differently(case: Case) -> None:
    """With one common shuffle, the mean of the two models would be the model of one of them."""
    problem = softmax_problem([[6, 6, 6]], seed=2, classes=2)
    rows = problem.holders[0]
    alone, twins = (
        next(train(problem.federation(holders=own), case.mini_batch, rounds=1))
        for own in ([rows], [rows, rows])
    )
    assert float((alone.parameters() - twins.parameters()).norm()) > 1e-6
