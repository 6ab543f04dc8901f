"""Sums over holders that keep a promise of privacy: clipped, with noise, and nothing besides.

The server gets one line of counts for all holders, and with each answer that same line: how many
rows there really are, it never learns.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedminmax.core.bounds import MAX_NETWORK_RATE, rate_for_eigenvalue, rounded_rate
from fedminmax.core.errors import InputError
from fedminmax.core.losses import Loss
from fedminmax.core.messages import Census, Order, Sums, zero_sums
from fedminmax.core.privacy.clipping import ClippedRows
from fedminmax.core.privacy.mechanism import (
    Mechanism,
    Privacy,
    Unit,
    cap_of,
    second_moment,
    steepness_of,
)
from fedminmax.core.task import Task
from fedminmax.federation.holders import SortedRows
from fedminmax.methods.method import (
    AnyMethod,
    StateT,
    SumsMethod,
    check_hidden,
    rate_of,
    takes_one_step,
)

EVERYBODY = torch.tensor([0])


@dataclass(frozen=True, eq=False)
class Hidden:
    """The noise of a run, and what the server knows before its first round."""

    mechanism: Mechanism
    census: Census

    @property
    def row_limits(self) -> ClippedRows | None:
        """What one row may add to a sum, if rows are what is hidden."""
        privacy = self.mechanism.privacy
        if privacy.unit is not Unit.ROW:
            return None
        return ClippedRows(privacy.clip, self.mechanism.max_loss)

    def rate(self, loss: Loss) -> float:
        """Return the learning rate of methods that have none, from what the server knows."""
        moment, linear = self.census.moment, self.census.linear
        if moment is None or linear is None:
            return MAX_NETWORK_RATE
        largest = float(torch.linalg.eigvalsh(moment / self.census.counts.sum())[-1])
        # Noise may leave nothing of it; no mean of such rows has less than that.
        largest = max(largest, self.mechanism.max_row**2 / linear.columns)
        rate = rate_for_eigenvalue(loss, largest, linear=True, ridge=linear.ridge)
        return float(rounded_rate(rate))


def hide(privacy: Privacy, task: Task, rows: SortedRows, *, exact: Census, key: bytes) -> Hidden:
    """Plan the noise, and add it to all that the server gets to know before the first round."""
    if not isinstance(privacy, Privacy):
        raise InputError(f"privacy = {privacy!r}; give a Privacy")
    if any(len(own) for own in rows.validation):
        raise InputError(
            "losses on validation rows are not part of the promise of privacy; set validation to "
            "0, and choose the rounds beforehand"
        )
    loss, holders, parameters = task.loss, rows.holders, task.initial_parameters.numel()
    privacy.check_data(int(exact.counts.sum()), exact.holders)
    mechanism = Mechanism(
        privacy,
        exact.holders,
        privacy.max_loss or cap_of(loss, exact.classes),
        privacy.clip / steepness_of(loss),
        key,
    )
    shares = [mechanism.share_of(len(own)) for own in holders]
    linear, moment = exact.linear, torch.zeros(0, dtype=torch.float64)
    if linear is not None:
        moment = moment.new_zeros(linear.columns, linear.columns)
        for share, own in zip(shares, holders, strict=True):
            if len(own):
                x = own.x.cpu()
                moment += share * second_moment(x, mechanism.max_row, intercept=linear.intercept)
    counts = torch.tensor(shares, dtype=torch.float64) @ exact.counts.double()
    noisy, moment = mechanism.hide_census(counts, moment)
    # Where noise would rule in all groups, the largest one alone plays: that is the mean risk.
    needed = mechanism.rows_to_play(linear.free_numbers if linear else parameters)
    return Hidden(
        mechanism,
        replace(
            exact,
            counts=noisy.unsqueeze(0),
            minimum_group=max(exact.minimum_group, min(needed, int(noisy.max()))),
            row_lengths=None,
            noise=mechanism.levels,
            moment=None if linear is None else moment,
        ),
    )


def check_draws_nothing(*, random: bool) -> None:
    """Refuse a model or loss that draws random numbers: its sums have no known sensitivity."""
    if random:
        raise InputError(
            "a model or loss that draws random numbers, such as dropout, cannot keep a promise of "
            "privacy; remove them"
        )


def check_round(hidden: Hidden, method: AnyMethod[StateT], order: Order) -> None:
    """Refuse a method or a round that the promise does not cover."""
    privacy = hidden.mechanism.privacy
    check_hidden(method, privacy.unit)
    if order.key.round > privacy.rounds:
        raise InputError(
            f"round {order.key.round} is beyond the {privacy.rounds} rounds that the promise of "
            "privacy is for; plan more rounds before the first one"
        )


def hidden_rows(
    hidden: Hidden, method: SumsMethod[StateT], order: Order, total: Sums, ridge: float
) -> Sums:
    """Return what the server gets of these sums over clipped rows."""
    mechanism, counts = hidden.mechanism, hidden.census.counts.sum(dim=0)
    step_size, scale, pull = mechanism.privacy.clip, float(counts.sum()), 0.0
    if takes_one_step(method):
        weighed = method.weigh(order, EVERYBODY, counts.unsqueeze(0))
        coefficients, scale = weighed.coefficients[0].double(), float(weighed.scale.sum())
        step_size *= rate_of(method) * float(coefficients.abs().max())
        # The penalty's gradient is no row's.
        pull = rate_of(method) * ridge * float(coefficients @ counts.double())
    centred = total.group_loss - 0.5 * mechanism.max_loss * total.group_count
    step, losses = mechanism.hide_round(_label(method, order), total.step, centred, step_size)
    if pull:
        step = step + pull * order.parameters.double().cpu()
    return _reply(mechanism, step, scale, losses, counts)


def hidden_sites(
    hidden: Hidden, method: SumsMethod[StateT], order: Order, replies: Iterable[Sums]
) -> Sums:
    """Return what the server gets of these holders' replies, each of which counts as one row."""
    mechanism, counts = hidden.mechanism, hidden.census.counts.sum(dim=0)
    max_step = mechanism.size * mechanism.privacy.clip
    max_losses = 0.5 * mechanism.size * mechanism.max_loss
    step, losses = torch.zeros(0, dtype=torch.float64), torch.zeros(len(counts)).double()
    for reply in replies:
        share = mechanism.share_of(int(reply.group_count.sum()))
        own = shortened(share * reply.step.double().cpu(), max_step)
        centred = share * (reply.group_loss - 0.5 * mechanism.max_loss * reply.group_count)
        step = step + own if len(step) else own
        losses += shortened(centred, max_losses)
    step, losses = mechanism.hide_round(_label(method, order), step, losses, max_step)
    return _reply(mechanism, step, mechanism.size * mechanism.holders, losses, counts)


def shortened(vector: Tensor, longest: float) -> Tensor:
    """Return the vector, or one of the largest length in its direction."""
    length = float(vector.norm())
    return vector if length <= longest else vector * (longest / length)


def _reply(
    mechanism: Mechanism, step: Tensor, scale: float, centred: Tensor, counts: Tensor
) -> Sums:
    return replace(
        zero_sums(0, len(counts), 0),
        step=step,
        scale=scale,
        group_loss=centred + 0.5 * mechanism.max_loss * counts.double(),
        group_count=counts,
        gradient_evaluations=int(counts.sum()),
    )


def _label(method: SumsMethod[StateT], order: Order) -> str:
    """Return what no two releases of a run share."""
    key = order.key
    return f"{method.name}, seed {key.seed}, round {key.round}, phase {order.phase}"
