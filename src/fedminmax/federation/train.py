"""The round loop, the only one: it yields each round, so that all else is ordinary ``for`` code.

Progress bars, logging, checkpoints and early stopping belong to the caller's loop body.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic

import torch
from torch import Tensor

from fedminmax.core.errors import DivergedError, InputError
from fedminmax.core.iterates import Iterate, Iterates, no_iterates
from fedminmax.core.messages import Census, Moment, Sums
from fedminmax.core.randomness import Purpose, numpy_stream
from fedminmax.federation.federation import Federation
from fedminmax.methods.method import AnyMethod, StateT


@dataclass(frozen=True, eq=False)
class Progress(Generic[StateT]):
    """All that a run has to remember: saving it and going on equals never having stopped.

    ``method`` is the method with all its settings, so that no other one goes on from here.
    """

    method: str
    round: int
    state: StateT
    iterates: Iterates
    gradient_evaluations: int


@dataclass(frozen=True, eq=False)
class Round(Generic[StateT]):
    """One finished round: what the holders returned and where the run stands now."""

    number: int
    total: Sums
    participants: tuple[int, ...]
    progress: Progress[StateT]
    output: Iterate
    group_names: tuple[str, ...]

    @property
    def risks(self) -> Tensor:
        """Training risk by group of the model that entered the round; NaN if nobody had it."""
        return self.total.group_risks

    @property
    def weights(self) -> Tensor:
        """The adversary's weights after the round; empty for a method without adversary."""
        return self.progress.state.weights

    @property
    def worst_group(self) -> str:
        """Name of the group with the highest training risk among those seen."""
        return self.group_names[int(torch.nan_to_num(self.risks, nan=-math.inf).argmax())]

    @property
    def worst_risk(self) -> float:
        """The highest training risk among the groups seen."""
        return float(torch.nan_to_num(self.risks, nan=-math.inf).max())

    def parameters(self, which: Iterate | None = None) -> Tensor:
        """Return the chosen iterate; by default the one that the method's paper returns."""
        return self.progress.iterates.parameters(which or self.output)


def start_of(federation: Federation, method: AnyMethod[StateT]) -> Progress[StateT]:
    """Where a run stands before its first round."""
    initial = federation.initial_parameters
    state = method.init(initial, federation.census)
    return Progress(repr(method), 0, state, no_iterates(initial), 0)


def train(
    federation: Federation,
    method: AnyMethod[StateT],
    *,
    rounds: int,
    seed: int = 0,
    participation: float = 1.0,
    resume: Progress[StateT] | None = None,
) -> Iterator[Round[StateT]]:
    """Run the method up to round ``rounds`` and yield each finished round.

    Args:
        federation: the holders.
        method: such as ``FedMinMax()``.
        rounds: the number of the last round, T.
        seed: randomness is a function of (seed, round, holder).
        participation: share of the holders that take part in a round, C.
        resume: the progress of an earlier round of the same run, to go on from there.
    """
    if rounds < 1:
        raise InputError(f"rounds = {rounds}; give at least 1")
    if seed < 0:
        raise InputError(f"seed = {seed}; give zero or a positive whole number")
    if not 0.0 < participation <= 1.0:
        raise InputError(f"participation = {participation:g}; give a share above 0, at most 1")
    progress = start_of(federation, method) if resume is None else resume
    if progress.method != repr(method):
        raise InputError(f"cannot resume {progress.method} as {method!r}; give the same method")
    return _rounds(federation, method, rounds, seed, participation, progress)


def _rounds(
    federation: Federation,
    method: AnyMethod[StateT],
    rounds: int,
    seed: int,
    participation: float,
    progress: Progress[StateT],
) -> Iterator[Round[StateT]]:
    while progress.round < rounds:
        moment = Moment(seed, progress.round + 1)
        participants = draw_participants(federation.census, participation, moment)
        total = federation.ask(method, method.order(progress.state, moment), participants)
        _check_finite(total, method, moment, federation.group_names)
        state = method.update(progress.state, total)
        if not bool(torch.isfinite(state.parameters).all()):
            raise _diverged(method, moment, "a parameter")
        progress = Progress(
            progress.method,
            moment.round,
            state,
            progress.iterates.add(state.parameters),
            progress.gradient_evaluations + total.gradient_evaluations,
        )
        yield Round(
            moment.round, total, participants, progress, method.output, federation.group_names
        )


def draw_participants(census: Census, participation: float, moment: Moment) -> tuple[int, ...]:
    """Draw max(ceil(C K), 1) of the holders that have rows, uniformly, in ascending order."""
    occupied = census.holder_counts.nonzero().squeeze(1).tolist()
    # Rounded first: 0.07 * 100 is 7.000000000000001 in floating point.
    wanted = max(math.ceil(round(participation * len(occupied), 9)), 1)
    if wanted == len(occupied):
        return tuple(occupied)
    generator = numpy_stream(moment.seed, Purpose.PARTICIPATION, moment.round)
    return tuple(sorted(generator.choice(occupied, size=wanted, replace=False).tolist()))


def _check_finite(
    total: Sums, method: AnyMethod[StateT], moment: Moment, group_names: tuple[str, ...]
) -> None:
    """Stop at the first loss or step that is not a finite number."""
    bad = (~torch.isfinite(total.group_loss)).nonzero().squeeze(1).tolist()
    if bad:
        raise _diverged(method, moment, f"the loss of '{group_names[bad[0]]}'")
    if not math.isfinite(float(total.step.sum()) + total.scale):
        raise _diverged(method, moment, "the parameter step")


def _diverged(method: AnyMethod[StateT], moment: Moment, what: str) -> DivergedError:
    return DivergedError(
        f"{method.name} diverged in round {moment.round}: {what} is not finite; "
        f"use a learning rate below {method.learning_rate:g} or scale the features"
    )
