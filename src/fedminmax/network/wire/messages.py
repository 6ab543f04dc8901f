"""Messages as bytes: safetensors with a fixed list of vectors; nothing is ever unpickled.

In a round, orders go out and sums come back; to measure, models go out and sums of their scores by
group come back. Plain numbers are also sent as short vectors, so no text has to be parsed. The size
is checked before bytes are read, and names, types and shapes before the content is used.
``wire.checks`` checks the meaning of the numbers.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fedminmax.core.errors import InputError
from fedminmax.core.messages import Census, Order, RoundKey, Sums
from fedminmax.core.validation import NO_LOSSES, LossSums
from fedminmax.methods.method import AnyMethod, sums_over_rows
from fedminmax.metrics.sums import ScoreSums
from fedminmax.network.wire.codec import (
    RefusedError,
    check_finite,
    check_length,
    read_vectors,
    write_vectors,
)

MAX_WHOLE_NUMBER = 2**63 - 1
# Maximum size of the rest of a message besides its long vectors: a header and sums by group.
OVERHEAD_BYTES = 2**20
# DRFA's replies and its snapshots are twice as long as the model; nothing known is longer.
MAX_MODEL_VECTORS = 4
ORDER_NUMBERS = ("seed", "round", "phase")
SUMS_VECTORS: dict[str, tuple[torch.dtype, ...]] = {
    "scales": (torch.float64,),
    "group_loss": (torch.float64,),
    "group_count": (torch.int64,),
    "site_loss": (torch.float64,),
    "site_count": (torch.int64,),
    "statistics": (torch.float64,),
    "gradient_evaluations": (torch.int64,),
    "seconds": (torch.float64,),
}
VALIDATION_VECTORS = {
    "validation_loss": (torch.float64,),
    "validation_squares": (torch.float64,),
    "validation_count": (torch.int64,),
}
MAX_MODELS_BYTES = 2**30
HEADER_BYTES = 2**12
REPLY_VECTORS = {
    "counts": (torch.int64,),
    "totals": (torch.float64,),
    "products": (torch.float64,),
}


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
    vectors = read_vectors(message, kinds, max_message_bytes(like), sender)
    check_length(vectors, "numbers", len(ORDER_NUMBERS), sender)
    check_length(vectors, "parameters", len(like), sender)
    for name in ("parameters", "weights"):
        check_finite(vectors[name], name, sender)
    seed, number, phase = (int(value) for value in vectors["numbers"])
    if min(seed, number, phase) < 0:
        raise RefusedError(f"{sender} sent a negative seed, round or phase; refused")
    return Order(RoundKey(seed, number), vectors["parameters"], vectors["weights"], phase)


def sums_to_bytes(sums: Sums, seconds: float) -> bytes:
    """Write a reply and its duration; the step keeps its precision, as in the simulation."""
    vectors = {
        "step": sums.step,
        "scales": torch.tensor([sums.scale, sums.curvature], dtype=torch.float64),
        "group_loss": sums.group_loss,
        "group_count": sums.group_count,
        "site_loss": sums.site_loss,
        "site_count": sums.site_count,
        "statistics": sums.statistics,
        "gradient_evaluations": torch.tensor([sums.gradient_evaluations]),
        "seconds": torch.tensor([seconds], dtype=torch.float64),
    }
    if len(sums.validation.count):
        vectors |= _named(sums.validation)
    return write_vectors(vectors)


def losses_to_bytes(losses: LossSums) -> bytes:
    """Write only losses on validation rows."""
    return write_vectors(_named(losses))


def losses_from_bytes(message: object, groups: int, sender: str) -> LossSums:
    """Read only losses on validation rows."""
    vectors = read_vectors(message, VALIDATION_VECTORS, OVERHEAD_BYTES, sender)
    return _losses(vectors, groups, sender)


def _named(losses: LossSums) -> dict[str, Tensor]:
    values = (losses.loss, losses.squares, losses.count)
    return dict(zip(VALIDATION_VECTORS, values, strict=True))


def _losses(vectors: Mapping[str, Tensor], groups: int, sender: str) -> LossSums:
    for name in VALIDATION_VECTORS:
        check_length(vectors, name, groups, sender)
    return LossSums(*(vectors[name] for name in VALIDATION_VECTORS))


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
    kinds = {"step": (like.dtype, torch.float64)} | SUMS_VECTORS
    if validates:
        kinds |= VALIDATION_VECTORS
    vectors = read_vectors(message, kinds, limit, sender)
    check_length(vectors, "scales", 2, sender)
    for name in ("gradient_evaluations", "seconds"):
        check_length(vectors, name, 1, sender)
    for name in ("group_loss", "group_count"):
        check_length(vectors, name, groups, sender)
    check_length(vectors, "site_count", len(vectors["site_loss"]), sender)
    scale, curvature = vectors["scales"].tolist()
    check_finite(vectors["seconds"], "time", sender)
    sums = Sums(
        step=vectors["step"],
        scale=scale,
        curvature=curvature,
        group_loss=vectors["group_loss"],
        group_count=vectors["group_count"],
        site_loss=vectors["site_loss"],
        site_count=vectors["site_count"],
        statistics=vectors["statistics"],
        gradient_evaluations=int(vectors["gradient_evaluations"][0]),
        validation=_losses(vectors, groups, sender) if validates else NO_LOSSES,
    )
    return sums, float(vectors["seconds"][0])


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


def score_sums_to_bytes(sums: ScoreSums) -> bytes:
    """Write sums of scores."""
    return write_vectors({name: getattr(sums, name).flatten() for name in REPLY_VECTORS})


def score_sums_from_bytes(message: object, groups: int, scores: int, sender: str) -> ScoreSums:
    """Read sums of scores by group, and refuse impossible ones."""
    limit = 8 * groups * (1 + scores + scores**2) + HEADER_BYTES
    vectors = read_vectors(message, REPLY_VECTORS, limit, sender)
    check_length(vectors, "counts", groups, sender)
    check_length(vectors, "totals", groups * scores, sender)
    check_length(vectors, "products", groups * scores**2, sender)
    for name in ("totals", "products"):
        check_finite(vectors[name], name, sender)
    sums = ScoreSums(
        vectors["counts"],
        vectors["totals"].reshape(groups, scores),
        vectors["products"].reshape(groups, scores, scores),
    )
    if bool((sums.counts < 0).any()):
        raise RefusedError(f"{sender} sent a negative count of held-out rows; refused")
    without = sums.counts == 0
    if bool(sums.totals[without].any()) or bool(sums.products[without].any()):
        raise RefusedError(f"{sender} sent scores of a group that it counts no rows of; refused")
    # A variance cannot be below 0 by more than rounding.
    variances = sums.covariances.diagonal(dim1=1, dim2=2)
    squares = sums.products.diagonal(dim1=1, dim2=2)
    if bool((variances < -1e-6 * squares.abs()).any()):
        raise RefusedError(f"{sender} sent scores whose squares are too small; refused")
    return sums
