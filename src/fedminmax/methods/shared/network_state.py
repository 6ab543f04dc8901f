"""The server's state for a network that starts from a linear model.

A network with all its units trained at once passes by the linear model, and where effects are
straight lines it ends above it. So the first rounds fit the linear model with second derivatives
(``second_order_server``, some five rounds), and the network starts as that model (``LinearStart``):
validation rows can only choose what is better. The first rounds ask for the linear model's sums,
which an order says by a weight; the models that are sent are networks throughout.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedminmax.core.certificate import Certificate
from fedminmax.core.linear_structure import LinearStart
from fedminmax.methods.shared.first_order_server import FirstOrderState, after_first_order_round
from fedminmax.methods.shared.replies import RiskSums
from fedminmax.methods.shared.second_order_server import after_second_order_round
from fedminmax.methods.shared.second_order_state import SecondOrderState

# The linear model is done when this share of its risk is left to gain, or after so many rounds.
LINEAR_GAP, MAX_LINEAR_ROUNDS = 0.01, 12
# In an order: the sums of the linear model are wanted.
WANTS_LINEAR = torch.ones(1, dtype=torch.float64)


@dataclass(frozen=True, eq=False)
class NetworkState:
    """The linear model's state, then the network's, and which of the two rounds are about."""

    linear: SecondOrderState
    network: FirstOrderState
    shape: LinearStart
    is_linear: bool

    @property
    def is_preparing(self) -> bool:
        """Whether the linear model is still being fitted; once it is, it is the first candidate."""
        return self.is_linear

    @property
    def parameters(self) -> Tensor:
        """The next network to try."""
        if self.is_linear:
            return self._as_network(self.linear.parameters)
        return self.network.parameters

    @property
    def weights(self) -> Tensor:
        """The adversary's weights."""
        return self.linear.weights if self.is_linear else self.network.weights

    @property
    def selected(self) -> Tensor:
        """The network with the lowest risk."""
        if self.is_linear:
            return self._as_network(self.linear.selected[0]).unsqueeze(0)
        return self.network.selected

    @property
    def certificate(self) -> Certificate | None:
        """Nothing is proved about a network."""
        return None

    @property
    def remaining(self) -> float | None:
        """What another network could gain is unknown."""
        return None

    def _as_network(self, linear: Tensor) -> Tensor:
        return self.shape.network_with(self.network.best, linear)


def after_network_round(
    state: NetworkState, reported: RiskSums, min_weight: float, momentum: float
) -> NetworkState:
    """Go on with the linear model until it is done, then with the network that computes it."""
    if not state.is_linear:
        network = after_first_order_round(state.network, reported, min_weight, momentum)
        return replace(state, network=network)
    linear = after_second_order_round(state.linear, reported, min_weight)
    left = linear.remaining
    if linear.rounds < MAX_LINEAR_ROUNDS and (left is None or left > LINEAR_GAP):
        return replace(state, linear=linear)
    start = replace(state, linear=linear).selected[0]
    network = replace(state.network, parameters=start, best=start, weights=linear.weights)
    return replace(state, linear=linear, network=network, is_linear=False)
