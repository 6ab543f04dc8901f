"""One round between server and sites, for every kind of method: draw, request, sum, update.

Most methods send one request and need the sum of the replies; some send another one in the same
round, some need each reply separately, and some let the sites keep private state.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic

import torch
from torch import Tensor

from fedminmax.core.errors import DivergedError, InputError
from fedminmax.core.messages import Census, RoundKey, Sums, all_finite
from fedminmax.core.randomness import Purpose, numpy_stream
from fedminmax.methods.card import Pace, pace_of
from fedminmax.methods.method import AnyMethod, StateT, asks_again, needs_each_reply, rate_of
from fedminmax.training.protocol import Federation


@dataclass(frozen=True, eq=False)
class RoundResult(Generic[StateT]):
    """The result of a round: the sum of the first replies, the new state, the sites' state."""

    total: Sums
    state: StateT
    kept: Tensor
    gradient_evaluations: int


def run_round(
    federation: Federation,
    method: AnyMethod[StateT],
    state: StateT,
    *,
    kept: Tensor,
    key: RoundKey,
    participants: Sequence[int],
) -> RoundResult[StateT]:
    """Send all requests of the round; refuse results that are not finite."""
    replies = federation.ask(method, method.order(state, key), participants, kept)
    total = replies.total
    _check_sums(total, method, key, federation.group_names)
    if needs_each_reply(method):
        state = method.update_from_each(state, replies.each)
    else:
        state = method.update(state, total)
    evaluations = total.gradient_evaluations
    if asks_again(method):
        while (request := method.ask_again(state, key)) is not None:
            more = federation.ask(method, request, participants).total
            _check_sums(more, method, key, federation.group_names)
            state = method.update_again(state, more)
            evaluations += more.gradient_evaluations
    if not all_finite(state.parameters):
        raise _diverged(method, key, "a parameter")
    return RoundResult(total, state, replies.kept, evaluations)


def draw_participants(census: Census, participation: float, key: RoundKey) -> tuple[int, ...]:
    """Draw max(ceil(C K), 1) of the sites that have rows, uniformly, in ascending order."""
    occupied = census.occupied
    # Rounded first: 0.07 * 100 is 7.000000000000001 in floating point.
    wanted = max(math.ceil(round(participation * len(occupied), 9)), 1)
    if wanted == len(occupied):
        return occupied
    generator = numpy_stream(key.seed, Purpose.PARTICIPATION, key.round)
    return tuple(sorted(generator.choice(occupied, size=wanted, replace=False).tolist()))


def check_modes(device: str) -> None:
    """Refuse thread-local modes of torch in which models compute something else."""
    if torch.is_autocast_enabled(device) or torch.is_inference_mode_enabled():
        raise InputError(
            "training inside torch.autocast or torch.inference_mode cannot be reproduced; "
            "leave the block, and for another precision convert the model (model.bfloat16())"
        )


def with_rate_of(method: AnyMethod[StateT], federation: Federation) -> AnyMethod[StateT]:
    """Give a method without a learning rate one that is safe for the federation's rows."""
    if method.learning_rate is not None:
        return method
    rate = federation.safe_learning_rate
    return replace(method, learning_rate=rate)  # type: ignore[type-var]


def _check_sums(
    total: Sums, method: AnyMethod[StateT], key: RoundKey, group_names: tuple[str, ...]
) -> None:
    """Stop at the first loss or step that is not a finite number."""
    if not all_finite(total.group_loss):
        bad = int((~torch.isfinite(total.group_loss)).nonzero()[0])
        raise _diverged(method, key, f"the loss of '{group_names[bad]}'")
    if not (all_finite(total.step) and all_finite(total.statistics) and math.isfinite(total.scale)):
        raise _diverged(method, key, "the parameter step")


def _diverged(method: AnyMethod[StateT], key: RoundKey, what: str) -> DivergedError:
    # A method that looks ahead adapts its steps; its rate is only that of the first one, if at all.
    cure = "scale the features"
    if pace_of(method) is not Pace.LOOK_AHEAD:
        cure = f"use a learning rate below {rate_of(method):g} or {cure}"
    return DivergedError(
        f"{method.name} diverged in round {key.round}: {what} is not finite; {cure}"
    )
