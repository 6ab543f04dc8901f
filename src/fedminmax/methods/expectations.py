"""What an honest sender replies to a method's order, whatever the method's kind.

Methods that say it themselves are asked; for one full-batch step the row weights determine it, and
of local work only shape, counts and scale are known.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fedminmax.core.local_epochs import LocalEpochs
from fedminmax.core.messages import Order, Reveals, Sums
from fedminmax.methods.method import (
    AnyMethod,
    OneStepMethod,
    declares_replies,
    rate_of,
    sums_over_rows,
    takes_one_step,
)
from fedminmax.methods.shared.expected_reply import (
    ExpectedReply,
    OwnLoss,
    Sender,
    expect_local_epochs,
)


def expected_reply(
    method: AnyMethod[Any], order: Order, sender: Sender, reply: Sums
) -> ExpectedReply:
    """Return what an honest sender with these losses replies."""
    if declares_replies(method):
        expected = method.expected(order, sender, reply)
        return replace(expected, adds_up=expected.adds_up or sums_over_rows(method))
    if takes_one_step(method):
        return _expected_of_one_step(method, order, sender, reply)
    return _expected_of_local_work(method, order, sender, reply)


def _expected_of_one_step(
    method: OneStepMethod[Any], order: Order, sender: Sender, reply: Sums
) -> ExpectedReply:
    """The step is eta sum_i c_i grad_i: the row weights determine everything."""
    own = method.weigh(order, torch.tensor([sender.number]), sender.counts.unsqueeze(0))
    slopes = sender.limits.squared_slopes(sender.counts, reply.group_loss)
    return ExpectedReply(
        numbers=len(order.parameters),
        scale=float(own.scale[0]),
        rows=sender.rows,
        evaluations=sender.rows,
        reach=rate_of(method) * math.sqrt(float(torch.dot(own.coefficients[0] ** 2, slopes))),
        own_loss=_loss_of_all_rows(method, sender, reply),
        adds_up=True,
    )


def _expected_of_local_work(
    method: AnyMethod[Any], order: Order, sender: Sender, reply: Sums
) -> ExpectedReply:
    """Of work that the method does not describe: shape, counts and scale, n_k times a displacement.

    How long a step is depends on the work, so steps are only compared with each other, in units of
    FedAvg's with the method's epochs and batches, or of one step on all rows if it has none.
    """
    epochs, batch_size = getattr(method, "epochs", 1), getattr(method, "batch_size", None)
    plan = LocalEpochs(epochs, batch_size, rate_of(method))
    return replace(
        expect_local_epochs(order, sender, reply, plan, weight=float(sender.rows)),
        evaluations=reply.gradient_evaluations,
        is_limit=False,
        own_loss=_loss_of_all_rows(method, sender, reply),
    )


def _loss_of_all_rows(method: AnyMethod[Any], sender: Sender, reply: Sums) -> OwnLoss | None:
    """Return the sender's own loss, if the method needs it: the sum of its groups' losses."""
    total = float(reply.group_loss.sum())
    return OwnLoss(sender.rows, total, total) if method.reveals is Reveals.OWN_LOSS else None


@dataclass(frozen=True, eq=False)
class ReportedGradient:
    """The gradient of sum_i c_i loss_i over the sender's rows, c_i being their group's weight.

    Its length is at most ``reach`` times that of the rows.
    """

    weights: Tensor
    gradient: Tensor
    reach: float


def reported_gradients(
    method: AnyMethod[Any], order: Order, sender: Sender, reply: Sums, reach: float
) -> Iterator[ReportedGradient]:
    """Yield the gradients in a reply's step: of all rows, or of each group."""
    step = reply.step.double()
    if sums_over_rows(method):
        groups, gradients = len(sender.counts), step.reshape(-1, len(order.parameters))
        each = torch.eye(groups, dtype=torch.float64)
        if len(gradients) > groups:
            # Of other models than the order's: the groups' own.
            return
        weights = each if len(gradients) == groups else torch.ones_like(each[:1])
        for own_weights, gradient in zip(weights, gradients, strict=True):
            yield ReportedGradient(own_weights, gradient, reach)
    elif takes_one_step(method):
        own = method.weigh(order, torch.tensor([sender.number]), sender.counts.unsqueeze(0))
        gradient = step / rate_of(method)
        if sender.limits.ridge:
            # The ridge's part is known, and not included in the losses.
            penalised = float(own.coefficients[0] @ sender.counts.to(torch.float64))
            gradient = gradient - sender.limits.ridge * penalised * order.parameters.to(gradient)
        yield ReportedGradient(own.coefficients[0], gradient, reach / rate_of(method))
