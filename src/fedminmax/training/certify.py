"""Certificates for any linear model, however it was trained, from rounds of sums after a run.

Sites return sums by group. The first round is at the model itself: its worst risk, and the
one-round bound f_mu(theta) - |grad f_mu(theta)|^2 / (2 m) for the best mu (see
``core.certificate``). With a small ridge m that is tight only if the gradient is tiny, so further
rounds search for the optimum, as FedMinMaxFast does, and their bounds hold for the first model,
too.

A model that is too wide for second derivatives has only the first round. ``GradientsForProof`` then
collects group risks and their gradients, in float64 as a proof needs them.

``CellSums`` are sums by code over all records, from which the pairs of an additive model are
chosen: the reply of the plain mean fit without curvature, and the second derivatives of the loss in
each output, summed by code (``core.additive.sums.coded_bends``).
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from fedminmax.core.additive.sums import coded_bends, coded_group_sums
from fedminmax.core.certificate import (
    Certificate,
    check_provable,
    errors_at,
    lower_bound,
    masked_errors,
    row_size,
    tangents_at,
)
from fedminmax.core.errors import InputError
from fedminmax.core.iterates import Iterate
from fedminmax.core.linear_structure import LinearStructure
from fedminmax.core.messages import Census, Order, Reveals, RoundKey, Sums, all_finite, zero_sums
from fedminmax.core.one_step import linear_group_sums, linear_rows_per_chunk
from fedminmax.core.solvers.simplex import FixedShares
from fedminmax.core.workspace import Workspace
from fedminmax.methods.card import max_members
from fedminmax.methods.look_ahead import FedAvgFast, FedMinMaxFast
from fedminmax.methods.method import AnyMethod, RowSumsMethod, SiteData
from fedminmax.methods.shared.checks import check_whole
from fedminmax.methods.shared.expected_reply import ExpectedReply, Sender
from fedminmax.methods.shared.look_ahead import DEFAULT_GAP
from fedminmax.methods.shared.replies import NO_WEIGHTS
from fedminmax.methods.shared.second_order_state import SecondOrderState, second_order_fits
from fedminmax.training.progress import run_round
from fedminmax.training.protocol import Federation

# About twice as many as a few hundred features need.
MAX_ROUNDS = 20
# The method whose sums the rounds collect; WIDE_PROVER is for models that are too wide for it.
PROVER = FedMinMaxFast(optimality_gap=DEFAULT_GAP)
MEAN_FIT = FedAvgFast()


@dataclass(frozen=True, eq=False)
class ProofState:
    """The model that the proof is about; it does not change."""

    parameters: Tensor
    weights: Tensor


@dataclass(frozen=True)
class SumsAtModel(ABC):
    """Collects sums over records at a model, which does not change; subclasses say which."""

    name: str
    output: Iterate = Iterate.LAST
    learning_rate: float = 0.0
    reveals: Reveals = field(default=Reveals.SUMS, init=False)

    def init(self, parameters: Tensor, census: Census) -> ProofState:  # noqa: ARG002
        """Start at the model itself."""
        return ProofState(parameters, torch.zeros(0, dtype=torch.float64))

    def order(self, state: ProofState, key: RoundKey) -> Order:
        """Broadcast the model."""
        return Order(key, state.parameters, NO_WEIGHTS)

    def local(self, order: Order, site: SiteData, workspace: Workspace) -> Sums:
        """Return the sums over a site's rows."""
        return self.row_sums(order, site, [workspace])

    @abstractmethod
    def row_sums(self, order: Order, site: SiteData, workspaces: Sequence[Workspace]) -> Sums:
        """Return the sums over any set of rows."""

    def update(self, state: ProofState, total: Sums) -> ProofState:  # noqa: ARG002
        """Do not change the model."""
        return state


@dataclass(frozen=True)
class GradientsForProof(SumsAtModel):
    """Collects loss and gradient sums by group in float64, for linear models only."""

    name: str = "certify"

    def row_sums(self, order: Order, site: SiteData, workspaces: Sequence[Workspace]) -> Sums:
        """Return loss and gradient sums by group."""
        rows, groups, linear = site.examples, site.groups, workspaces[0].linear
        if linear is None:
            raise TypeError("a network has no such sums")
        design = workspaces[0].design
        sums = (
            linear_group_sums(linear, order.parameters, rows, groups, curvature=False)
            if design is None
            else coded_group_sums(linear, design, order.parameters, rows, groups)
        )
        return replace(
            zero_sums(0, groups, 0),
            step=sums.gradients.flatten(),
            scale=float(len(rows)),
            group_loss=sums.losses,
            group_count=torch.bincount(rows.group, minlength=groups).cpu(),
            gradient_evaluations=len(rows),
        )

    def expected(self, order: Order, sender: Sender, reply: Sums) -> ExpectedReply:
        """Expect the same as a server that looks ahead without curvature."""
        return FedMinMaxFast(curvature=False).expected(order, sender, reply)


def one_round_bound(
    structure: LinearStructure, census: Census, parameters: Tensor, total: Sums
) -> Certificate:
    """Return what the sums over all rows prove about a model with a ridge and a convex loss."""
    point, ridge = structure.to_free(parameters.cpu()), structure.ridge
    counts = census.counts.sum(dim=0)
    fixed = FixedShares(counts.double() / counts.sum(), census.included)
    penalty = 0.5 * ridge * float(point @ point)
    risks = fixed.mix(total.group_loss / counts + penalty)
    gradients = structure.to_free(total.step.reshape(len(counts), -1)) / counts[:, None]
    slopes = fixed.mix(gradients + ridge * point)
    worst = float(risks.max())
    masked = masked_errors(structure, total.rounding, counts)
    size = replace(row_size(census, structure, linear_rows_per_chunk(structure)), masked=masked)
    errors = errors_at(structure, size, float(parameters.double().norm()), worst)
    upper = worst + errors.value
    tangents = tangents_at(point, risks, slopes, ridge=ridge, errors=errors)
    lower = lower_bound(tangents.cuts(upper, ridge), ridge)
    shift = _penalty_of_shift(structure, parameters)
    # Losses are not negative.
    return Certificate(upper + shift, max(lower, 0.0), penalty + shift, ridge)


def _penalty_of_shift(structure: LinearStructure, parameters: Tensor) -> float:
    """Return the penalty of a common shift of all outputs, which changes no prediction."""
    own, free = parameters.cpu().double(), structure.to_free(parameters.cpu())
    return max(0.5 * structure.ridge * float(own @ own - free @ free), 0.0)


WIDE_PROVER = GradientsForProof()


class IncompleteError(RuntimeError):
    """Not all sites reported on the model; the sums of the others prove nothing."""


def check_certifiable(census: Census) -> None:
    """Refuse models that cannot be certified, with the reason."""
    check_provable(census.linear)
    if census.row_lengths is None or not all_finite(census.row_lengths):
        raise InputError(
            "certify: rounding errors cannot be bounded, because the lengths of the rows are not "
            "known; give features of ordinary size"
        )


def check_single_answer(method: AnyMethod[Any], rounds: int) -> None:
    """Refuse a method that may return a mixture: proofs are about single models."""
    most = max_members(method, rounds)
    if most > 1:
        raise InputError(
            f"certify: {method.name} returns a mixture of up to {most} models, but proofs are "
            "about single models; choose another method"
        )


def certify(federation: Federation, parameters: Tensor, rounds: int = MAX_ROUNDS) -> Certificate:
    """Prove how much lower the worst group risk of any linear model can be than this model's.

    Every site takes part in every round; an ``IncompleteError`` means that some did not reply in
    the first one. Rounds end early once the bound is within 1e-4 of the best model found; a single
    round gives the bound from this model's own gradients.

    >>> import torch
    >>> from fedminmax import Simulation
    >>> from fedminmax.losses import squared_error_loss
    >>> rows = (torch.ones(2, 1), torch.tensor([0.0, 2.0]), torch.tensor([0, 1]))
    >>> model = torch.nn.Linear(1, 1, bias=False).double()
    >>> federation = Simulation(model, squared_error_loss, [rows], ridge=0.01)
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
        only = run_round(
            federation, WIDE_PROVER, still, kept=parameters[:0], key=key, participants=everyone
        )
        _check_complete(only.total, census)
        return one_round_bound(structure, census, parameters, only.total)
    state = PROVER.init(parameters, census)
    if isinstance(state, SecondOrderState):
        # The model itself: in single precision, one without its common shift is another model.
        state = replace(state, parameters=parameters, best=parameters)
    length = float(parameters.double().norm())
    worst = float("inf")
    lower, ridge = 0.0, census.linear.ridge if census.linear else 0.0
    for number in range(1, rounds + 1):
        key = RoundKey(0, number)
        done = run_round(
            federation, PROVER, state, kept=parameters[:0], key=key, participants=census.occupied
        )
        if number == 1:
            _check_complete(done.total, census)
        if number == 1 and isinstance(state, SecondOrderState):
            worst = state.worst_of(done.total)
        state = done.state
        if isinstance(state, SecondOrderState):
            lower = max(lower, state.lower)
        if PROVER.is_done(state):
            break
    return Certificate(worst, lower, 0.5 * ridge * length**2, ridge)


def prover_for(structure: LinearStructure | None, groups: int) -> RowSumsMethod[Any]:
    """Return the method whose sums a proof needs; called by both sides."""
    return PROVER if second_order_fits(structure, groups) else WIDE_PROVER


def _check_complete(total: Sums, census: Census) -> None:
    reported, rows = total.group_count.cpu(), census.counts.sum(dim=0)
    if not torch.equal(reported, rows):
        raise IncompleteError(
            f"nothing is proved: only {int(reported.sum()):,} of {int(rows.sum()):,} training rows "
            "were reported"
        )


@dataclass(frozen=True)
class CellSums(SumsAtModel):
    """Collects slopes and second derivatives by code, for additive models only."""

    name: str = "cells"

    def row_sums(self, order: Order, site: SiteData, workspaces: Sequence[Workspace]) -> Sums:
        """Return the sums by code."""
        linear, design = workspaces[0].linear, workspaces[0].design
        if linear is None or design is None:
            raise TypeError("only additive models have codes")
        bends = coded_bends(linear, design, order.parameters, site.examples)
        return replace(MEAN_FIT.sums_of_rows(order, site, workspaces), statistics=bends.flatten())

    def expected(self, order: Order, sender: Sender, reply: Sums) -> ExpectedReply:
        """Expect the mean fit's reply, and second derivatives that so many records can have."""
        classes = sender.limits.classes
        numbers = len(order.parameters) - max(classes, 1)
        largest = (0.25 if classes else 2.0) * sender.rows
        return replace(
            MEAN_FIT.expected(order, sender, reply),
            lower=torch.zeros(numbers, dtype=torch.float64),
            upper=torch.full((numbers,), largest, dtype=torch.float64),
        )
