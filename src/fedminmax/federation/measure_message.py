"""Measuring over a network: models go out, sums of their scores by group come back."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fedminmax.core.score_sums import ScoreSums
from fedminmax.federation.wire_vectors import (
    RefusedError,
    check_finite,
    check_length,
    read_vectors,
    write_vectors,
)

LARGEST_MODELS = 2**30
ROOM_FOR_A_HEADER = 2**12
REPLY_VECTORS = {
    "counts": (torch.int64,),
    "totals": (torch.float64,),
    "products": (torch.float64,),
}


def models_to_bytes(members: Sequence[Tensor]) -> bytes:
    """Write each run's models, which are the lines of a table."""
    return write_vectors({str(number): table.flatten() for number, table in enumerate(members)})


def models_from_bytes(message: object, runs: int, like: Tensor, sender: str) -> list[Tensor]:
    """Read each run's models, each as long as ``like``."""
    kinds = {str(number): (like.dtype,) for number in range(runs)}
    vectors = read_vectors(message, kinds, LARGEST_MODELS, sender)
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
    """Read sums of so many scores by group, and refuse what no rows can have."""
    limit = 8 * groups * (1 + scores + scores**2) + ROOM_FOR_A_HEADER
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
    # A variance below 0 by more than rounding is that of no rows.
    variances = sums.covariances.diagonal(dim1=1, dim2=2)
    squares = sums.products.diagonal(dim1=1, dim2=2)
    if bool((variances < -1e-6 * squares.abs()).any()):
        raise RefusedError(f"{sender} sent scores whose squares are too small; refused")
    return sums
