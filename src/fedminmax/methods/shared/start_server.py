"""Which server looks ahead: its state before the first round, and after each."""

from dataclasses import replace

import torch
from torch import Tensor

from fedminmax.core.certificate import row_size
from fedminmax.core.errors import InputError
from fedminmax.core.linear_structure import LinearStart, LinearStructure
from fedminmax.core.messages import Census
from fedminmax.core.one_step import linear_rows_per_chunk
from fedminmax.methods.card import KEEP_SHARE_FOR_NETWORKS
from fedminmax.methods.shared.excess_server import ExcessState, after_excess_round
from fedminmax.methods.shared.first_order_server import after_first_order_round, start_first_order
from fedminmax.methods.shared.frontier_server import FrontierState, after_frontier_round
from fedminmax.methods.shared.network_state import NetworkState, after_network_round
from fedminmax.methods.shared.noisy_server import NoisyState, after_noisy_round, start_noisy
from fedminmax.methods.shared.players_state import LookAheadState
from fedminmax.methods.shared.replies import RiskSums
from fedminmax.methods.shared.second_order_server import after_second_order_round
from fedminmax.methods.shared.second_order_state import SecondOrderState, start_second_order


def start_server(
    parameters: Tensor,
    census: Census,
    players: Census,
    weights: Tensor,
    *,
    linear: LinearStructure | None,
    linear_start: LinearStart | None,
    keep_share: float,
    tolerance: float,
    rate: float,
) -> LookAheadState:
    """Nothing is known yet: the first round collects the sums of the initial model.

    Args:
        parameters: the initial model.
        census: the rows by site and group.
        players: the same with the server's players for groups.
        weights: the players' initial weights.
        linear: the layout of a linear model whose second derivatives are used; None otherwise.
        linear_start: the linear model that a network starts from; None if it does not.
        keep_share: the part of its share that every player keeps as weight.
        tolerance: by how much of its minimum the worst risk may be above it; it needs ``linear``,
            and without it every player keeps as much as in a network.
        rate: the rate of a network's first step.
    """
    if tolerance and census.linear is None:
        raise InputError(
            f"tolerance = {tolerance:g} is for additive and linear models, whose lowest worst risk "
            "can be found; give keep_share instead, such as 0.5, and tolerance = 0"
        )
    counts, included = players.counts.sum(dim=0), players.included
    if tolerance and linear is None:
        # Without second derivatives there is no second phase: the same trade as a network's.
        keep_share = KEEP_SHARE_FOR_NETWORKS
    if census.noise is not None:
        return start_noisy(parameters, players, census.noise, weights, keep_share)

    def second_order(
        theta: Tensor, structure: LinearStructure, measured: Census
    ) -> SecondOrderState:
        return start_second_order(
            theta,
            structure,
            weights=weights,
            counts=counts,
            included=included,
            keep_share=keep_share,
            tolerance=tolerance if structure is linear else 0.0,
            size=row_size(measured, structure, linear_rows_per_chunk(structure)),
        )

    if linear is not None:
        return second_order(parameters, linear, players)
    network = start_first_order(
        parameters,
        ridge=0.0 if census.linear is None else census.linear.ridge,
        weights=weights,
        counts=counts,
        included=included,
        keep_share=keep_share,
        rate=rate,
    )
    if linear_start is None:
        return network
    # Nothing is proved of the start, whether or not the lengths of rows are known.
    measured, structure = replace(players, row_lengths=None), linear_start.structure
    zeros = torch.zeros(structure.outputs * structure.columns, dtype=parameters.dtype)
    return NetworkState(
        second_order(zeros, structure, measured), network, linear_start, is_linear=True
    )


def after_round(
    state: LookAheadState,
    reported: RiskSums,
    min_weight: float,
    momentum: float,
    optimality_gap: float,
) -> LookAheadState:
    """Return the state after a round's sums; ``min_weight`` is that of a player."""
    if isinstance(state, SecondOrderState):
        return after_second_order_round(state, reported, min_weight)
    if isinstance(state, FrontierState):
        return after_frontier_round(state, reported, optimality_gap)
    if isinstance(state, ExcessState):
        return after_excess_round(state, reported, optimality_gap)
    if isinstance(state, NoisyState):
        return after_noisy_round(state, reported, min_weight)
    if isinstance(state, NetworkState):
        return after_network_round(state, reported, min_weight, momentum)
    return after_first_order_round(state, reported, min_weight, momentum)
