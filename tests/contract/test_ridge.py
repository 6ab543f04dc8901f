"""A ridge is part of what every method minimises.

Rows of zeros say nothing about a model without intercept: losses have no gradient, and all that
moves the model is the penalty, which shortens it without turning it.
"""

import pytest
import torch
from torch import nn

from fedminmax.core.errors import InputError
from fedminmax.core.losses import cross_entropy_loss
from fedminmax.federation.inprocess import InProcessFederation
from fedminmax.federation.train import train
from tests.contract.cases import EVERY, Case, for_each

RIDGE, RATE, EPOCHS = 0.5, 0.3, 3
MODEL = nn.Linear(2, 2, bias=False).double()
MODEL.weight.data.copy_(torch.tensor([[4.0, -2.0], [-4.0, 2.0]]))
START = MODEL.weight.detach().flatten().clone()
EXACT = {"FedMinMax": 1 - RATE * RIDGE, "FedAvg": (1 - RATE * RIDGE) ** EPOCHS}


def federation(ridge: float) -> InProcessFederation:
    rows = (
        torch.zeros(8, 2, dtype=torch.float64),
        torch.tensor([0, 1] * 4),
        torch.tensor([0, 0, 1, 1] * 2),
    )
    return InProcessFederation(MODEL, cross_entropy_loss, [rows, rows], ridge=ridge)


@for_each(EVERY)
def test_every_method_shortens_the_model(case: Case) -> None:
    *_, last = train(federation(RIDGE), case.full_batch, rounds=2)
    ratios = last.progress.state.parameters / START
    assert 0.0 <= float(ratios[0]) < 0.999
    torch.testing.assert_close(ratios, ratios[:1].expand(4), rtol=1e-12, atol=1e-12)
    if case.label in EXACT:
        assert float(ratios[0]) == pytest.approx(EXACT[case.label] ** 2, rel=1e-12)


def test_risks_are_reported_without_it() -> None:
    done = next(train(federation(RIDGE), EVERY[0].full_batch, rounds=1))
    assert done.risks.tolist() == pytest.approx([float(torch.tensor(2.0).log())] * 2)


def test_a_run_does_not_go_on_with_another_ridge() -> None:
    method = EVERY[0].full_batch
    done = next(train(federation(0.1), method, rounds=1))
    with pytest.raises(InputError, match="another ridge"):
        train(federation(0.2), method, rounds=2, resume=done.progress)
