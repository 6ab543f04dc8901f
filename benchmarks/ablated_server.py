"""The first-order server without one of its ingredients, to show what each is worth."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from fedminmax.core.iterates import Iterate
from fedminmax.core.messages import Census, Order, Reveals, RoundKey, Sums
from fedminmax.core.solvers.simplex import maximise_on_simplex, project_on_simplex
from fedminmax.core.workspace import Workspace
from fedminmax.methods.look_ahead import FedMinMaxFast
from fedminmax.methods.method import SiteData
from fedminmax.methods.shared.expected_reply import ExpectedReply, Sender
from fedminmax.methods.shared.first_order_server import (
    FIRST_GROWTH,
    GROWTH,
    MIN_METRIC,
    SHRINKAGE,
    SQUARES_DECAY,
    FirstOrderState,
)

MOMENTUM = FedMinMaxFast.momentum
# Algorithm 1's.
ADVERSARY_RATE = 0.1


@dataclass(frozen=True)
class AblatedServer:
    """With every switch on it is FedMinMaxFast, except for its guards against extreme steps.

    Without ``metric`` all numbers of the model have the mean one's; without ``look_ahead`` the
    weights follow the last round's risks as in Algorithm 1; without ``chooses_rate`` every try is
    kept and the rate stays.
    """

    metric: bool = True
    look_ahead: bool = True
    chooses_rate: bool = True
    learning_rate: float = 0.001
    name: str = "ablated"
    output: Iterate = Iterate.LAST
    reveals: Reveals = field(default=Reveals.SUMS, init=False)

    @property
    def _whole(self) -> FedMinMaxFast:
        return FedMinMaxFast(curvature=False, learning_rate=self.learning_rate)

    def init(self, parameters: Tensor, census: Census) -> FirstOrderState:
        """As the whole method."""
        state = self._whole.init(parameters, census)
        assert isinstance(state, FirstOrderState)
        return state

    def order(self, state: FirstOrderState, key: RoundKey) -> Order:
        """As the whole method."""
        return self._whole.order(state, key)

    def local(self, order: Order, site: SiteData, workspace: Workspace) -> Sums:
        """As the whole method."""
        return self._whole.local(order, site, workspace)

    def row_sums(self, order: Order, site: SiteData, workspaces: Sequence[Workspace]) -> Sums:
        """As the whole method."""
        return self._whole.row_sums(order, site, workspaces)

    def expected(self, order: Order, sender: Sender, reply: Sums) -> ExpectedReply:
        """As the whole method."""
        return self._whole.expected(order, sender, reply)

    def update(self, state: FirstOrderState, total: Sums) -> FirstOrderState:
        """Keep the try or go back, and choose the next one."""
        groups, rows = len(total.group_count), total.group_count
        risks = total.group_loss / rows
        slopes = (total.step.reshape(groups, -1) / rows[:, None]).to(state.slopes)
        now = float(risks.max())
        if state.rounds == 0 or now < state.level or not self.chooses_rate:
            growth = (GROWTH if state.failures else FIRST_GROWTH) if state.rounds else 1.0
            slope = state.weights.to(slopes) @ slopes
            state = replace(
                state,
                best=state.parameters,
                risks=risks,
                slopes=slopes,
                slope_sums=MOMENTUM * state.slope_sums + (1 - MOMENTUM) * slopes,
                squares=torch.lerp(slope.square(), state.squares, SQUARES_DECAY),
                steps=state.steps + 1,
                rounds=state.rounds + 1,
                rate=state.rate * (growth if self.chooses_rate else 1.0),
                level=min(now, state.level),
            )
        else:
            state = replace(
                state,
                slope_sums=(1 - MOMENTUM) * state.slopes,
                steps=1,
                rate=SHRINKAGE * state.rate,
                failures=state.failures + 1,
            )
        return self._next(state)

    def _next(self, state: FirstOrderState) -> FirstOrderState:
        means = state.slope_sums / (1 - MOMENTUM**state.steps)
        metric = (state.squares / (1 - SQUARES_DECAY**state.rounds)).sqrt()
        metric = (
            metric + MIN_METRIC * metric.max() if self.metric else metric.mean().expand_as(metric)
        )
        if self.look_ahead:
            scaled = (means / metric.sqrt()).double()
            products = state.rate * scaled @ scaled.T
            weights = maximise_on_simplex(state.risks, products, state.weights)
        else:
            weights = project_on_simplex(state.weights + ADVERSARY_RATE * state.risks)
        step = state.rate * (weights.to(means) @ means) / metric
        return replace(state, parameters=torch.sub(state.best, step), weights=weights)
