"""The round loop, the only one: it yields each round, so that all else is ordinary ``for`` code.

Progress bars, logging, checkpoints and early stopping belong to the caller's loop body.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic

import torch
from torch import Tensor

from fedminmax.core.errors import InputError
from fedminmax.core.iterates import Iterate, Iterates, no_iterates
from fedminmax.core.messages import Census, Moment, Reveals, Sums
from fedminmax.core.randomness import Purpose, numpy_stream
from fedminmax.federation.federation import Federation
from fedminmax.federation.game import Game, check_same_game, game_of
from fedminmax.federation.one_round import run_round
from fedminmax.methods.checks import check_share, check_whole, checked_method
from fedminmax.methods.method import AnyMethod, SelectingState, StateT, lets_holders_keep


@dataclass(frozen=True, eq=False)
class Progress(Generic[StateT]):
    """All that a run has to remember: saving it and going on equals never having stopped.

    ``method`` is the method with all its settings: no other one goes on from here, nor does
    another game, seed or participation. ``kept`` is what the holders keep to themselves, a line
    for each (in a simulation; on a real network it stays with them); empty for most methods.
    """

    method: str
    game: Game
    seed: int
    participation: float
    round: int
    state: StateT
    iterates: Iterates
    gradient_evaluations: int
    kept: Tensor


@dataclass(frozen=True, eq=False)
class Round(Generic[StateT]):
    """One finished round: what the holders returned and where the run stands now.

    What its properties and ``parameters`` return are copies, to do anything with. ``progress`` is
    the run's own record: read it, save it or resume from it, but do not write to its tensors.
    """

    number: int
    total: Sums
    participants: tuple[int, ...]
    progress: Progress[StateT]
    output: Iterate
    group_names: tuple[str, ...]
    playable: Tensor

    @property
    def risks(self) -> Tensor:
        """Training risk by group of the model that entered the round; NaN if nobody had it."""
        return self.total.group_risks

    @property
    def weights(self) -> Tensor:
        """The adversary's weights after the round; empty for a method without adversary."""
        return self.progress.state.weights.clone()

    @property
    def worst_group(self) -> str:
        """Name of the group with the highest training risk among those seen.

        Groups that are too small for the adversary to choose do not count.
        """
        return self.group_names[int(self._judged_risks.argmax())]

    @property
    def worst_risk(self) -> float:
        """The highest training risk among the groups seen, without those that are too small."""
        return float(self._judged_risks.max())

    @property
    def _judged_risks(self) -> Tensor:
        return torch.where(self.playable & (self.total.group_count > 0), self.risks, -math.inf)

    def parameters(self, which: Iterate | None = None) -> Tensor:
        """Return the chosen iterate; by default the model that the method's paper returns."""
        if which is not None:
            return self.progress.iterates.parameters(which)
        members = self.members
        if len(members) > 1:
            raise InputError(
                f"the answer is a mixture of {len(members)} models, not one vector; use members"
            )
        return members[0]

    @property
    def answer(self) -> Iterate | None:
        """The iterate that the method answers with; None if it chooses by itself."""
        state: object = self.progress.state
        return None if isinstance(state, SelectingState) else self.output

    @property
    def members(self) -> Tensor:
        """The models that the method's paper returns, one per line; several are a mixture."""
        return members_of(self.progress, self.output)


def start_of(
    federation: Federation,
    method: AnyMethod[StateT],
    *,
    seed: int = 0,
    participation: float = 1.0,
) -> Progress[StateT]:
    """Where a run stands before its first round."""
    check_whole("train", least=0, seed=seed)
    check_share("train", participation=participation)
    if not hasattr(federation, "census"):
        raise InputError(f"federation = {federation!r}; give a federation, then a method")
    method = checked_method(method)
    check_shown(method, federation.reveals)
    initial = federation.initial_parameters
    state = method.init(initial, federation.census)
    kept = torch.zeros(0, dtype=initial.dtype)
    if lets_holders_keep(method):
        kept = method.start_keeping(initial).repeat(federation.census.holders, 1)
    return Progress(
        repr(method),
        game_of(federation),
        int(seed),
        float(participation),
        0,
        state,
        no_iterates(initial),
        0,
        kept,
    )


def check_shown(method: AnyMethod[StateT], shown: Reveals) -> None:
    """Refuse a method that needs to see more of a holder's reply than the server is shown."""
    if method.reveals.level > shown.level:
        raise InputError(
            f"{method.name} needs {method.reveals.value}, but the server is shown {shown.value}; "
            "choose a method that needs no more than that"
        )


def members_of(progress: Progress[StateT], output: Iterate) -> Tensor:
    """Return a copy of the method's answer: its own choice if it makes one, or this iterate."""
    state: object = progress.state
    if isinstance(state, SelectingState):
        return state.selected.clone()
    return progress.iterates.parameters(output).unsqueeze(0)


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
    method = checked_method(method)
    start = start_of(federation, method, seed=seed, participation=participation)
    return _rounds(federation, method, rounds, _checked(resume, start))


def _checked(resume: Progress[StateT] | None, start: Progress[StateT]) -> Progress[StateT]:
    """Return the progress to go on from; refuse one of another run."""
    if resume is None:
        return start
    if not isinstance(resume, Progress):
        raise InputError(
            f"cannot resume from {type(resume).__name__}; give a Progress, such as round.progress "
            "or restored.progress"
        )
    for name in ("method", "seed", "participation"):
        before, now = getattr(resume, name), getattr(start, name)
        if before != now:
            raise InputError(f"cannot resume {name} {before} as {now}; give the same {name}")
    check_same_game(resume.game, start.game, "cannot resume")
    return resume


def _rounds(
    federation: Federation,
    method: AnyMethod[StateT],
    rounds: int,
    progress: Progress[StateT],
) -> Iterator[Round[StateT]]:
    census = federation.census
    while progress.round < rounds:
        moment = Moment(progress.seed, progress.round + 1)
        participants = draw_participants(census, progress.participation, moment)
        _check_modes(progress.iterates.last.device.type)
        # The caller's loop may stand inside torch.no_grad().
        with torch.enable_grad():
            done = run_round(
                federation, method, progress.state, progress.kept, moment, participants
            )
        progress = Progress(
            progress.method,
            progress.game,
            progress.seed,
            progress.participation,
            moment.round,
            done.state,
            progress.iterates.add(done.state.parameters),
            progress.gradient_evaluations + done.gradient_evaluations,
            done.kept,
        )
        yield Round(
            moment.round,
            done.total,
            participants,
            progress,
            method.output,
            federation.group_names,
            census.playable,
        )


def _check_modes(device: str) -> None:
    """Refuse modes of torch in which models compute something else, and only in this thread."""
    if torch.is_autocast_enabled(device) or torch.is_inference_mode_enabled():
        raise InputError(
            "training inside torch.autocast or torch.inference_mode cannot be repeated elsewhere; "
            "leave the block, and for another precision convert the model (model.bfloat16())"
        )


def draw_participants(census: Census, participation: float, moment: Moment) -> tuple[int, ...]:
    """Draw max(ceil(C K), 1) of the holders that have rows, uniformly, in ascending order."""
    occupied = census.occupied
    # Rounded first: 0.07 * 100 is 7.000000000000001 in floating point.
    wanted = max(math.ceil(round(participation * len(occupied), 9)), 1)
    if wanted == len(occupied):
        return occupied
    generator = numpy_stream(moment.seed, Purpose.PARTICIPATION, moment.round)
    return tuple(sorted(generator.choice(occupied, size=wanted, replace=False).tolist()))
