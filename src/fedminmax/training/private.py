"""Sums over sites that keep a privacy guarantee: clipped, with noise, and nothing besides.

What a site adds up (``census_sums``, ``own_sums``) gets noise, and the server completes it with
what it knows (``noisy_census``, ``completed``): one line of counts for all sites, and with each
answer that same line. How many rows of a group there really are, it never learns. In one process
the noise is added to the total; over a network each site adds its share to its own sums.
"""

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from fedminmax.core.bounds import MAX_NETWORK_RATE, rate_for_eigenvalue, rounded_rate
from fedminmax.core.errors import InputError
from fedminmax.core.linear_structure import LinearStructure
from fedminmax.core.losses import Loss
from fedminmax.core.messages import Census, Order, Sums, zero_sums
from fedminmax.core.noise import ClippedRows, Unit
from fedminmax.core.privacy.mechanism import (
    Mechanism,
    Privacy,
    cap_of,
    pack_moment,
    second_moment,
    steepness_of,
    unpack_moment,
    whole_counts,
)
from fedminmax.core.task import Task
from fedminmax.methods.card import check_private_unit
from fedminmax.methods.method import AnyMethod, StateT, rate_of, takes_one_step
from fedminmax.training.prepare import PreparedRows

EVERYBODY = torch.tensor([0])


@dataclass(frozen=True, eq=False)
class Hidden:
    """The noise of a run, and what the server knows before its first round.

    ``answered`` has the digest of the order that each draw of noise was used for.
    """

    mechanism: Mechanism
    census: Census
    answered: dict[str, str] = field(default_factory=dict)

    @property
    def row_limits(self) -> ClippedRows | None:
        """What one row may add to a sum, if rows are what is hidden."""
        return row_limits_of(self.mechanism)

    def rate(self, loss: Loss) -> float:
        """Return the learning rate of methods that have none, from what the server knows."""
        return float(rate_from_census(self.mechanism, self.census, loss))


def mechanism_of(
    privacy: Privacy, loss: Loss, *, classes: int, sites: int, key: bytes = b""
) -> Mechanism:
    """Return the noise of a promise for a model with this loss."""
    max_loss = privacy.max_loss or cap_of(loss, classes)
    return Mechanism(privacy, sites, max_loss, privacy.clip / steepness_of(loss), key)


def row_limits_of(mechanism: Mechanism) -> ClippedRows | None:
    """Return what one row may add to a sum, if rows are what is hidden."""
    privacy = mechanism.privacy
    if privacy.unit is not Unit.ROW:
        return None
    return ClippedRows(privacy.clip, mechanism.max_loss)


def rate_from_census(mechanism: Mechanism, census: Census, loss: Loss) -> str:
    """Return the learning rate of methods that have none, as text, from a noisy census."""
    moment, linear = census.moment, census.linear
    if moment is None or linear is None:
        return repr(MAX_NETWORK_RATE)
    largest = float(torch.linalg.eigvalsh(moment / census.counts.sum())[-1])
    # Noise may leave nothing of it; no mean of such rows has less than that.
    largest = max(largest, mechanism.max_row**2 / linear.columns)
    return rounded_rate(rate_for_eigenvalue(loss, largest, linear=True, ridge=linear.ridge))


def hide(privacy: Privacy, task: Task, rows: PreparedRows, *, exact: Census, key: bytes) -> Hidden:
    """Plan the noise, and add it to all that the server gets to know before the first round."""
    if not isinstance(privacy, Privacy):
        raise InputError(f"privacy = {privacy!r}; give a Privacy")
    if any(len(own) for own in rows.validation):
        raise InputError(
            "losses on validation rows are not part of the privacy guarantee; set validation to "
            "0, and choose the rounds beforehand"
        )
    privacy.check_data(int(exact.counts.sum()), exact.sites)
    mechanism = mechanism_of(privacy, task.loss, classes=exact.classes, sites=exact.sites, key=key)
    counts, lower = torch.zeros(exact.groups, dtype=torch.float64), packed_zeros(exact.linear)
    for own, by_group in zip(rows.sites, exact.counts, strict=True):
        if len(own):
            sums = census_sums(mechanism, own.x, by_group, exact.linear)
            counts, lower = counts + sums[0], lower + sums[1]
    noise = mechanism.noise("census", lower, counts)
    known = replace(exact, row_lengths=None, value_marks=None)
    return Hidden(
        mechanism,
        noisy_census(
            mechanism,
            *mechanism.add_to_census(noise, counts, lower),
            known=known,
            parameters=task.initial_parameters.numel(),
        ),
    )


def packed_zeros(linear: LinearStructure | None) -> Tensor:
    """Return zeros in place of the packed sum of x x'; none for a network."""
    columns = 0 if linear is None else linear.columns
    return torch.zeros(columns * (columns + 1) // 2, dtype=torch.float64)


def census_sums(
    mechanism: Mechanism, x: Tensor, counts: Tensor, linear: LinearStructure | None
) -> tuple[Tensor, Tensor]:
    """Return a site's rows by group and packed sum of x x', before noise."""
    share = mechanism.share_of(int(counts.sum()))
    lower = packed_zeros(linear)
    if linear is not None:
        moment = second_moment(x.cpu(), mechanism.max_row, intercept=linear.intercept)
        lower = share * pack_moment(moment)
    return share * counts.double(), lower


def noisy_census(
    mechanism: Mechanism, counts: Tensor, lower: Tensor, *, known: Census, parameters: int
) -> Census:
    """Return what the server knows from noisy sums, beside what no row decides (``known``)."""
    whole, linear = whole_counts(counts), known.linear
    # Where noise would rule in all groups, only the largest one is included: that is the mean risk.
    needed = mechanism.rows_to_include(linear.free_numbers if linear else parameters)
    return replace(
        known,
        counts=whole.unsqueeze(0),
        minimum_group=max(known.minimum_group, min(needed, int(whole.max()))),
        noise=mechanism.levels,
        moment=None if linear is None else unpack_moment(lower),
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
    check_private_unit(method, privacy.unit)
    if order.key.round > privacy.rounds:
        raise InputError(
            f"round {order.key.round} is beyond the {privacy.rounds} rounds that the promise of "
            "privacy is for; plan more rounds before the first one"
        )


def hidden_total(
    hidden: Hidden,
    method: AnyMethod[StateT],
    order: Order,
    replies: Iterable[Sums],
    ridge: float,
) -> Sums:
    """Return what the server gets of these replies; if rows are hidden, one may be of all rows."""
    label = _label_for(hidden, method, order)
    mechanism, counts = hidden.mechanism, hidden.census.counts.sum(dim=0)
    step, losses = torch.zeros(0, dtype=torch.float64), torch.zeros(len(counts)).double()
    for reply in replies:
        own, centred = own_sums(mechanism, reply)
        step = step + own if len(step) else own
        losses += centred
    size = step_size_of(mechanism, method, order, len(counts))
    noise = mechanism.noise(label, step, losses)
    step, losses = mechanism.add_to_round(noise, step, losses, size)
    return completed(mechanism, method, order, step, losses, counts=counts, ridge=ridge, sites=None)


def own_sums(mechanism: Mechanism, reply: Sums) -> tuple[Tensor, Tensor]:
    """Return a site's step and centred losses before noise, each within what a unit may add."""
    step = reply.step.double().cpu()
    centred = reply.group_loss - 0.5 * mechanism.max_loss * reply.group_count
    privacy = mechanism.privacy
    if privacy.unit is Unit.ROW:
        return step, centred
    share = mechanism.share_of(int(reply.group_count.sum()))
    return (
        shortened(share * step, mechanism.size * privacy.clip),
        shortened(share * centred, 0.5 * mechanism.size * mechanism.max_loss),
    )


def step_size_of(
    mechanism: Mechanism, method: AnyMethod[StateT], order: Order, groups: int
) -> float:
    """Return the most that a unit adds to a step; it depends on the order alone."""
    privacy = mechanism.privacy
    if privacy.unit is Unit.SITE or not takes_one_step(method):
        return mechanism.size * privacy.clip
    weighed = method.weigh(order, EVERYBODY, torch.ones(1, groups, dtype=torch.int64))
    return privacy.clip * rate_of(method) * float(weighed.coefficients[0].double().abs().max())


def shortened(vector: Tensor, longest: float) -> Tensor:
    """Return the vector, or one of the largest length in its direction; zeros for one without."""
    length = float(vector.norm())
    if not math.isfinite(length):
        # A refusal would tell of this site alone.
        return torch.zeros_like(vector)
    return vector if length <= longest else vector * (longest / length)


def completed(
    mechanism: Mechanism,
    method: AnyMethod[StateT],
    order: Order,
    step: Tensor,
    centred: Tensor,
    *,
    counts: Tensor,
    ridge: float,
    sites: int | None,
) -> Sums:
    """Return a round's noisy sums with what the server knows: scale, counts, and the penalty.

    If fewer ``sites`` than all replied, they are taken to have their share of the rows: how many
    they have is hidden.
    """
    present = mechanism.sites if sites is None else sites
    if present < mechanism.sites:
        counts = whole_counts(counts.double() * (present / mechanism.sites))
    scale = mechanism.size * present
    if mechanism.privacy.unit is Unit.ROW:
        scale = float(counts.sum())
        if takes_one_step(method):
            weighed = method.weigh(order, EVERYBODY, counts.unsqueeze(0))
            coefficients, scale = weighed.coefficients[0].double(), float(weighed.scale.sum())
            # The penalty's gradient is no row's.
            pull = rate_of(method) * ridge * float(coefficients @ counts.double())
            if pull:
                step = step + pull * order.parameters.double().cpu()
    return replace(
        zero_sums(0, len(counts), 0),
        step=step,
        scale=scale,
        group_loss=centred + 0.5 * mechanism.max_loss * counts.double(),
        group_count=counts,
        gradient_evaluations=int(counts.sum()),
    )


def _label_for(hidden: Hidden, method: AnyMethod[StateT], order: Order) -> str:
    """Return what no two releases share; refuse another order than this noise was used for.

    With the same noise, the difference of two answers would be exact.
    """
    key = order.key
    label = f"{method.name}, seed {key.seed}, round {key.round}, phase {order.phase}"
    asked = hashlib.sha256(repr(method).encode())
    for vector in (order.parameters, order.weights):
        asked.update(vector.detach().double().cpu().contiguous().numpy().data)
    if hidden.answered.setdefault(label, asked.hexdigest()) != asked.hexdigest():
        raise InputError(
            f"this federation has answered another order for round {key.round} of {method.name} "
            f"with seed {key.seed}, and has the same noise for this one; make a new federation "
            "with another noise_key, or train with another seed"
        )
    return label
