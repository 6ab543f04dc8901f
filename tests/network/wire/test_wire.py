"""Messages as bytes: they come back bit for bit, and nothing else gets in.

A step must fit how the losses changed; known curvature makes that a sharper test.

A small group with a large weight: without its own curvature the limit is that of all rows with the
largest weight.
"""

import math
import pickle
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load, save
from torch import Tensor, nn

from fedminmax.core.bounds import RowLengths, row_limits, safe_learning_rate
from fedminmax.core.errors import InputError
from fedminmax.core.messages import Order, RoundKey, Sums, zero_sums
from fedminmax.core.models import mlp
from fedminmax.core.task import trainable_parameters
from fedminmax.losses import brier_loss
from fedminmax.methods import FedMinMax
from fedminmax.methods.shared.expected_reply import Sender
from fedminmax.network.wire.checks import ReportedLosses, check_losses, check_reply
from fedminmax.network.wire.codec import RefusedError
from fedminmax.network.wire.messages import (
    max_message_bytes,
    order_from_bytes,
    order_to_bytes,
    sums_from_bytes,
    sums_to_bytes,
)
from fedminmax.training.simulation import Simulation

GROUPS = 2
LIKE = torch.zeros(3, dtype=torch.float64)
LIMIT = max_message_bytes(LIKE)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
WHOLE = st.integers(0, 2**63 - 1)


def numbers(length: int) -> st.SearchStrategy[Tensor]:
    return st.lists(FINITE, min_size=length, max_size=length).map(
        lambda values: torch.tensor(values, dtype=torch.float64)
    )


def counts(length: int) -> st.SearchStrategy[Tensor]:
    return st.lists(WHOLE, min_size=length, max_size=length).map(
        lambda values: torch.tensor(values, dtype=torch.int64)
    )


@st.composite
def replies(draw: st.DrawFn) -> Sums:
    sites = draw(st.sampled_from([0, 3]))
    return Sums(
        draw(numbers(3)),
        draw(FINITE),
        curvature=draw(FINITE),
        group_loss=draw(numbers(GROUPS)),
        group_count=draw(counts(GROUPS)),
        site_loss=draw(numbers(sites)),
        site_count=draw(counts(sites)),
        statistics=draw(st.integers(0, 4).flatmap(numbers)),
        gradient_evaluations=draw(WHOLE),
    )


@given(reply=replies(), seconds=st.floats(0, 1e6))
def test_a_reply_comes_back_bit_for_bit(reply: Sums, seconds: float) -> None:
    message = sums_to_bytes(reply, seconds)
    back, taken = sums_from_bytes(message, LIKE, groups=GROUPS, limit=LIMIT, sender="north")
    assert taken == seconds
    for name, value in vars(reply).items():
        came = getattr(back, name)
        assert torch.equal(came, value) if isinstance(value, Tensor) else came == value, name


@given(parameters=numbers(3), weights=numbers(4), key=st.builds(RoundKey, WHOLE, WHOLE))
def test_an_order_comes_back_bit_for_bit(
    parameters: Tensor, weights: Tensor, key: RoundKey
) -> None:
    order = Order(key, parameters, weights.reshape(2, 2), phase=1)
    back = order_from_bytes(order_to_bytes(order), LIKE, "the server")
    assert (back.key, back.phase) == (key, 1)
    assert torch.equal(back.parameters, parameters)
    assert torch.equal(back.weights, order.weights)


def test_a_seed_that_does_not_fit_is_refused_before_it_is_sent() -> None:
    order = Order(RoundKey(2**63, 1), LIKE, LIKE)
    with pytest.raises(InputError, match=r"give one below 2\^63"):
        order_to_bytes(order)


def test_a_message_is_hardly_larger_than_the_papers_model() -> None:
    parameters = torch.cat([p.reshape(-1) for p in trainable_parameters(mlp(784, 10))]).detach()
    size = parameters.numel() * 4
    order = order_to_bytes(Order(RoundKey(0, 1), parameters, torch.ones(10, dtype=torch.float64)))
    reply = replace(zero_sums(0, 10, 40), step=torch.zeros_like(parameters))
    assert len(order) <= 1.05 * size
    assert len(sums_to_bytes(reply, 0.1)) <= 1.05 * size


GOOD = sums_to_bytes(zero_sums(3, GROUPS, 0), 0.0)


@given(junk=st.binary(max_size=400))
def test_junk_is_refused(junk: bytes) -> None:
    with pytest.raises(RefusedError, match="north sent"):
        sums_from_bytes(junk, LIKE, groups=GROUPS, limit=LIMIT, sender="north")


@given(place=st.integers(0, len(GOOD) - 1), value=st.integers(0, 255), cut=st.booleans())
def test_damage_is_refused_or_harmless(place: int, value: int, *, cut: bool) -> None:
    damaged = GOOD[:place] if cut else GOOD[:place] + bytes([value]) + GOOD[place + 1 :]
    try:
        reply, _ = sums_from_bytes(damaged, LIKE, groups=GROUPS, limit=LIMIT, sender="north")
    except RefusedError:
        return
    # What passes has the right types and lengths, whatever its numbers are.
    assert len(reply.step) == len(LIKE)
    assert len(reply.group_count) == GROUPS


class Bomb:
    """Runs code when it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return pytest.fail, ("something was unpickled",)


@pytest.mark.parametrize("message", [pickle.dumps(Bomb()), Bomb(), "text", None, 3, [GOOD]])
def test_nothing_is_unpickled_and_nothing_but_bytes_is_read(message: object) -> None:
    with pytest.raises(RefusedError):
        sums_from_bytes(message, LIKE, groups=GROUPS, limit=LIMIT, sender="north")


def changed(**vectors: Tensor) -> bytes:
    return save(load(GOOD) | vectors)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (changed(step=torch.zeros(3)), "step as torch.float32"),
        (changed(statistics=torch.zeros(3)), "statistics as torch.float32"),
        (changed(step=torch.zeros(3, 1, dtype=torch.float64)), r"shape \(3, 1\)"),
        (changed(group_count=torch.zeros(GROUPS)), "group_count as torch.float32"),
        (changed(group_loss=torch.zeros(3, dtype=torch.float64)), "3 numbers, expected 2"),
        (changed(more=torch.zeros(1)), r"another kind \(more\)"),
        (changed(scales=torch.zeros(1, dtype=torch.float64)), "scales with 1 numbers"),
        (changed(seconds=torch.full((1,), torch.nan, dtype=torch.float64)), "NaN"),
        (b"\0" * (LIMIT + 1), "at most"),
    ],
)
def test_a_message_of_another_form_is_refused(message: bytes, reason: str) -> None:
    with pytest.raises(RefusedError, match=f"north sent .*{reason}"):
        sums_from_bytes(message, LIKE, groups=GROUPS, limit=LIMIT, sender="north")


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_an_order_that_is_not_finite_is_refused(bad: float) -> None:
    order = Order(RoundKey(0, 1), torch.full_like(LIKE, bad), LIKE)
    with pytest.raises(RefusedError, match="the server sent a parameters with NaN or infinity"):
        order_from_bytes(order_to_bytes(order), LIKE, "the server")


ROWS = (300, 30)
WEIGHTS = torch.tensor([0.1, 10.0], dtype=torch.float64)
X = torch.randn(sum(ROWS), 6, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
GROUP = torch.repeat_interleave(torch.arange(2), torch.tensor(ROWS))
Y = (X[:, 0] + 2.0 * X[:, 1] * GROUP > 0).long()
RATE = safe_learning_rate(brier_loss, X, GROUP, linear=True)


def told(factor: float, curvature: torch.Tensor | None) -> None:
    """Two rounds of all rows as one site's, with this factor on the second step."""
    model = nn.Linear(6, 2).double()
    federation = Simulation(model, brier_loss, [(X, Y, GROUP)])
    method = FedMinMax(RATE, 0.1)
    length = math.sqrt(float((X**2).sum()) + len(X))
    before, parameters = None, torch.zeros(14, dtype=torch.float64)
    for number in (1, 2):
        order = Order(RoundKey(0, number), parameters, WEIGHTS)
        reply = federation.ask(method, order, [0]).total
        sender = Sender(
            0,
            torch.tensor(ROWS),
            sites=1,
            limits=row_limits([model], parameters, brier_loss, 0.0),
            lengths=RowLengths(length),
            is_total=True,
            group_curvature=curvature,
        )
        if number == 2:
            reply = replace(reply, step=reply.step * factor)
        check_losses(reply, sender, "all")
        check_reply(method, order, sender, reply, site="all", before=before)
        before = ReportedLosses(parameters, reply.group_loss)
        parameters = parameters - reply.step / reply.scale


CURVATURE = 2.0 / RATE * torch.tensor(ROWS, dtype=torch.float64)


def test_honest_steps_pass_with_and_without_known_curvature() -> None:
    told(1.0, None)
    told(1.0, CURVATURE)


def test_half_of_the_estimated_curvature_is_still_enough_for_an_honest_step() -> None:
    """The estimate may be too low by a factor of two, which the limit has on top."""
    told(1.0, 0.5 * CURVATURE)


@pytest.mark.parametrize("factor", [-2.0, -3.0])
def test_a_reversed_step_is_refused_where_the_curvature_is_known(factor: float) -> None:
    told(factor, None)
    with pytest.raises(RefusedError, match="does not fit how its own losses changed"):
        told(factor, CURVATURE)
