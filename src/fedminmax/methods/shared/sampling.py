"""Drawing sites at random, and local steps with a snapshot.

The server draws sites with replacement, and a site drawn c times counts c times, so sums over
the drawn sites are unbiased.

Local steps with a snapshot are the first request of DRFA and of its group form. Sites take tau
steps and return their models after step t' and after the last one. The server draws one t' for all;
the adversary then moves by the losses at the mean snapshot, an unbiased sample of the round's tau
intermediate models.

| symbol                  | name                    |
|-------------------------|-------------------------|
| tau                     | LocalSteps.steps        |
| t'                      | order.weights[-1]       |
| theta - theta_k^{(tau)} | first half of Sums.step |
| theta - theta_k^{(t')}  | second half of Sums.step |
"""

from dataclasses import dataclass, replace
from itertools import islice
from math import hypot

import numpy as np
import torch
from torch import Tensor

from fedminmax.core.local_epochs import shuffled_batches, take_step
from fedminmax.core.messages import Order, Sums, descend
from fedminmax.core.workspace import Workspace
from fedminmax.methods.method import SiteData
from fedminmax.methods.shared.checks import check_positive, check_whole
from fedminmax.methods.shared.expected_reply import (
    ExpectedReply,
    Sender,
    batch_sizes,
    batches_reach,
    path_of,
    rounding_of_steps,
)
from fedminmax.methods.shared.replies import displacement, local_stream, sums_before_training


def draw_sites(odds: Tensor, draws: int, rng: np.random.Generator) -> Tensor:
    """Draw in proportion to ``odds``; return how often each site was drawn, in float64."""
    probabilities = odds.to(torch.float64) / odds.sum()
    drawn = rng.choice(len(odds), size=draws, p=probabilities.tolist())
    return torch.tensor(np.bincount(drawn, minlength=len(odds)), dtype=torch.float64)


def only_rows(site: SiteData, batch: Tensor | None) -> SiteData:
    """Return the site with only these rows; None stands for all rows."""
    if batch is None:
        return site
    return replace(site, examples=site.examples.rows(batch.to(site.examples.group.device)))


def mean_loss(reply: Sums) -> float:
    """Return the mean loss over the rows of one site's reply."""
    return float(reply.group_loss.sum()) / int(reply.group_count.sum())


def with_own_loss(reply: Sums, site: SiteData, loss: float) -> Sums:
    """Put the site's own number into its reply, with count 1: it took part."""
    losses = torch.zeros(site.sites, dtype=torch.float64)
    counts = torch.zeros(site.sites, dtype=torch.int64)
    losses[site.number], counts[site.number] = loss, 1
    return replace(reply, site_loss=losses, site_count=counts)


@dataclass(frozen=True)
class LocalSteps:
    """How a site trains; ``batch_size`` None means all rows in one batch."""

    steps: int
    batch_size: int | None
    learning_rate: float

    def check(self, method: str) -> None:
        """Refuse an invalid number of steps or a rate that is not positive."""
        check_positive(method, learning_rate=self.learning_rate)
        check_whole(method, minimum=1, steps=self.steps)
        if self.batch_size is not None:
            check_whole(method, minimum=1, batch_size=self.batch_size)


def draw_snapshot_step(steps: int, rng: np.random.Generator) -> int:
    """Draw t' uniformly from 1 to ``steps``."""
    return int(rng.integers(1, steps, endpoint=True))


def with_snapshot_step(weights: Tensor, snapshot_step: int) -> Tensor:
    """Append t' to the weights of an order."""
    return torch.cat([weights, weights.new_tensor([snapshot_step])])


def train_with_snapshot(
    order: Order,
    site: SiteData,
    workspace: Workspace,
    plan: LocalSteps,
    *,
    weight: float,
    row_weights: Tensor | None = None,
) -> Sums:
    """Return both displacements, concatenated, times ``weight`` and on that scale.

    A site without weight does not train; it still returns the losses of the model it received.
    """
    before = sums_before_training(order, site, workspace)
    if weight == 0:
        return replace(before, step=order.parameters.new_zeros(2 * len(order.parameters)))
    examples, snapshot_step = site.examples, int(order.weights[-1])
    endless = shuffled_batches(len(examples), plan.batch_size, local_stream(order, site))
    batches = list(islice(endless, plan.steps))

    def run_steps(part: list[Tensor | None]) -> Tensor:
        for batch in part:
            take_step(workspace, examples, batch, row_weights, plan.learning_rate)
        return displacement(order, workspace.in_model_order(workspace.flat))

    at_snapshot = run_steps(batches[:snapshot_step])
    at_end = run_steps(batches[snapshot_step:])
    return replace(
        before,
        step=torch.cat([at_end, at_snapshot]).mul_(weight),
        scale=weight,
        gradient_evaluations=sum(len(examples if rows is None else rows) for rows in batches),
    )


def expect_snapshot(
    order: Order,
    sender: Sender,
    reply: Sums,
    plan: LocalSteps,
    *,
    weight: float,
    row_weight: float = 1.0,
) -> ExpectedReply:
    """Expect both displacements times ``weight``; ``row_weight`` is the largest row weight."""
    if weight == 0:
        numbers = 2 * len(order.parameters)
        return ExpectedReply(numbers=numbers, scale=0.0, rows=sender.rows, evaluations=0)
    path, sizes = path_of(sender, reply), batch_sizes(sender.rows, plan.batch_size)
    epochs, rest = divmod(plan.steps, len(sizes))
    slope = weight * row_weight * path.slope

    def reach(steps: int) -> float:
        whole, more = divmod(steps, len(sizes))
        per_epoch = batches_reach(sizes, plan.learning_rate)
        return slope * (whole * per_epoch + batches_reach(sizes[:more], plan.learning_rate))

    return ExpectedReply(
        numbers=2 * len(order.parameters),
        scale=weight,
        rows=sender.rows,
        evaluations=epochs * sender.rows + sum(sizes[:rest]),
        reach=hypot(reach(plan.steps), reach(int(order.weights[-1]))),
        fixed=2.0 * weight * rounding_of_steps(order, plan.steps),
        is_limit=path.is_limit,
    )


def descend_twice(parameters: Tensor, total: Sums) -> tuple[Tensor, Tensor]:
    """Return the mean of the trained models, and that of the snapshots as a one-row table."""
    at_end, at_snapshot = torch.split(total.step, len(parameters))
    trained = descend(parameters, replace(total, step=at_end))
    return trained, descend(parameters, replace(total, step=at_snapshot)).unsqueeze(0)


def no_snapshot(parameters: Tensor) -> Tensor:
    """Return the empty table: no request is pending."""
    return parameters.new_zeros(0, len(parameters))
