"""The round loop, the only one: it yields each round, so that all else is ordinary ``for`` code.

Progress bars, logging, checkpoints and early stopping belong to the caller's loop body.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Generic

import torch
from torch import Tensor

from fedminmax.core.errors import DivergedError, InputError
from fedminmax.core.iterates import Iterate, Iterates, no_iterates
from fedminmax.core.messages import Census, Moment, Sums
from fedminmax.core.randomness import Purpose, numpy_stream
from fedminmax.federation.federation import Federation
from fedminmax.methods.checks import check_whole
from fedminmax.methods.method import AnyMethod, StateT


@dataclass(frozen=True, eq=False)
class Progress(Generic[StateT]):
    """All that a run has to remember: saving it and going on equals never having stopped.

    ``method`` is the method with all its settings: no other one goes on from here, nor does
    another seed or participation.
    """

    method: str
    seed: int
    participation: float
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


def start_of(
    federation: Federation,
    method: AnyMethod[StateT],
    *,
    seed: int = 0,
    participation: float = 1.0,
) -> Progress[StateT]:
    """Where a run stands before its first round."""
    initial = federation.initial_parameters
    state = method.init(initial, federation.census)
    return Progress(repr(method), seed, participation, 0, state, no_iterates(initial), 0)


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
    check_whole("train", least=1, rounds=rounds)
    check_whole("train", least=0, seed=seed)
    if not 0.0 < participation <= 1.0:
        raise InputError(f"participation = {participation:g}; give a share above 0, at most 1")
    start = start_of(federation, method, seed=seed, participation=participation)
    return _rounds(federation, method, rounds, _checked(resume, start))


def _checked(resume: Progress[StateT] | None, start: Progress[StateT]) -> Progress[StateT]:
    """Return the progress to go on from; refuse one of another method, seed or participation."""
    if resume is None:
        return start
    for name in ("method", "seed", "participation"):
        before, now = getattr(resume, name), getattr(start, name)
        if before != now:
            raise InputError(f"cannot resume {name} {before} as {now}; give the same {name}")
    return resume


def _rounds(
    federation: Federation,
    method: AnyMethod[StateT],
    rounds: int,
    progress: Progress[StateT],
) -> Iterator[Round[StateT]]:
    while progress.round < rounds:
        moment = Moment(progress.seed, progress.round + 1)
        participants = draw_participants(federation.census, progress.participation, moment)
        total = federation.ask(method, method.order(progress.state, moment), participants)
        _check_finite(total, method, moment, federation.group_names)
        state = method.update(progress.state, total)
        if not bool(torch.isfinite(state.parameters).all()):
            raise _diverged(method, moment, "a parameter")
        progress = replace(
            progress,
            round=moment.round,
            state=state,
            iterates=progress.iterates.add(state.parameters),
            gradient_evaluations=progress.gradient_evaluations + total.gradient_evaluations,
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
