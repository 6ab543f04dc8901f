"""The cost of a run: bytes of its messages, which are known, and rounds, which are estimated.

Message sizes depend on the model, the method and the numbers of groups and sites, but not on
rows: one site's replies about a dummy row of each group have the sizes of those on a network.
The number of rounds is an estimate from benchmarks (benchmarks/rounds_to_target.py).
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fedminmax.config.sections import ModelSection
from fedminmax.core.examples import Examples
from fedminmax.core.losses import LOSSES_BY_NAME
from fedminmax.core.messages import Census, Order, RoundKey, Sums
from fedminmax.core.task import Task
from fedminmax.core.validation import LossSums
from fedminmax.core.workspace import Workspace
from fedminmax.data.tables.encode import initial_model
from fedminmax.data.tables.encoding import Encoding
from fedminmax.methods.method import AnyMethod, SiteData, asks_again, lets_sites_keep
from fedminmax.training.replies import NOTHING, add_up, site_reply


@dataclass(frozen=True)
class MessageBytes:
    """Bytes per site and round: what the server sends, and what the site returns."""

    down: int
    up: int


@dataclass(frozen=True)
class Rounds:
    """How many rounds a method usually needs before more of them hardly change anything."""

    low: int
    high: int


def task_of_tables(model: ModelSection, encoding: Encoding) -> Task:
    """Return a model of the chosen kind for these features, with its loss."""
    module = initial_model(encoding, model.hidden, model.ridge)
    return Task(module, LOSSES_BY_NAME[model.loss], model.ridge)


def message_bytes(
    method: AnyMethod[Any],
    task: Task,
    census: Census,
    row: Tensor,
    *,
    validates: bool = False,
) -> MessageBytes:
    """Return the exact sizes of a round's messages.

    If a round has several requests, their sizes are summed.

    Args:
        method: the method that sends them.
        task: the model and its loss.
        census: rows by site and group.
        row: any tensor with the shape of one row's features.
        validates: whether sites have set validation rows aside.
    """
    # Imported here, because other advice does not need this package.
    from fedminmax.network.wire.messages import order_to_bytes, sums_to_bytes

    if method.learning_rate is None:
        method = replace(method, learning_rate=1.0)  # type: ignore[type-var]
    key, workspace = RoundKey(0, 1), Workspace(task)
    state = method.init(task.initial_parameters, census)
    site = _dummy_site(task, census, row)
    order = method.order(state, key)
    reply = _reply(method, order, site, workspace)
    sent = reply
    if validates:
        nothing = torch.zeros(census.groups, dtype=torch.float64)
        sent = replace(reply, validation=LossSums(nothing, nothing, nothing.long()))
    down, up = len(order_to_bytes(order)), len(sums_to_bytes(sent, 0.0))
    if asks_again(method):
        state = method.update(state, add_up([reply]))
        while (request := method.ask_again(state, key)) is not None:
            reply, _ = site_reply(method, request, site, workspace)
            down, up = down + len(order_to_bytes(request)), up + len(sums_to_bytes(reply, 0.0))
            state = method.update_again(state, add_up([reply]))
    return MessageBytes(down, up)


def usual_rounds(key: str, *, linear: bool, loss: str, additive: bool = False) -> Rounds | None:
    """Return how many rounds a method usually needs; None if that was not measured.

    For methods that look ahead they were measured (benchmarks/rounds_to_target.py). Linear models:
    Adult 7 with cross-entropy and with Brier, wide tables 3 to 4. Networks: the paper's MLP 28 to
    44, its CNN 42 on 6,000 images and about 100 on 60,000.

    >>> usual_rounds("fedminmax-fast", linear=True, loss="cross_entropy")
    Rounds(low=3, high=8)
    """
    if key in ("fedminmax-fast", "fedavg-fast", "afl-fast"):
        if not linear:
            return Rounds(28, 100)
        # For least squares the first round's sums determine the whole problem.
        quadratic = loss == "squared_error" and not additive
        return Rounds(1, 2) if quadratic else Rounds(3, 8)
    return Rounds(1_000, 5_000) if key == "fedminmax" else None


def _dummy_site(task: Task, census: Census, row: Tensor) -> SiteData:
    """Return the first site that has rows, with one of each group in their place."""
    groups = torch.arange(census.groups)
    start = task.initial_parameters
    x = row.expand(census.groups, *row.shape)
    x = x.to(start) if x.is_floating_point() else x
    y = torch.zeros_like(groups) if census.classes else start.new_zeros(census.groups)
    return SiteData(
        census.occupied[0],
        Examples(x, y, groups),
        sites=census.sites,
        groups=census.groups,
        rows_per_chunk=census.groups,
        kept=NOTHING,
    )


def _reply(method: AnyMethod[Any], order: Order, site: SiteData, workspace: Workspace) -> Sums:
    """Return the reply to a round's first request, whatever the method's kind."""
    if lets_sites_keep(method):
        site = replace(site, kept=method.start_keeping(order.parameters, site.groups))
    return site_reply(method, order, site, workspace)[0]
