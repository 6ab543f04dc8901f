"""One round between server and sites, and the progress of a run between two rounds.

A round, for every kind of method, is: draw, request, sum, update. Most methods send one request and
need the sum of the replies; some send another one in the same round, some need each reply
separately, and some let the sites keep private state. The progress of a run is its complete state
between two rounds; the models that the run returns follow from it.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Generic

import torch
from torch import Tensor, nn

from fedminmax.core.errors import DivergedError, InputError
from fedminmax.core.iterates import Iterate, Iterates, initial_iterates
from fedminmax.core.messages import Census, Reveals, RoundKey, Sums, all_finite
from fedminmax.core.randomness import Purpose, numpy_stream
from fedminmax.core.validation import ValidationRisk
from fedminmax.methods.card import Pace, check_private_unit, pace_of
from fedminmax.methods.method import (
    AnyMethod,
    MixingState,
    SelectingState,
    StateT,
    asks_again,
    lets_sites_keep,
    needs_each_reply,
    rate_of,
)
from fedminmax.methods.shared.checks import check_share, check_whole, checked_method
from fedminmax.methods.shared.excess_server import OwnRisks
from fedminmax.methods.shared.frontier_server import FoundPoints
from fedminmax.methods.shared.second_order_state import SecondOrderState
from fedminmax.methods.shared.servers import (
    ProvedBoundary,
    boundary_of,
    frontier_of,
    own_risks_of,
    server_of,
)
from fedminmax.training.protocol import Federation, RunIdentity, identity_of
from fedminmax.training.simulation import Simulation


@dataclass(frozen=True, eq=False)
class Progress(Generic[StateT]):
    """The complete state of a run: saving and resuming it equals never having stopped.

    ``method`` is the method with all its settings: a run can only be resumed with the same method,
    federation, seed and participation. ``kept`` is the sites' private state, one row each (in a
    simulation; on a real network it stays with them); empty for most methods.
    """

    method: str
    identity: RunIdentity
    _: KW_ONLY
    seed: int
    participation: float
    round: int
    state: StateT
    iterates: Iterates
    gradient_evaluations: int
    kept: Tensor


def initial_progress(
    federation: Federation,
    method: AnyMethod[StateT],
    *,
    seed: int = 0,
    participation: float = 1.0,
) -> Progress[StateT]:
    """Return the progress of a run before its first round."""
    check_whole("train", minimum=0, seed=seed)
    check_share("train", participation=participation)
    if not hasattr(federation, "census"):
        raise InputError(f"federation = {federation!r}; give a federation, then a method")
    method = with_rate_of(checked_method(method), federation)
    noise = federation.census.noise
    if noise is not None:
        check_private_unit(method, noise.unit)
        if participation < 1:
            raise InputError(
                f"participation = {participation:g}, but a privacy guarantee counts on the noise "
                "of all sites; give 1"
            )
    check_reveals(method, federation.reveals)
    initial = federation.initial_parameters
    state = method.init(initial, federation.census)
    check_keeps_to_cone(method, state, federation.census)
    kept = torch.zeros(0, dtype=initial.dtype)
    if lets_sites_keep(method):
        kept = method.start_keeping(initial, federation.census.groups).repeat(
            federation.census.sites, 1
        )
    return Progress(
        settings_of(repr(method)),
        identity_of(federation),
        seed=int(seed),
        participation=float(participation),
        round=0,
        state=state,
        iterates=initial_iterates(initial),
        gradient_evaluations=0,
        kept=kept,
    )


def settings_of(method: str) -> str:
    """Return a method's settings as text, without the iterate that a run returns.

    All iterates are kept, so a run may be resumed with another one.

    >>> settings_of("AFL(rate=1, output=<Iterate.AVERAGE: 'average'>, reveals=2)")
    'AFL(rate=1, reveals=2)'
    """
    return re.sub(r"output=<Iterate\.\w+: '\w+'>(, )?", "", method)


def check_reveals(method: AnyMethod[StateT], shown: Reveals) -> None:
    """Refuse a method that needs to see more of a site's reply than the server may see."""
    if method.reveals.level > shown.level:
        raise InputError(
            f"{method.name} needs {method.reveals.value}, but the server is shown {shown.value}; "
            "choose a method that needs no more than that"
        )


def check_keeps_to_cone(method: AnyMethod[StateT], state: object, census: Census) -> None:
    """Refuse a method whose server does not know that effects may go only up, or down."""
    known = isinstance(server_of(state), SecondOrderState)
    if census.linear and census.linear.has_cone and not known:
        raise InputError(
            f"{method.name} does not keep to monotone effects; use FedMinMaxFast, AFLFast or "
            "FedAvgFast with curvature and fewer codes than second derivatives allow, or drop "
            "monotone"
        )


def answer_of(progress: Progress[StateT], output: Iterate) -> Iterate | None:
    """Return the iterate of the result; None if the method chooses by itself.

    Validation rows override a method that chooses one model, but not a mixture. Until they have
    chosen, the last model is returned.
    """
    state: object = progress.state
    if isinstance(state, SelectingState) and (
        output is not Iterate.BEST or isinstance(state, MixingState)
    ):
        return None
    no_best_model = not progress.iterates.best.chosen.is_measured
    return Iterate.LAST if output is Iterate.BEST and no_best_model else output


def members_of(progress: Progress[StateT], output: Iterate) -> Tensor:
    """Return a copy of the run's result: the method's own choice if it has one, or an iterate."""
    state: object = progress.state
    answer = answer_of(progress, output)
    if answer is None and isinstance(state, SelectingState):
        return state.selected.clone()
    return progress.iterates.parameters(answer or output).unsqueeze(0)


@dataclass(frozen=True)
class AnswerFacts:
    """What is known of a run's answer besides its models.

    ``iterate`` is None if the method chose by itself. ``rows`` are the validation rows by group,
    ``chosen`` and ``latest`` the risks on them, if they were measured. ``found`` are the points of
    a frontier, ``boundary`` what is proved of mean and worst group, and ``own_risks`` what groups'
    own models reach, if the method asked.
    """

    iterate: Iterate | None
    rows: tuple[int, ...]
    chosen: ValidationRisk | None
    latest: ValidationRisk | None
    found: FoundPoints | None
    boundary: ProvedBoundary | None
    own_risks: OwnRisks | None


@dataclass(frozen=True, eq=False)
class RunAnswer:
    """What a finished run returns, one model per line: its ``members``, of which several mix.

    The ``alternative`` is the last model if validation rows chose the answer, otherwise their
    choice; without a measurement there is none. ``points`` are the models of a frontier, if any.
    """

    facts: AnswerFacts
    members: Tensor
    alternative: Tensor
    points: Tensor

    @property
    def measured(self) -> list[Tensor]:
        """What is measured on test rows: the members, or all points of the frontier."""
        return [self.members] if self.facts.found is None else list(self.points.unsqueeze(1))


def run_answer(
    progress: Progress[StateT], output: Iterate, validation_rows: Sequence[int]
) -> RunAnswer:
    """Return what a run at its end returns, and all that is known of it."""
    answer, members = answer_of(progress, output), members_of(progress, output)
    iterates, state, frontier = progress.iterates, progress.state, frontier_of(progress.state)
    best, none = iterates.best, members[:0]
    measured = best.chosen.is_measured
    other = Iterate.LAST if answer is Iterate.BEST else Iterate.BEST
    facts = AnswerFacts(
        answer,
        tuple(validation_rows),
        chosen=best.chosen if measured else None,
        latest=best.latest if measured else None,
        found=frontier.found if frontier else None,
        boundary=boundary_of(state),
        own_risks=own_risks_of(state),
    )
    return RunAnswer(
        facts,
        members,
        iterates.parameters(other).unsqueeze(0) if measured else none,
        frontier.models if frontier else none,
    )


def personal_models(federation: Simulation, kept: Tensor) -> list[tuple[nn.Module, Tensor]]:
    """Return the models that a site keeps, each with whether it predicts for a group [A].

    There is one for all groups, or, if the site keeps a number for each group besides, one for
    each: its number is added to the output of class 1.
    """
    groups, size = federation.census.groups, len(federation.initial_parameters)
    model = federation.model(kept[:size])
    if len(kept) == size:
        return [(model, torch.ones(groups, dtype=torch.bool))]
    shifted = [_Shifted(model, shift).eval() for shift in kept[size:]]
    return list(zip(shifted, torch.eye(groups, dtype=torch.bool), strict=True))


class _Shifted(nn.Module):
    """A model of two classes with a number added to its second output."""

    def __init__(self, model: nn.Module, shift: Tensor) -> None:
        super().__init__()
        self.model, self.shift = model, nn.functional.pad(shift.reshape(1), (1, 0))

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.model(x)
        return outputs + self.shift


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
