"""How many rounds a run takes is known roughly before."""

import pytest

from fedminmax.advice.cost import usual_rounds
from fedminmax.core.losses import LOSSES_BY_NAME
from fedminmax.core.models import linear
from fedminmax.data.adult import load_adult
from fedminmax.methods.look_ahead import FedMinMaxFast
from fedminmax.training.simulation import Simulation
from fedminmax.training.train import train


@pytest.mark.parametrize("loss", ["cross_entropy", "brier"])
def test_a_run_on_adult_takes_as_many_rounds_as_were_estimated(loss: str) -> None:
    rows = load_adult().train
    federation = Simulation(
        linear(rows.x.shape[1], 2).double(),
        LOSSES_BY_NAME[loss],
        [(rows.x.double(), rows.y, rows.group)],
        ridge=1e-4,
    )
    usual = usual_rounds("fedminmax-fast", linear=True, loss=loss)
    assert usual is not None
    *_, last = train(federation, FedMinMaxFast(), rounds=100)
    assert usual.low <= last.number <= usual.high
    assert last.remaining is not None
    assert last.remaining <= 1e-4
