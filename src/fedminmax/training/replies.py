"""How a simulation computes its sites' replies: one by one, or all from one pass.

The plain path: each site works on its own rows, one reply per site, added in order. It is the
reference for the fused path, and the only path for methods that train locally. Several workers
share the sites, one thread and one workspace each; replies are summed in the sites' order with few
of them in memory, so the number of workers only affects the time.

The fused path: the sum over sites of one-step replies is one weighted gradient, with a weight per
(site, group) cell that is known before the pass over the pooled rows; loss sums per cell come from
the same pass. The cost does not depend on the number of sites.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from queue import SimpleQueue
from typing import TypeVar

import torch
from torch import Tensor

from fedminmax.core.examples import Examples, concatenate
from fedminmax.core.messages import NO_STATISTICS, Order, Reveals, RoundKey, Sums, zero_sums
from fedminmax.core.one_step import weighted_gradient
from fedminmax.core.randomness import Purpose, globally_seeded
from fedminmax.core.workspace import Workspace, worker_pool
from fedminmax.methods.method import (
    AnyMethod,
    OneStepMethod,
    SiteData,
    StateT,
    lets_sites_keep,
    rate_of,
    takes_one_step,
)
from fedminmax.methods.shared.replies import sum_by_group

ReplyT = TypeVar("ReplyT")
NOTHING = torch.zeros(0, dtype=torch.float64)


def site_reply(
    method: AnyMethod[StateT], order: Order, site: SiteData, workspace: Workspace
) -> tuple[Sums, Tensor]:
    """Return one site's reply, and its private state afterwards, whatever the method's kind."""
    if takes_one_step(method):
        return _one_step_reply(method, order, site, workspace), site.kept
    if lets_sites_keep(method):
        return method.local_and_keep(order, site, workspace)
    return method.local(order, site, workspace), site.kept


def _one_step_reply(
    method: OneStepMethod[StateT], order: Order, site: SiteData, workspace: Workspace
) -> Sums:
    """Take one full-batch gradient step on this site's rows."""
    examples = site.examples
    count = torch.bincount(examples.group, minlength=site.groups).cpu()
    own = method.weigh(order, torch.tensor([site.number]), count.unsqueeze(0))
    workspace.load(order.parameters)
    row_weights = own.coefficients[0].to(order.parameters)[examples.group]
    gradient, losses = weighted_gradient([workspace], examples, row_weights, site.rows_per_chunk)
    sites = site.sites if method.reveals is Reveals.OWN_LOSS else 0
    group_loss = sum_by_group(losses, site)
    reply = replace(
        zero_sums(0, site.groups, sites),
        step=gradient.cpu() * rate_of(method),
        scale=float(own.scale[0]),
        group_loss=group_loss,
        group_count=count,
        gradient_evaluations=len(examples),
    )
    if sites:
        reply.site_loss[site.number] = group_loss.sum()
        reply.site_count[site.number] = len(examples)
    return reply


def ask_in_turn(
    work: Callable[[SiteData, Workspace], ReplyT],
    sites: Iterable[SiteData],
    workspaces: Sequence[Workspace],
) -> Iterator[ReplyT]:
    """Run each site's work, and yield the replies in the order of the sites."""
    if len(workspaces) == 1:
        return (work(site, workspaces[0]) for site in sites)
    return _ask_in_threads(work, sites, workspaces)


def seeded(
    work: Callable[[SiteData, Workspace], ReplyT], key: RoundKey
) -> Callable[[SiteData, Workspace], ReplyT]:
    """Set the global random states from (seed, round, site) for each site's work.

    For models and losses that draw random numbers: they draw from those states, which are restored
    afterwards.
    """

    def work_seeded(site: SiteData, workspace: Workspace) -> ReplyT:
        with globally_seeded(key.seed, Purpose.DROPOUT, key.round, site.number):
            return work(site, workspace)

    return work_seeded


def add_up(replies: Iterable[Sums]) -> Sums:
    """Add replies in the order given, their large steps in place and in float64."""
    rest = iter(replies)
    first = next(rest)
    # A copy: a reply that is already in float64 must not change.
    step, total = first.step.to(torch.float64, copy=True), replace(first, step=NOTHING)
    for reply in rest:
        step.add_(reply.step)
        total += replace(reply, step=NOTHING)
    return replace(total, step=step)


def _ask_in_threads(
    work: Callable[[SiteData, Workspace], ReplyT],
    sites: Iterable[SiteData],
    workspaces: Sequence[Workspace],
) -> Iterator[ReplyT]:
    """Yield replies in order, at most two per worker ahead of the sum."""
    free: SimpleQueue[Workspace] = SimpleQueue()
    for workspace in workspaces:
        free.put(workspace)

    def work_when_free(site: SiteData) -> ReplyT:
        workspace = free.get()
        try:
            return work(site, workspace)
        finally:
            free.put(workspace)

    waiting: deque[Future[ReplyT]] = deque()
    # This thread sums the replies while the workers work.
    with worker_pool(len(workspaces)) as pool:
        for site in sites:
            if len(waiting) == 2 * len(workspaces):
                yield waiting.popleft().result()
            waiting.append(pool.submit(work_when_free, site))
        while waiting:
            yield waiting.popleft().result()


@dataclass(frozen=True, eq=False)
class PooledRows:
    """All rows, site after site, and the rows of each site and group [sites, groups]."""

    examples: Examples
    site: Tensor
    counts: Tensor

    @property
    def cell(self) -> Tensor:
        """The number of each row's site and group among all of them."""
        return self.site.long() * self.counts.shape[1] + self.examples.group

    def by_site(self) -> list[Examples]:
        """Return each site's rows, as views of the pooled ones."""
        sizes = self.counts.sum(dim=1).tolist()
        parts = (self.examples.x, self.examples.y, self.examples.group)
        return [
            Examples(*own)
            for own in zip(*(torch.split(part, sizes) for part in parts), strict=True)
        ]


def pool_rows(sites: list[Examples], counts: Tensor) -> PooledRows:
    """Concatenate copies of the sites' rows; an empty site is skipped, whatever its type."""
    examples = concatenate([rows for rows in sites if len(rows)])
    sizes = torch.tensor([len(rows) for rows in sites])
    numbers = torch.arange(len(sites), dtype=torch.int32)
    site = torch.repeat_interleave(numbers, sizes).to(examples.x.device)
    return PooledRows(examples, site, counts)


def ask_fused(
    method: OneStepMethod[StateT],
    order: Order,
    rows: PooledRows,
    participants: Tensor,
    *,
    workspaces: Sequence[Workspace],
    rows_per_chunk: int,
) -> Sums:
    """Return the sum of the participants' replies."""
    present = rows_of(rows, participants)
    counts = present.counts
    weighed = method.weigh(order, participants, counts[participants])
    table = torch.zeros_like(counts, dtype=torch.float64)
    table[participants] = weighed.coefficients
    for workspace in workspaces:
        workspace.load(order.parameters)
    cell = present.cell
    row_weights = table.to(order.parameters).view(-1)[cell]
    gradient, losses = weighted_gradient(workspaces, present.examples, row_weights, rows_per_chunk)
    loss = torch.bincount(cell, weights=losses.to(torch.float64), minlength=counts.numel())
    loss = loss.cpu().view_as(counts)
    shown = slice(None) if method.reveals is Reveals.OWN_LOSS else slice(0)
    return Sums(
        step=gradient.cpu() * rate_of(method),
        scale=float(weighed.scale.sum()),
        curvature=0.0,
        group_loss=loss.sum(dim=0),
        group_count=counts.sum(dim=0),
        site_loss=loss[shown].sum(dim=1),
        site_count=counts[shown].sum(dim=1),
        statistics=NO_STATISTICS,
        gradient_evaluations=len(present.examples),
    )


def rows_of(rows: PooledRows, participants: Tensor) -> PooledRows:
    """Return the participants' rows; not copied if all sites with rows take part."""
    if int(rows.counts[participants].sum()) == len(rows.examples):
        return rows
    taking_part = torch.zeros(len(rows.counts), dtype=torch.bool)
    taking_part[participants] = True
    index = taking_part.to(rows.site.device)[rows.site].nonzero().squeeze(1)
    return PooledRows(
        rows.examples.rows(index),
        rows.site[index],
        rows.counts * taking_part.unsqueeze(1),
    )
