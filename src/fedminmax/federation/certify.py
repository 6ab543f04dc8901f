"""What can be proved of any linear model, whoever trained it: rounds of sums by group after a run.

The first round is at the model itself: its worst risk, and the one-round bound
f_mu(theta) - |grad f_mu(theta)|^2 / (2 m) for the best mu (see ``core.certificate``). With a small
ridge m that is close only where the gradient is tiny, so further rounds look for a model that is
best, as FedMinMaxFast does, and their bounds count for the first one, too. A model that is too wide
for second derivatives has the first round alone.
"""

from typing import Any

import torch
from torch import Tensor

from fedminmax.core.certificate import Certificate, check_provable
from fedminmax.core.errors import InputError
from fedminmax.core.linear_structure import LinearStructure
from fedminmax.core.messages import Census, Moment, Sums, all_finite
from fedminmax.federation.federation import Federation
from fedminmax.federation.one_round import run_round
from fedminmax.methods.checks import check_whole
from fedminmax.methods.fast_server import DEFAULT_GAP
from fedminmax.methods.fedminmax_fast import FedMinMaxFast
from fedminmax.methods.gradients_for_proof import GradientsForProof, one_round_bound
from fedminmax.methods.method import AnyMethod, RowSumsMethod
from fedminmax.methods.second_order_server import SecondOrderState, second_order_fits
from fedminmax.methods.weighted_fits import max_members

# About twice as many as a few hundred features take.
MAX_ROUNDS = 20
# Whose sums the rounds ask for, and the only round of a model that is too wide for these.
PROVER = FedMinMaxFast(gap=DEFAULT_GAP)
WIDE_PROVER = GradientsForProof()


class IncompleteError(RuntimeError):
    """Not all holders told of the model: what the others told proves nothing."""


def check_certifiable(census: Census) -> None:
    """Refuse models of which nothing can be proved, with the reason."""
    check_provable(census.linear)
    if census.row_lengths is None or not all_finite(census.row_lengths):
        raise InputError(
            "certify: how far rounding reaches is not known, because this run began with an "
            "earlier version; begin a new one"
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
    structure = census.linear
    if structure is not None and prover_for(structure, census.groups) is WIDE_PROVER:
        still = WIDE_PROVER.init(parameters, census)
        moment, everyone = Moment(0, 1), census.occupied
        only = run_round(federation, WIDE_PROVER, still, parameters[:0], moment, everyone)
        _check_complete(only.total, census)
        return one_round_bound(structure, census, parameters, only.total)
    state = PROVER.init(parameters, census)
    length = float(state.parameters.double().norm())
    worst = float("inf")
    lower, ridge = 0.0, census.linear.ridge if census.linear else 0.0
    for number in range(1, rounds + 1):
        moment = Moment(0, number)
        done = run_round(federation, PROVER, state, parameters[:0], moment, census.occupied)
        if number == 1:
            _check_complete(done.total, census)
        if number == 1 and isinstance(state, SecondOrderState):
            worst = state.worst_of(done.total.group_risks)
        state = done.state
        if isinstance(state, SecondOrderState):
            lower = max(lower, state.lower)
        if PROVER.is_done(state):
            break
    return Certificate(worst, min(lower, worst), 0.5 * ridge * length**2, ridge)


def prover_for(structure: LinearStructure | None, groups: int) -> RowSumsMethod[Any]:
    """Return whose sums a proof asks for; both sides ask this."""
    return PROVER if second_order_fits(structure, groups) else WIDE_PROVER


def _check_complete(total: Sums, census: Census) -> None:
    told, rows = total.group_count.cpu(), census.counts.sum(dim=0)
    if not torch.equal(told, rows):
        raise IncompleteError(
            f"nothing is proved: {int(told.sum()):,} of {int(rows.sum()):,} training rows told"
        )
