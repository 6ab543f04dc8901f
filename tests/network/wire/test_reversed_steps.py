"""A step must fit how the losses changed; known curvature makes that a sharper test.

A small group with a large weight: without its own curvature the limit is that of all rows with the
largest weight.
"""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from fedminmax.core.bounds import RowLengths, row_limits, safe_learning_rate
from fedminmax.core.messages import Order, RoundKey
from fedminmax.losses import brier_loss
from fedminmax.methods import FedMinMax
from fedminmax.methods.shared.expected_reply import Sender
from fedminmax.network.wire.checks import ReportedLosses, check_losses, check_reply
from fedminmax.network.wire.codec import RefusedError
from fedminmax.training.simulation import Simulation

ROWS = (300, 30)
WEIGHTS = torch.tensor([0.1, 10.0], dtype=torch.float64)
X = torch.randn(sum(ROWS), 6, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
GROUP = torch.repeat_interleave(torch.arange(2), torch.tensor(ROWS))
Y = (X[:, 0] + 2.0 * X[:, 1] * GROUP > 0).long()
RATE = safe_learning_rate(brier_loss, X, GROUP, linear=True)


def told(factor: float, curvature: torch.Tensor | None) -> None:
    """Two rounds of all rows as one site's, with this factor on the second step."""
    model = nn.Linear(6, 2).double()
    federation = Simulation(model, brier_loss, [(X, Y, GROUP)])
    method = FedMinMax(RATE, 0.1)
    length = math.sqrt(float((X**2).sum()) + len(X))
    before, parameters = None, torch.zeros(14, dtype=torch.float64)
    for number in (1, 2):
        order = Order(RoundKey(0, number), parameters, WEIGHTS)
        reply = federation.ask(method, order, [0]).total
        sender = Sender(
            0,
            torch.tensor(ROWS),
            sites=1,
            limits=row_limits([model], parameters, brier_loss, 0.0),
            lengths=RowLengths(length),
            is_total=True,
            group_curvature=curvature,
        )
        if number == 2:
            reply = replace(reply, step=reply.step * factor)
        check_losses(reply, sender, "all")
        check_reply(method, order, sender, reply, site="all", before=before)
        before = ReportedLosses(parameters, reply.group_loss)
        parameters = parameters - reply.step / reply.scale


CURVATURE = 2.0 / RATE * torch.tensor(ROWS, dtype=torch.float64)


def test_honest_steps_pass_with_and_without_known_curvature() -> None:
    told(1.0, None)
    told(1.0, CURVATURE)


def test_half_of_the_estimated_curvature_is_still_enough_for_an_honest_step() -> None:
    """The estimate may be too low by a factor of two, which the limit has on top."""
    told(1.0, 0.5 * CURVATURE)


@pytest.mark.parametrize("factor", [-2.0, -3.0])
def test_a_reversed_step_is_refused_where_the_curvature_is_known(factor: float) -> None:
    told(factor, None)
    with pytest.raises(RefusedError, match="does not fit how its own losses changed"):
        told(factor, CURVATURE)
