"""What a site with other code answers, by the number of the round; in all others it is honest."""

from collections.abc import Callable
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor

Vectors = dict[str, Tensor]
TIMES_TOO_LARGE = 5000.0
PATIENT = "Jane Doe"


def too_large(reply: Vectors) -> Vectors:
    return reply | {"step": reply["step"] * TIMES_TOO_LARGE}


def raising(_: Vectors) -> Vectors:
    raise ValueError(f"cannot read the row of {PATIENT}")


def not_a_number(reply: Vectors) -> Vectors:
    return reply | {"step": reply["step"] * torch.nan}


def infinite(reply: Vectors) -> Vectors:
    return reply | {"group_loss": reply["group_loss"] * torch.inf}


def shorter(reply: Vectors) -> Vectors:
    return reply | {"step": reply["step"][1:]}


def a_table(reply: Vectors) -> Vectors:
    return reply | {"step": reply["step"].reshape(1, -1)}


def negative_counts(reply: Vectors) -> Vectors:
    return reply | {"group_count": -reply["group_count"]}


def impossible_counts(reply: Vectors) -> Vectors:
    return reply | {"group_count": reply["group_count"] + 1000}


BAD_ANSWERS: dict[int, Callable[[Vectors], Vectors]] = {
    2: too_large,
    4: raising,
    5: not_a_number,
    6: infinite,
    7: shorter,
    8: a_table,
    9: negative_counts,
    11: impossible_counts,
}


def install(site: type[Any]) -> None:
    """Put other answers in the place of the site's own."""
    honest = site.answer

    def answer(self: object, run: object, order: bytes, ask: object = None) -> bytes:
        reply: bytes = honest(self, run, order, ask)
        # The order's numbers are seed, round and phase.
        number = int(load(order)["numbers"][1])
        if number not in BAD_ANSWERS:
            return reply
        changed = BAD_ANSWERS[number](load(reply))
        return save({name: vector.contiguous() for name, vector in changed.items()})

    site.answer = answer
