"""What the round loop does for methods that need more than one sum of replies per round."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fedminmax.core.errors import InputError
from fedminmax.core.iterates import Iterate
from fedminmax.core.losses import brier_loss
from fedminmax.core.messages import Reveals
from fedminmax.methods.afl import AFL
from fedminmax.methods.ap_star import APStar
from fedminmax.methods.ditto import Ditto
from fedminmax.methods.fedmgda import FedMGDA
from fedminmax.methods.fedminmax import FedMinMax
from fedminmax.methods.method import AnyMethod
from fedminmax.methods.minimax_fair import MinimaxFair
from fedminmax.training.checkpoint import load_checkpoint, save_checkpoint
from fedminmax.training.progress import initial_progress
from fedminmax.training.simulation import Simulation
from fedminmax.training.train import train
from tests.problems import softmax_problem

PROBLEM = softmax_problem([[4, 0, 2], [1, 5, 0], [0, 0, 3]], seed=2, classes=2)


def federation_showing(reveals: Reveals) -> Simulation:
    return Simulation(PROBLEM.model(), brier_loss, PROBLEM.sites, reveals=reveals)


@pytest.mark.parametrize(
    ("method", "needs"),
    [(AFL(), Reveals.OWN_LOSS), (FedMGDA(), Reveals.OWN_VECTOR), (FedMinMax(), Reveals.SUMS)],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_method_runs_only_where_it_is_shown_what_it_needs(
    method: AnyMethod[Any], needs: Reveals
) -> None:
    for shown in Reveals:
        federation = federation_showing(shown)
        if shown.level >= needs.level:
            assert next(iter(train(federation, method, rounds=1))).number == 1
        else:
            with pytest.raises(InputError, match=f"needs {needs.value}.*shown {shown.value}"):
                train(federation, method, rounds=1)


def test_a_mixture_has_members_and_no_single_vector() -> None:
    method = MinimaxFair(learning_rate=0.5, fit_rounds=2)
    done = list(train(PROBLEM.federation(), method, rounds=9))[-1]
    assert done.members.shape == (3, len(PROBLEM.start))
    with pytest.raises(InputError, match="mixture of 3 models"):
        done.parameters()
    assert done.parameters(Iterate.LAST).shape == (len(PROBLEM.start),)


@pytest.mark.parametrize("method", [APStar(fit_rounds=2), FedMinMax()], ids=["APStar", "FedMinMax"])
def test_the_answer_of_other_methods_is_one_line(method: AnyMethod[Any]) -> None:
    done = list(train(PROBLEM.federation(), method, rounds=7))[-1]
    assert torch.equal(done.members, done.parameters().unsqueeze(0))


def test_what_sites_keep_belongs_to_the_checkpoint(tmp_path: Path) -> None:
    federation, method = PROBLEM.federation(), Ditto(epochs=1)
    done = next(iter(train(federation, method, rounds=1)))
    assert done.progress.kept.shape == (3, len(PROBLEM.start))
    smaller = replace(done.progress, kept=done.progress.kept[:2])
    save_checkpoint(tmp_path, smaller)
    with pytest.raises(InputError, match="'kept' differs"):
        load_checkpoint(tmp_path, initial_progress(federation, method))
