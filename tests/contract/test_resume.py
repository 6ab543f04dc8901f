"""Saving, stopping and going on from the file equals never having stopped, bit for bit."""

from pathlib import Path

import pytest
import torch

from fedminmax.core.iterates import OF_EVERY_RUN
from fedminmax.federation.checkpoint import load_checkpoint, pack, save_checkpoint
from fedminmax.federation.train import start_of, train
from tests.contract.cases import Case, every_method
from tests.problems import softmax_problem

PROBLEM = softmax_problem([[4, 0, 2], [1, 5, 0], [0, 0, 3], [2, 2, 2]], seed=2, classes=2)
ROUNDS = 12


@every_method
@pytest.mark.parametrize("stop", [1, 4, 11])
def test_resumed_equals_uninterrupted(case: Case, stop: int, tmp_path: Path) -> None:
    method = case.mini_batch
    whole = list(train(PROBLEM.federation(), method, rounds=ROUNDS, seed=5, participation=0.75))
    for done in train(PROBLEM.federation(), method, rounds=stop, seed=5, participation=0.75):
        save_checkpoint(tmp_path, done.progress)

    again = PROBLEM.federation()
    restored = load_checkpoint(tmp_path, start_of(again, method))
    assert restored is not None
    assert restored.complaint is None
    assert restored.progress.round == stop
    rest = list(
        train(again, method, rounds=ROUNDS, seed=5, participation=0.75, resume=restored.progress)
    )
    assert [done.number for done in rest] == list(range(stop + 1, ROUNDS + 1))
    for done, expected in zip(rest, whole[stop:], strict=True):
        assert done.participants == expected.participants
        for which in OF_EVERY_RUN:
            assert torch.equal(done.parameters(which), expected.parameters(which))
    kept, meant = pack(rest[-1].progress), pack(whole[-1].progress)
    assert kept.keys() == meant.keys()
    for name, value in meant.items():
        same = kept[name]
        if isinstance(value, torch.Tensor):
            assert isinstance(same, torch.Tensor)
            assert torch.equal(same, value)
        else:
            assert same == value


@every_method
def test_a_longer_run_begins_with_the_shorter_one(case: Case) -> None:
    short = list(train(PROBLEM.federation(), case.mini_batch, rounds=4))
    long = list(train(PROBLEM.federation(), case.mini_batch, rounds=9))
    for one, other in zip(short, long[:4], strict=True):
        assert torch.equal(one.parameters(), other.parameters())
