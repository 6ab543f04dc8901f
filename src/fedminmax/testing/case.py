"""A method under test, and how a check says what is wrong with it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedminmax.methods.card import MethodCard, card_of
from fedminmax.methods.method import AnyMethod

Method = AnyMethod[Any]


@dataclass(frozen=True)
class Case:
    """A method, made with a batch size (None: all rows), which one-step methods do not have.

    A method that draws lots at the server is random even with full batches and all sites.
    ``tolerance`` is how far rounding alone moves the model: near an optimum the risks are flat, and
    what looks ahead gets there.
    """

    label: str
    make: Callable[[int | None], Method]
    draws_lots: bool = False
    tolerance: float = 1e-12

    @property
    def full_batch(self) -> Method:
        """The method without any randomness of its own."""
        return self.make(None)

    @property
    def mini_batch(self) -> Method:
        """The method with small batches, if it has batches at all."""
        return self.make(2)

    @property
    def has_batches(self) -> bool:
        """Whether the method has a batch size."""
        return hasattr(self.full_batch, "batch_size")

    @property
    def card(self) -> MethodCard:
        """The method's card."""
        card = card_of(self.full_batch)
        if card is None:
            raise AssertionError(
                f"{self.label} has no card; put @fedminmax.extend.MethodCard above its class"
            )
        return card


Check = Callable[[Case], None]
"""A check of a case; it raises ``AssertionError`` if the method fails it."""


def require(case: Case, holds: bool, fault: str) -> None:  # noqa: FBT001 - reads as a sentence
    """Say what is wrong unless this holds."""
    if not holds:
        raise AssertionError(f"{case.label}: {fault}")


def require_equal(case: Case, found: Tensor, expected: Tensor, what: str) -> None:
    """Say what is wrong unless two tensors are the same, bit for bit."""
    if found.shape != expected.shape:
        shapes = f"{list(found.shape)}, not {list(expected.shape)}"
        raise AssertionError(f"{case.label}: {what}: the shape is {shapes}")
    if not torch.equal(found, expected):
        other = int((found != expected).sum())
        raise AssertionError(
            f"{case.label}: {what}: {other} of {found.numel()} entries are not as expected"
        )


def require_close(
    case: Case,
    found: Tensor,
    expected: Tensor,
    what: str,
    *,
    rtol: float = 1e-10,
    atol: float = 1e-12,
) -> None:
    """Say what is wrong unless two tensors are the same but for rounding."""
    torch.testing.assert_close(
        found, expected, rtol=rtol, atol=atol, msg=lambda words: f"{case.label}: {what}: {words}"
    )
