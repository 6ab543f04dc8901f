"""The progress of a run: its complete state between two rounds, and the models that it returns."""

import re
from dataclasses import KW_ONLY, dataclass
from typing import Generic

import torch
from torch import Tensor

from fedminmax.core.errors import InputError
from fedminmax.core.iterates import Iterate, Iterates, initial_iterates
from fedminmax.core.messages import Census, Reveals
from fedminmax.methods.card import check_private_unit
from fedminmax.methods.method import AnyMethod, MixingState, SelectingState, StateT, lets_sites_keep
from fedminmax.methods.shared.checks import check_share, check_whole, checked_method
from fedminmax.methods.shared.players_state import server_of
from fedminmax.methods.shared.second_order_state import SecondOrderState
from fedminmax.training.one_round import with_rate_of
from fedminmax.training.protocol import Federation, RunIdentity, identity_of


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
        kept = method.start_keeping(initial).repeat(federation.census.sites, 1)
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
