"""What can be proved of any linear model, whoever trained it: rounds of sums by group after a run.

The first round is at the model itself: its worst risk, and the one-round bound
f_mu(theta) - |grad f_mu(theta)|^2 / (2 m) for the best mu (see ``core.certificate``). With a small
ridge m that is close only where the gradient is tiny, so further rounds look for a model that is
best, as FedMinMaxFast does, and their bounds count for the first one, too.
"""

from typing import Any

import torch
from torch import Tensor

from fedminmax.core.certificate import Certificate, check_provable
from fedminmax.core.errors import InputError
from fedminmax.core.messages import Census, Moment
from fedminmax.federation.federation import Federation
from fedminmax.federation.one_round import run_round
from fedminmax.methods.checks import check_whole
from fedminmax.methods.fast_server import DEFAULT_GAP
from fedminmax.methods.fedminmax_fast import FedMinMaxFast
from fedminmax.methods.method import AnyMethod
from fedminmax.methods.second_order_server import (
    MAX_CURVATURE,
    SecondOrderState,
    second_order_fits,
)
from fedminmax.methods.weighted_fits import max_members

# About twice as many as a few hundred features take.
MAX_ROUNDS = 20
# Whose sums the rounds ask for.
PROVER = FedMinMaxFast(gap=DEFAULT_GAP)


class IncompleteError(RuntimeError):
    """Not all holders told of the model: what the others told proves nothing."""


def check_certifiable(census: Census) -> None:
    """Refuse models of which nothing can be proved, with the reason."""
    structure = census.linear
    check_provable(structure)
    if structure is not None and not second_order_fits(structure, census.groups):
        raise InputError(
            f"certify: {census.groups} groups x {structure.free_numbers:,}^2 second derivatives "
            f"are more than {MAX_CURVATURE:,}; use fewer features"
        )


def check_single_answer(method: AnyMethod[Any], rounds: int) -> None:
    """Refuse a method whose answer may be a mixture: what is proved is of single models."""
    most = max_members(method, rounds)
    if most > 1:
        raise InputError(
            f"certify: {method.name} answers with a mixture of up to {most} models, and what is "
            "proved is of single ones; choose another method"
        )


def certify(federation: Federation, parameters: Tensor, rounds: int = MAX_ROUNDS) -> Certificate:
    """Prove how much lower than this model's any linear model's worst group risk can be.

    Every holder takes part in every round; an ``IncompleteError`` says that some did not answer
    in the first one. Rounds end early once the bound is within 1e-4 of the best model found; one
    round gives the bound of this model's own gradients.

    >>> import torch
    >>> from fedminmax import InProcessFederation
    >>> from fedminmax.losses import squared_error_loss
    >>> rows = (torch.ones(2, 1), torch.tensor([0.0, 2.0]), torch.tensor([0, 1]))
    >>> model = torch.nn.Linear(1, 1, bias=False).double()
    >>> federation = InProcessFederation(model, squared_error_loss, [rows], ridge=0.01)
    >>> proved = certify(federation, torch.ones(1).double())
    >>> round(proved.upper, 6), round(proved.lower, 6)
    (1.005, 1.005)
    """
    check_whole("certify", least=1, rounds=rounds)
    census = federation.census
    check_certifiable(census)
    state = PROVER.init(parameters, census)
    length = float(state.parameters.double().norm())
    worst = float("inf")
    lower, ridge = 0.0, census.linear.ridge if census.linear else 0.0
    for number in range(1, rounds + 1):
        moment = Moment(0, number)
        done = run_round(federation, PROVER, state, parameters[:0], moment, census.occupied)
        told, rows = done.total.group_count.cpu(), census.counts.sum(dim=0)
        if number == 1 and not torch.equal(told, rows):
            raise IncompleteError(
                f"nothing is proved: {int(told.sum()):,} of {int(rows.sum()):,} training rows told"
            )
        if number == 1 and isinstance(state, SecondOrderState):
            worst = state.worst_of(done.total.group_risks)
        state = done.state
        if isinstance(state, SecondOrderState):
            lower = max(lower, state.lower)
        if PROVER.is_done(state):
            break
    return Certificate(worst, min(lower, worst), 0.5 * ridge * length**2, ridge)
