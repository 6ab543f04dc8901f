"""The server that looks ahead: second order for linear models, first order for all others.

Sums with noise have a server of their own.

Its players are the groups, or the sites for AFL's objective. If it does not need a site's
groups, the site sends sums over all of its rows (``sums_of_all_rows``).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor

from fedminmax.core.certificate import row_size
from fedminmax.core.errors import InputError
from fedminmax.core.group_sums import gradients_by_part, linear_group_sums, linear_rows_per_chunk
from fedminmax.core.linear_structure import LinearStructure
from fedminmax.core.messages import Census, Order, RoundKey, Sums, zero_sums
from fedminmax.core.workspace import Workspace
from fedminmax.methods.method import SiteData
from fedminmax.methods.shared.checks import check_not_negative, check_positive, check_share
from fedminmax.methods.shared.expected_reply import (
    ExpectedReply,
    Sender,
    curvature_limits,
    layout_of,
)
from fedminmax.methods.shared.first_order_server import (
    FirstOrderState,
    after_first_order_round,
    start_first_order,
)
from fedminmax.methods.shared.noisy_server import NoisyState, after_noisy_round, start_noisy
from fedminmax.methods.shared.replies import RiskSums, sum_by_group
from fedminmax.methods.shared.second_order_server import after_second_order_round
from fedminmax.methods.shared.second_order_state import (
    SecondOrderState,
    second_order_fits,
    start_second_order,
)

FastState = SecondOrderState | FirstOrderState | NoisyState
# When to stop: the possible relative improvement of the worst risk.
DEFAULT_GAP = 1e-4


class FastSettings(Protocol):
    """Expert settings of every method with this server: see ``FedMinMaxFast``."""

    @property
    def name(self) -> str:
        """The method's name in messages."""
        ...

    @property
    def curvature(self) -> bool:
        """Whether to use second derivatives if the model allows it."""
        ...

    @property
    def learning_rate(self) -> float:
        """The rate of the first step (first order only)."""
        ...

    @property
    def momentum(self) -> float:
        """The decay of running means."""
        ...


def check_fast_settings(settings: FastSettings, *, gap: float = 0.0, epsilon: float = 0.0) -> None:
    """Refuse an invalid gap, floor, rate or momentum."""
    check_not_negative(settings.name, gap=gap, epsilon=epsilon)
    check_positive(settings.name, learning_rate=settings.learning_rate)
    check_share(settings.name, **{"1 - momentum": 1.0 - settings.momentum})


def ask_for_sums(key: RoundKey, parameters: Tensor) -> Order:
    """Broadcast the next candidate; sites need no weights."""
    return Order(key, parameters, torch.zeros(0, dtype=torch.float64))


def is_within(gap: float, state: FastState) -> bool:
    """Return whether the possible improvement is within the gap; never for a gap of 0."""
    return gap > 0 and state.remaining is not None and state.remaining <= gap


def with_curvature(
    settings: FastSettings, structure: LinearStructure | None, players: int
) -> LinearStructure | None:
    """Return the linear model's layout if its second derivatives are used; called by both sides."""
    return structure if settings.curvature and second_order_fits(structure, players) else None


def start_server(
    settings: FastSettings, parameters: Tensor, census: Census, weights: Tensor
) -> FastState:
    """Return the state before the first round; the players are the census's groups."""
    structure, counts = census.linear, census.counts.sum(dim=0)
    linear = with_curvature(settings, structure, census.groups)
    if census.noise is not None:
        if linear is not None:
            raise InputError(
                f"{settings.name}: curvature sums cannot keep a privacy guarantee; give "
                "curvature=False"
            )
        return start_noisy(parameters, census, census.noise, weights)
    if linear is not None:
        size = row_size(census, linear, linear_rows_per_chunk(linear))
        return start_second_order(
            parameters, linear, weights=weights, counts=counts, playable=census.playable, size=size
        )
    ridge, rate = 0.0 if structure is None else structure.ridge, settings.learning_rate
    return start_first_order(
        parameters, ridge=ridge, weights=weights, counts=counts, playable=census.playable, rate=rate
    )


def after_round(
    settings: FastSettings, state: FastState, reported: RiskSums, epsilon: float = 0.0
) -> FastState:
    """Return the state after a round's sums; ``epsilon`` is the minimum weight of a player."""
    if isinstance(state, SecondOrderState):
        return after_second_order_round(state, reported, epsilon)
    if isinstance(state, NoisyState):
        return after_noisy_round(state, reported, epsilon)
    return after_first_order_round(state, reported, epsilon, settings.momentum)


def sums_of_all_rows(
    linear: LinearStructure | None, order: Order, site: SiteData, workspaces: Sequence[Workspace]
) -> Sums:
    """Return gradient and, for a linear model, curvature sums at the broadcast model.

    Losses are by group, for the run's log.
    """
    rows = site.examples
    if linear is not None:
        sums = linear_group_sums(linear, order.parameters, rows, site.groups)
        step, curvature = sums.gradients.sum(dim=0), sums.curvature.sum(dim=0)
        group_loss = sums.losses
    else:
        for workspace in workspaces:
            workspace.load(order.parameters)
        everyone = torch.zeros_like(rows.group)
        losses, gradients = gradients_by_part(workspaces, rows, everyone, 1, site.rows_per_chunk)
        step, curvature = gradients[0].cpu(), torch.zeros(0, dtype=torch.float64)
        group_loss = sum_by_group(losses, site)
    return replace(
        zero_sums(0, site.groups, 0),
        step=step,
        scale=float(len(rows)),
        group_loss=group_loss,
        group_count=torch.bincount(rows.group, minlength=site.groups).cpu(),
        statistics=curvature,
        gradient_evaluations=len(rows),
    )


def expect_all_rows(
    settings: FastSettings, players: int, order: Order, sender: Sender, reply: Sums
) -> ExpectedReply:
    """Return what an honest sender of these sums replies."""
    squares = sender.limits.squared_slopes(torch.tensor(sender.rows), reply.group_loss.sum())
    expected = ExpectedReply(
        numbers=len(order.parameters),
        scale=float(sender.rows),
        rows=sender.rows,
        evaluations=sender.rows,
        reach=float(squares.sqrt()),
    )
    linear = with_curvature(settings, layout_of(len(order.parameters), sender), players)
    if linear is None:
        return expected
    everyone = replace(sender, counts=sender.counts.sum(dim=0, keepdim=True))
    upper, reported = curvature_limits(linear, everyone, reply)
    return replace(expected, lower=-upper, upper=upper, reported_curvature=reported)
