"""Messages as bytes: safetensors with a fixed list of vectors; nothing is ever unpickled.

In a round, orders go out and sums come back; to measure, models go out and sums of their scores by
group come back. Plain numbers are also sent as short vectors, so no text has to be parsed. The size
is checked before bytes are read, and names, types and shapes before the content is used.
``wire.checks`` checks the meaning of the numbers.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedminmax.core.errors import InputError
from fedminmax.core.messages import Census, Order, RoundKey, Sums
from fedminmax.methods.method import AnyMethod, sums_over_rows
from fedminmax.network.wire.codec import (
    RefusedError,
    check_finite,
    check_length,
    read_vectors,
    write_vectors,
)
from fedminmax.network.wire.sections import (
    Sections,
    sections_of_sums,
    sums_of,
)

MAX_WHOLE_NUMBER = 2**63 - 1
# Maximum size of the rest of a message besides its long vectors: a header and sums by group.
OVERHEAD_BYTES = 2**20
# DRFA's replies and its snapshots are twice as long as the model; nothing known is longer.
MAX_MODEL_VECTORS = 4
ORDER_NUMBERS = ("seed", "round", "phase")
MAX_MODELS_BYTES = 2**30
HEADER_BYTES = 2**12


class Vector(NamedTuple):
    """What a vector of a message must be: of one of these types, and of this length, if known."""

    types: tuple[torch.dtype, ...]
    length: int | None = None


def reals(length: int | None = None) -> Vector:
    """Return that a vector has this many numbers."""
    return Vector((torch.float64,), length)


def counts(length: int | None = None) -> Vector:
    """Return that a vector has this many whole numbers."""
    return Vector((torch.int64,), length)


def max_message_bytes(parameters: Tensor) -> int:
    """Return the maximum size of a message about this model."""
    return MAX_MODEL_VECTORS * parameters.numel() * 8 + OVERHEAD_BYTES


def max_reply_bytes(method: AnyMethod[Any], parameters: Tensor, census: Census) -> int:
    """Return the maximum size of a reply, with gradients by group and curvature if it has them.

    >>> from fedminmax.core.linear_structure import LinearStructure
    >>> from fedminmax.methods.look_ahead import FedMinMaxFast
    >>> linear = LinearStructure(2, 3, intercept=True, loss="brier")
    >>> census = Census(torch.ones(3, 2), 2, linear=linear)
    >>> max_reply_bytes(FedMinMaxFast(), torch.zeros(8), census) - OVERHEAD_BYTES == 8 * 2 * 18
    True
    """
    linear = census.linear if getattr(method, "curvature", False) else None
    if census.linear_start is not None and getattr(method, "linear_start", False):
        linear = census.linear_start.structure
    curvature = 0 if linear is None else linear.curvature_numbers
    if not sums_over_rows(method):
        return max_message_bytes(parameters) + curvature * 8
    return census.groups * (parameters.numel() + curvature) * 8 + OVERHEAD_BYTES


def order_to_bytes(order: Order) -> bytes:
    """Write an order; the parameters keep their precision."""
    numbers = (order.key.seed, order.key.round, order.phase)
    if max(numbers) > MAX_WHOLE_NUMBER:
        raise InputError(f"seed {order.key.seed} is too large to be sent; give one below 2^63")
    vectors = {
        "numbers": torch.tensor(numbers, dtype=torch.int64),
        "parameters": order.parameters,
        "weights": order.weights,
    }
    return write_vectors(vectors)


def order_from_bytes(message: object, like: Tensor, sender: str) -> Order:
    """Read an order for a model whose parameters are ``like`` these."""
    kinds = {
        "numbers": (torch.int64,),
        "parameters": (like.dtype,),
        "weights": (torch.float64,),
    }
    # The groups' own models are in the place of weights.
    vectors = read_vectors(message, kinds, MAX_MODELS_BYTES, sender)
    check_length(vectors, "numbers", len(ORDER_NUMBERS), sender)
    check_length(vectors, "parameters", len(like), sender)
    for name in ("parameters", "weights"):
        check_finite(vectors[name], name, sender)
    seed, number, phase = (int(value) for value in vectors["numbers"])
    if min(seed, number, phase) < 0:
        raise RefusedError(f"{sender} sent a negative seed, round or phase; refused")
    return Order(RoundKey(seed, number), vectors["parameters"], vectors["weights"], phase)


def sections_to_bytes(sections: Mapping[str, Tensor], seconds: float) -> bytes:
    """Write a record's sections, and how long it took to compute them."""
    return write_vectors({**sections, "seconds": torch.tensor([seconds], dtype=torch.float64)})


def sections_from_bytes(
    message: object, vectors: Mapping[str, Vector], limit: int, sender: str
) -> tuple[Sections, float]:
    """Read exactly these sections, and how long they took to compute."""
    expected = {**vectors, "seconds": reals(1)}
    kinds = {name: vector.types for name, vector in expected.items()}
    sections = read_vectors(message, kinds, limit, sender)
    for name, vector in expected.items():
        if vector.length is not None:
            check_length(sections, name, vector.length, sender)
    seconds = sections.pop("seconds")
    check_finite(seconds, "time", sender)
    return dict(sections), float(seconds[0])


def sums_to_bytes(sums: Sums, seconds: float) -> bytes:
    """Write a reply and its duration."""
    return sections_to_bytes(sections_of_sums(sums), seconds)


def sums_from_bytes(
    message: object,
    like: Tensor,
    *,
    groups: int,
    limit: int,
    sender: str,
    validates: bool = False,
) -> tuple[Sums, float]:
    """Read a reply of at most ``limit`` bytes and its seconds; ``like`` are the parameters.

    A reply that ``validates`` has the losses on validation rows.
    """
    vectors = {
        "step": Vector((like.dtype, torch.float64)),
        "scales": reals(2),
        "group_loss": reals(groups),
        "group_count": counts(groups),
        "site_loss": reals(),
        "site_count": counts(),
        "statistics": reals(),
        "evaluations": counts(1),
    }
    vectors |= _losses(groups) if validates else {}
    sections, seconds = sections_from_bytes(message, vectors, limit, sender)
    check_length(sections, "site_count", len(sections["site_loss"]), sender)
    return sums_of(sections), seconds


def _losses(groups: int) -> dict[str, Vector]:
    return {
        "validation_loss": reals(groups),
        "validation_squares": reals(groups),
        "validation_count": counts(groups),
    }


def vector_to_bytes(vector: Tensor) -> bytes:
    """Write a single vector."""
    return write_vectors({"vector": vector})


def vector_from_bytes(message: object, like: Tensor, sender: str) -> Tensor:
    """Read one vector that is as long as ``like``, of its type, and finite."""
    vectors = read_vectors(message, {"vector": (like.dtype,)}, max_message_bytes(like), sender)
    check_length(vectors, "vector", len(like), sender)
    if like.is_floating_point():
        check_finite(vectors["vector"], "vector", sender)
    return vectors["vector"]


def models_to_bytes(members: Sequence[Tensor]) -> bytes:
    """Write each run's models, which are the rows of a table."""
    return write_vectors({str(number): table.flatten() for number, table in enumerate(members)})


def models_from_bytes(message: object, runs: int, like: Tensor, sender: str) -> list[Tensor]:
    """Read each run's models, each as long as ``like``."""
    kinds = {str(number): (like.dtype,) for number in range(runs)}
    vectors = read_vectors(message, kinds, MAX_MODELS_BYTES, sender)
    members = []
    for name in kinds:
        check_finite(vectors[name], "model", sender)
        if len(vectors[name]) == 0 or len(vectors[name]) % len(like):
            raise RefusedError(f"{sender} sent a model of another length; refused")
        members.append(vectors[name].reshape(-1, len(like)))
    return members
