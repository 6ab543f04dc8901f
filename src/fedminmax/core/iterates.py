"""Which parameters a run returns: the last, an average, or those chosen by validation rows.

Algorithm 1 of Papadaki et al. 2021 returns (1/T) sum_{t=1..T} theta^t. The tail average drops
the early rounds: it starts at half of the largest power of two that is not above T, so it covers
more than half and at most 3 (T + 1) / 4 of all T rounds, and does not need to know T in advance.
A run can therefore be extended and still equals one that was planned longer. ``core.validation``
describes how the best one is chosen.
"""

from dataclasses import KW_ONLY, dataclass, replace
from enum import Enum

import torch
from torch import Tensor

from fedminmax.core.errors import InputError
from fedminmax.core.validation import BestModel, ValidationRisk, no_best_model


class Iterate(Enum):
    """The outputs that a run keeps; the best one only if there are validation rows."""

    AVERAGE = "average"
    LAST = "last"
    TAIL_AVERAGE = "tail_average"
    BEST = "best"


STANDARD_ITERATES = (Iterate.AVERAGE, Iterate.LAST, Iterate.TAIL_AVERAGE)


@dataclass(frozen=True, eq=False)
class Iterates:
    """Sums of theta^t in float64 over three blocks of rounds that end at powers of two.

    ``best`` is the model chosen by the validation rows so far.
    """

    rounds: int
    last: Tensor
    _: KW_ONLY
    early_sum: Tensor
    previous_block_sum: Tensor
    current_block_sum: Tensor
    best: BestModel

    def add(self, parameters: Tensor) -> "Iterates":
        """Add the parameters of the next round."""
        rounds = self.rounds + 1
        if rounds & (rounds - 1) == 0:  # a power of two opens a new block
            return Iterates(
                rounds,
                parameters,
                early_sum=self.early_sum + self.previous_block_sum,
                previous_block_sum=self.current_block_sum,
                current_block_sum=parameters.to(torch.float64),
                best=self.best,
            )
        # The sum is a new tensor: earlier records must not change.
        return Iterates(
            rounds,
            parameters,
            early_sum=self.early_sum,
            previous_block_sum=self.previous_block_sum,
            current_block_sum=self.current_block_sum + parameters,
            best=self.best,
        )

    def considered(self, parameters: Tensor, found: ValidationRisk, *, stays: bool) -> "Iterates":
        """Take the model after the last round if its validation risk is the best so far.

        ``stays`` says that the first one that was measured stays whatever is found later.
        """
        return replace(self, best=self.best.consider(parameters, found, stays=stays))

    def parameters(self, which: Iterate) -> Tensor:
        """Return a copy of the chosen iterate in the model's precision."""
        if not isinstance(which, Iterate):
            raise InputError(f"iterate = {which!r}; give one of Iterate, such as Iterate.LAST")
        if which is Iterate.BEST:
            if not len(self.best.model):
                raise InputError(
                    "no round was measured on validation rows, so there is no best one; give the "
                    "federation validation rows, or choose another iterate"
                )
            return self.best.model[0].clone()
        if self.rounds == 0 or which is Iterate.LAST:
            return self.last.clone()
        tail = self.previous_block_sum + self.current_block_sum
        if which is Iterate.AVERAGE:
            return ((self.early_sum + tail) / self.rounds).to(self.last)
        return (tail / (self.rounds - tail_start(self.rounds) + 1)).to(self.last)


def tail_start(rounds: int) -> int:
    """Return the first round in the tail average of this many rounds."""
    return max(1, (1 << rounds.bit_length() >> 2))


def initial_iterates(initial: Tensor) -> Iterates:
    """Before the first round: every iterate is the initial model."""
    nothing = torch.zeros_like(initial, dtype=torch.float64)
    return Iterates(
        0,
        initial,
        early_sum=nothing,
        previous_block_sum=nothing,
        current_block_sum=nothing,
        best=no_best_model(initial),
    )
