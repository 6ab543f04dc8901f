"""What can be proved of any linear model, however it was trained: rounds of sums after a run.

Holders return sums by group. The first round is at the model itself: its worst risk, and the
one-round bound f_mu(theta) - |grad f_mu(theta)|^2 / (2 m) for the best mu (see
``core.certificate``). With a small ridge m that is close only where the gradient is tiny, so
further rounds look for a model that is best, as FedMinMaxFast does, and their bounds count for the
first one, too.

A model that is too wide for second derivatives has the first round alone. ``GradientsForProof``
then asks for group risks and their gradients, in float64 as a proof needs them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from fedminmax.core.certificate import (
    Certificate,
    check_provable,
    cuts_at,
    errors_at,
    lower_bound,
    row_size,
)
from fedminmax.core.errors import InputError
from fedminmax.core.group_sums import linear_group_sums, linear_rows_per_chunk
from fedminmax.core.iterates import Iterate
from fedminmax.core.linear_structure import LinearStructure
from fedminmax.core.messages import Census, Order, Reveals, RoundKey, Sums, all_finite, zero_sums
from fedminmax.core.simplex import FixedShares
from fedminmax.core.workspace import Workspace
from fedminmax.federation.one_round import run_round
from fedminmax.federation.protocol import Federation
from fedminmax.methods.fedminmax_fast import FedMinMaxFast
from fedminmax.methods.method import AnyMethod, Holder, RowSumsMethod
from fedminmax.methods.shared.checks import check_whole
from fedminmax.methods.shared.expected_reply import ExpectedReply, Sender
from fedminmax.methods.shared.fast_server import DEFAULT_GAP, ask_for_sums
from fedminmax.methods.shared.fits import max_members
from fedminmax.methods.shared.second_order_server import SecondOrderState, second_order_fits

# About twice as many as a few hundred features take.
MAX_ROUNDS = 20
# Whose sums the rounds ask for, and the only round of a model that is too wide for these.
PROVER = FedMinMaxFast(gap=DEFAULT_GAP)


@dataclass(frozen=True, eq=False)
class ProofState:
    """The model that the proof is about; it stays as it is."""

    parameters: Tensor
    weights: Tensor


@dataclass(frozen=True)
class GradientsForProof:
    """Asks for loss and gradient sums by group in float64, of linear models alone."""

    name: str = "certify"
    output: Iterate = Iterate.LAST
    learning_rate: float = 0.0
    reveals: Reveals = field(default=Reveals.SUMS, init=False)

    def init(self, parameters: Tensor, census: Census) -> ProofState:  # noqa: ARG002
        """Begin at the model itself."""
        return ProofState(parameters, torch.zeros(0, dtype=torch.float64))

    def order(self, state: ProofState, key: RoundKey) -> Order:
        """Broadcast the model."""
        return ask_for_sums(key, state.parameters)

    def local(self, order: Order, holder: Holder, workspace: Workspace) -> Sums:
        """Return loss and gradient sums by group."""
        return self.row_sums(order, holder, [workspace])

    def row_sums(self, order: Order, holder: Holder, workspaces: Sequence[Workspace]) -> Sums:
        """Return the same for any rows, whoever holds them."""
        rows, groups, linear = holder.examples, holder.groups, workspaces[0].linear
        if linear is None:
            raise TypeError("a network has no such sums")
        sums = linear_group_sums(linear, order.parameters, rows, groups, curvature=False)
        return replace(
            zero_sums(0, groups, 0),
            step=sums.gradients.flatten(),
            scale=float(len(rows)),
            group_loss=sums.losses,
            group_count=torch.bincount(rows.group, minlength=groups).cpu(),
            gradient_evaluations=len(rows),
        )

    def expected(self, order: Order, sender: Sender, reply: Sums) -> ExpectedReply:
        """Expect what a server that looks ahead without curvature does."""
        return FedMinMaxFast(curvature=False).expected(order, sender, reply)

    def update(self, state: ProofState, total: Sums) -> ProofState:  # noqa: ARG002
        """Leave the model as it is."""
        return state


def one_round_bound(
    structure: LinearStructure, census: Census, parameters: Tensor, total: Sums
) -> Certificate:
    """Return what the sums over all rows prove of a model with a ridge and a convex loss."""
    point, ridge = structure.to_free(parameters.cpu()), structure.ridge
    counts = census.counts.sum(dim=0)
    fixed = FixedShares(counts.double() / counts.sum(), census.playable)
    penalty = 0.5 * ridge * float(point @ point)
    risks = fixed.mix(total.group_loss / counts + penalty)
    gradients = structure.to_free(total.step.reshape(len(counts), -1)) / counts[:, None]
    slopes = fixed.mix(gradients + ridge * point)
    worst = float(risks.max())
    size = row_size(census, structure, linear_rows_per_chunk(structure))
    errors = errors_at(structure, size, float(point.norm()), worst)
    upper = worst + errors.value
    lower = lower_bound(cuts_at(point, risks, slopes, ridge, errors, upper), ridge)
    # Losses are not below 0.
    return Certificate(upper, min(max(lower, 0.0), upper), penalty, ridge)


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
    check_whole("certify", minimum=1, rounds=rounds)
    census = federation.census
    check_certifiable(census)
    structure = census.linear
    if structure is not None and prover_for(structure, census.groups) is WIDE_PROVER:
        still = WIDE_PROVER.init(parameters, census)
        key, everyone = RoundKey(0, 1), census.occupied
        only = run_round(federation, WIDE_PROVER, still, parameters[:0], key, everyone)
        _check_complete(only.total, census)
        return one_round_bound(structure, census, parameters, only.total)
    state = PROVER.init(parameters, census)
    length = float(state.parameters.double().norm())
    worst = float("inf")
    lower, ridge = 0.0, census.linear.ridge if census.linear else 0.0
    for number in range(1, rounds + 1):
        key = RoundKey(0, number)
        done = run_round(federation, PROVER, state, parameters[:0], key, census.occupied)
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
    reported, rows = total.group_count.cpu(), census.counts.sum(dim=0)
    if not torch.equal(reported, rows):
        raise IncompleteError(
            f"nothing is proved: only {int(reported.sum()):,} of {int(rows.sum()):,} training rows "
            "were reported"
        )
