"""A ridge by the number, where the formula is short; and what it does not touch.

Rows of zeros have no gradient: each step of rate eta multiplies the model by 1 - eta m.
"""

import pytest
import torch

from fedminmax.core.errors import InputError
from fedminmax.testing.problems import zero_rows
from fedminmax.training.train import train
from tests.contract.cases import EVERY

RIDGE, RATE, EPOCHS = 0.5, 0.3, 3
EXACT = {"FedMinMax": 1 - RATE * RIDGE, "FedAvg": (1 - RATE * RIDGE) ** EPOCHS}
METHODS = {case.label: case.full_batch for case in EVERY}


@pytest.mark.parametrize("label", EXACT)
def test_two_rounds_shorten_the_model_by_the_formula(label: str) -> None:
    federation = zero_rows(RIDGE)
    *_, last = train(federation, METHODS[label], rounds=2)
    ratios = last.progress.state.parameters / federation.initial_parameters
    assert ratios.tolist() == pytest.approx([EXACT[label] ** 2] * 4, rel=1e-12)


def test_risks_are_reported_without_it() -> None:
    done = next(train(zero_rows(RIDGE), METHODS["FedMinMax"], rounds=1))
    assert done.risks.tolist() == pytest.approx([float(torch.tensor(2.0).log())] * 2)


def test_a_run_does_not_go_on_with_another_ridge() -> None:
    method = METHODS["FedMinMax"]
    done = next(train(zero_rows(0.1), method, rounds=1))
    with pytest.raises(InputError, match="another ridge"):
        train(zero_rows(0.2), method, rounds=2, resume=done.progress)
