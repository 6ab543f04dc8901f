"""States are values: frozen, and an earlier one is not changed by the rounds after it."""

from dataclasses import FrozenInstanceError, fields
from typing import Any

import pytest
import torch
from torch import Tensor

from fedminmax.core.iterates import OF_EVERY_RUN
from fedminmax.federation.checkpoint import pack
from fedminmax.federation.train import start_of, train
from tests.contract.cases import Case, every_method
from tests.problems import softmax_problem

PROBLEM = softmax_problem([[4, 0, 2], [1, 5, 0], [0, 0, 3]], seed=2, classes=2)


def copy_of(record: object) -> dict[str, Any]:
    return {
        name: value.clone() if isinstance(value, Tensor) else value
        for name, value in pack(record).items()
    }


@every_method
def test_nothing_can_be_assigned(case: Case) -> None:
    done = next(train(PROBLEM.federation(), case.full_batch, rounds=1))
    records: list[Any] = [done, done.progress, done.progress.state, done.total, case.full_batch]
    for record in records:
        for field in fields(record):
            with pytest.raises(FrozenInstanceError):
                setattr(record, field.name, None)


@every_method
def test_later_rounds_do_not_reach_back(case: Case) -> None:
    federation = PROBLEM.federation()
    kept = [start_of(federation, case.mini_batch)]
    copies = [copy_of(kept[0])]
    for done in train(federation, case.mini_batch, rounds=6):
        kept.append(done.progress)
        copies.append(copy_of(done.progress))
    assert not torch.equal(kept[0].state.parameters, kept[-1].state.parameters)
    for progress, copied in zip(kept, copies, strict=True):
        for name, value in pack(progress).items():
            if isinstance(value, Tensor):
                assert torch.equal(value, copied[name]), name
            else:
                assert value == copied[name]


@every_method
def test_what_a_round_hands_out_is_a_copy(case: Case) -> None:
    """Whoever trains on from it, in place, does not move the run."""
    untouched = list(train(PROBLEM.federation(), case.mini_batch, rounds=4))
    for done, meant in zip(
        train(PROBLEM.federation(), case.mini_batch, rounds=4), untouched, strict=True
    ):
        assert torch.equal(done.weights, meant.weights)
        handed_out = [
            done.weights,
            done.members,
            *(done.parameters(which) for which in OF_EVERY_RUN),
        ]
        for which, parameters in zip(OF_EVERY_RUN, handed_out[2:], strict=True):
            assert torch.equal(parameters, meant.parameters(which))
        for tensor in (*handed_out, *pack(done.total).values()):
            if isinstance(tensor, Tensor):
                tensor.fill_(7)
        assert torch.equal(done.members, meant.members)


@every_method
def test_asking_twice_gives_the_same_answer(case: Case) -> None:
    """A reply is a function of the order: neither buffers nor the order itself may remember."""
    federation = PROBLEM.federation()
    rounds = train(federation, case.mini_batch, rounds=2)
    progress = next(rounds).progress
    once = next(train(federation, case.mini_batch, rounds=2, resume=progress))
    again = next(train(federation, case.mini_batch, rounds=2, resume=progress))
    assert torch.equal(once.total.step, again.total.step)
    assert torch.equal(once.parameters(), again.parameters())
    assert torch.equal(once.parameters(), next(rounds).parameters())
