"""Compressed replies (``--compress``): what may be rounded, and how rounding errors are handled.

A server that sums steps over rounds tolerates rounding if nothing is lost: a site sends its step in
bfloat16, keeps the remainder and adds it to its next step (error feedback: Seide, Fu, Droppo, Li,
Yu: 1-bit stochastic gradient descent, Interspeech 2014; Karimireddy, Rebjock, Stich, Jaggi: Error
feedback fixes SignSGD, ICML 2019). At most the step's own rounding is added, so that honest steps
stay within the limits that are checked; the rest waits.

Sums by group for a server that looks ahead are not summed over rounds: the remainder of gradients
at one model is useless at the next, and would invalidate the proof. They are sent uncompressed.
Curvature, by far the longest part, only determines how far gradients can be trusted. It is sent in
single precision with its diagonal raised by the rounding error (Gershgorin), so that it is never
below the true one. For squared error it is the problem itself and stays exact, as do counts, losses
and scales. Methods with two requests in a round, or that need each site's own update, are not
compressed.
"""

from dataclasses import replace
from enum import Enum
from typing import Any

import torch
from torch import Tensor

from fedminmax.core.linear_structure import LinearStructure
from fedminmax.core.messages import Sums
from fedminmax.methods.method import AnyMethod, asks_again, needs_each_reply, sums_over_rows

# Half a unit in the last place of bfloat16, relative.
STEP_ROUNDING = 2.0**-8


class Compressed(Enum):
    """The part of a reply that is compressed."""

    NOTHING = "nothing"
    STEP = "step"
    CURVATURE = "curvature"


def compressed_part(
    method: AnyMethod[Any], linear: LinearStructure | None, *, compress: bool
) -> Compressed:
    """Return which part of this method's replies is compressed."""
    if not compress or needs_each_reply(method) or asks_again(method):
        return Compressed.NOTHING
    if not sums_over_rows(method):
        return Compressed.STEP
    return Compressed.NOTHING if linear is None or linear.is_quadratic else Compressed.CURVATURE


def round_step(reply: Sums, kept: Tensor) -> tuple[Sums, Tensor]:
    """Return the reply with its step in bfloat16, and the remainder for the next one.

    ``kept`` is per unit of scale, like a model's displacement, because scales change between
    rounds.
    """
    if reply.scale == 0.0:
        return replace(reply, step=reply.step.to(torch.bfloat16)), kept
    step, waiting = reply.step.double(), reply.scale * kept
    longest = STEP_ROUNDING * float(step.norm())
    length = float(waiting.norm())
    added = waiting * min(1.0, longest / length) if length > 0.0 else waiting
    sent = (step + added).to(torch.bfloat16)
    return replace(reply, step=sent), (step + waiting - sent.double()) / reply.scale


def round_curvature(reply: Sums, linear: LinearStructure) -> Sums:
    """Return the reply with its curvature in single precision, in no direction below the true one.

    With E what rounding changed, E + diag(row sums of |E|) is diagonally dominant.
    """
    size = linear.columns
    rows, columns = torch.tril_indices(size, size)
    on_diagonal = rows == columns
    exact = reply.statistics.reshape(-1, len(rows))
    rounded = exact.float()
    left_out = (exact - rounded.double()).abs()
    left_out[:, on_diagonal] = 0.0
    raised = exact[:, on_diagonal].clone()
    for side in (rows, columns):
        raised.index_add_(1, side, left_out)
    up = raised.float()
    rounded[:, on_diagonal] = torch.where(
        up.double() < raised, torch.nextafter(up, torch.full_like(up, torch.inf)), up
    )
    return replace(reply, statistics=rounded.flatten())
