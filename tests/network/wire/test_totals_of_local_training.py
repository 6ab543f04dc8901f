"""Totals of local training, of which nobody sees the parts: what the server can still check."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedminmax.core.bounds import RowLengths, row_limits
from fedminmax.core.local_epochs import LocalEpochs
from fedminmax.core.messages import Order, RoundKey, Sums
from fedminmax.losses import brier_loss
from fedminmax.methods.catalogue import CARDS
from fedminmax.methods.method import AnyMethod
from fedminmax.methods.shared.expected_reply import Sender, reach_of_an_epoch
from fedminmax.network.wire.checks import check_losses, check_reply
from fedminmax.network.wire.codec import RefusedError
from fedminmax.training.simulation import Simulation

FEATURES = 3
# A last batch of one row, one row in all, many rows; groups as they come.
SITES = (11, 1, 40)
MODEL = nn.Linear(FEATURES, 2).double()
LIMITS = row_limits([MODEL], torch.zeros(8).double(), brier_loss, 0.0)
METHODS = ("fedavg", "fedminmax-local", "group-drfa")


def rows_of(site: int, rows: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(site)
    x = torch.randn(rows, FEATURES, generator=generator, dtype=torch.float64)
    y = torch.randint(0, 2, (rows,), generator=generator)
    return x, y, torch.arange(rows) % 2


@pytest.fixture(scope="module")
def federation() -> Simulation:
    return Simulation(MODEL, brier_loss, [rows_of(*own) for own in enumerate(SITES)])


def total_sender(federation: Simulation) -> Sender:
    """All rows as one site's."""
    x = torch.cat([rows_of(*own)[0] for own in enumerate(SITES)])
    length = math.sqrt(float((x**2).sum()) + len(x))
    counts = federation.census.counts.sum(dim=0)
    return Sender(0, counts, sites=1, limits=LIMITS, lengths=RowLengths(length), is_total=True)


def honest_total(key: str, federation: Simulation) -> tuple[AnyMethod[Any], Order, Sums]:
    options = {"learning_rate": "0.5", "batch_size": "10"}
    method: Any = CARDS[key].build({}, options)
    state = method.init(federation.initial_parameters, federation.census)
    order = method.order(state, RoundKey(0, 1))
    total = federation.ask(method, order, range(len(SITES))).total
    return method, order, total


def check(key: str, federation: Simulation, lie: Callable[[Sums], Sums]) -> None:
    method, order, total = honest_total(key, federation)
    sender = total_sender(federation)
    told = lie(total)
    check_losses(told, sender, "all")
    check_reply(method, order, sender, told, site="all")


@pytest.mark.parametrize("key", METHODS)
def test_an_honest_total_passes(key: str, federation: Simulation) -> None:
    check(key, federation, lambda total: total)


@pytest.mark.parametrize("key", METHODS)
@pytest.mark.parametrize("factor", [0.0, 1e-3, 1.1, -1.0, 1e300])
def test_another_scale_than_the_rows_is_refused(
    key: str, factor: float, federation: Simulation
) -> None:
    """It would freeze the model, or let it jump."""
    with pytest.raises(RefusedError, match="sent a scale of"):
        check(key, federation, lambda total: replace(total, scale=total.scale * factor))


@pytest.mark.parametrize("key", METHODS[:2])
def test_a_step_that_no_rows_make_is_refused(key: str, federation: Simulation) -> None:
    """Without this limit only the others would be compared, and there are none."""
    with pytest.raises(RefusedError, match="sent a step of length"):
        check(key, federation, lambda total: replace(total, step=total.step * -1000.0))


@settings(max_examples=60, deadline=None)
@given(
    parts=st.lists(st.tuples(st.integers(1, 250), st.floats(0.01, 10.0)), min_size=1, max_size=6),
    size=st.one_of(st.none(), st.integers(1, 120)),
)
def test_the_limit_of_a_total_is_at_least_all_sites_limits(
    parts: list[tuple[int, float]], size: int | None
) -> None:
    """However rows are split: n_k times each site's limit, added up, is within the total's."""
    plan = LocalEpochs(1, size, 0.5)

    def sender(rows: int, length: float, *, is_total: bool) -> Sender:
        counts = torch.tensor([rows])
        lengths = RowLengths(length)
        return Sender(0, counts, sites=1, limits=LIMITS, lengths=lengths, is_total=is_total)

    each = [
        rows * reach_of_an_epoch(sender(rows, length, is_total=False), plan) * length
        for rows, length in parts
    ]
    rows = sum(own for own, _ in parts)
    length = math.sqrt(sum(own**2 for _, own in parts))
    whole = sender(rows, length, is_total=True)
    assert sum(each) <= rows * reach_of_an_epoch(whole, plan) * length * (1.0 + 1e-12)
