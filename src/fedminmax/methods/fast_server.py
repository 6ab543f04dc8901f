"""The server that looks ahead: second order for linear models, first order for all others.

Its players are the groups, or for AFL's objective the holders.
"""

from dataclasses import dataclass

from torch import Tensor

from fedminmax.core.certificate import row_size
from fedminmax.core.group_sums import linear_rows_per_chunk
from fedminmax.core.linear_structure import LinearStructure
from fedminmax.core.messages import Census
from fedminmax.methods.checks import check_not_negative, check_positive, check_share
from fedminmax.methods.first_order_server import (
    FirstOrderState,
    after_first_order_round,
    start_first_order,
)
from fedminmax.methods.risk_sums import RiskSums
from fedminmax.methods.second_order_server import (
    SecondOrderState,
    after_second_order_round,
    second_order_fits,
    start_second_order,
)

FastState = SecondOrderState | FirstOrderState


@dataclass(frozen=True)
class FastSettings:
    """What an expert may set: see ``FedMinMaxFast``."""

    epsilon: float
    curvature: bool
    learning_rate: float
    momentum: float


def check_fast_settings(name: str, settings: FastSettings) -> None:
    """Refuse what cannot be a floor, a rate or the share of a running mean."""
    check_not_negative(name, epsilon=settings.epsilon)
    check_positive(name, learning_rate=settings.learning_rate)
    check_share(name, **{"1 - momentum": 1.0 - settings.momentum})


def with_curvature(
    settings: FastSettings, structure: LinearStructure | None, players: int
) -> LinearStructure | None:
    """Return the linear model's layout if its second derivatives are used; both sides ask this."""
    return structure if settings.curvature and second_order_fits(structure, players) else None


def start_server(
    settings: FastSettings, parameters: Tensor, census: Census, weights: Tensor
) -> FastState:
    """Return the state before the first round; the players are the census' groups."""
    structure, counts = census.linear, census.counts.sum(dim=0)
    linear = with_curvature(settings, structure, census.groups)
    if linear is not None:
        size = row_size(census, linear, linear_rows_per_chunk(linear))
        return start_second_order(parameters, linear, weights, counts, census.playable, size)
    ridge, rate = 0.0 if structure is None else structure.ridge, settings.learning_rate
    return start_first_order(parameters, ridge, weights, counts, census.playable, rate)


def after_round(settings: FastSettings, state: FastState, told: RiskSums) -> FastState:
    """Return the state after a round's sums."""
    if isinstance(state, SecondOrderState):
        return after_second_order_round(state, told, settings.epsilon)
    return after_first_order_round(state, told, settings.epsilon, settings.momentum)
