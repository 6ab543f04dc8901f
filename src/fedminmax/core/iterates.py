"""Which parameters a run returns: the last ones, an average, or those that validation rows chose.

Algorithm 1 of Papadaki et al. 2021 returns (1/T) sum_{t=1..T} theta^t. The tail average drops
the early rounds: it starts at half of the largest power of two that is not above T, so it covers
more than half and at most 3 (T + 1) / 4 of all T rounds, and does not need to know T in advance.
A run can therefore be prolonged, and still equals one that was planned longer. How the best one is
chosen is in ``core.validation``.
"""

from dataclasses import dataclass, replace
from enum import Enum

import torch
from torch import Tensor

from fedminmax.core.errors import InputError
from fedminmax.core.validation import BestModel, LossSums, nothing_chosen, worst_risk


class Iterate(Enum):
    """The outputs that a run keeps; the best one only if there are validation rows."""

    AVERAGE = "average"
    LAST = "last"
    TAIL_AVERAGE = "tail_average"
    BEST = "best"


OF_EVERY_RUN = (Iterate.AVERAGE, Iterate.LAST, Iterate.TAIL_AVERAGE)


@dataclass(frozen=True, eq=False)
class Iterates:
    """Sums of theta^t in float64 over three stretches of rounds that end at powers of two.

    ``best`` is what the validation rows chose so far.
    """

    rounds: int
    last: Tensor
    early_sum: Tensor
    previous_block_sum: Tensor
    current_block_sum: Tensor
    best: BestModel

    def add(self, parameters: Tensor) -> "Iterates":
        """Take in the parameters of the next round."""
        rounds = self.rounds + 1
        if rounds & (rounds - 1) == 0:  # a power of two opens a new block
            return Iterates(
                rounds,
                parameters,
                self.early_sum + self.previous_block_sum,
                self.current_block_sum,
                parameters.to(torch.float64),
                self.best,
            )
        # The sum is a fresh tensor: an earlier record must stay what it was.
        return Iterates(
            rounds,
            parameters,
            self.early_sum,
            self.previous_block_sum,
            self.current_block_sum + parameters,
            self.best,
        )

    def measured(self, parameters: Tensor, sums: LossSums, rows: Tensor) -> "Iterates":
        """Take in the validation losses of the model after the last round; see ``worst_risk``."""
        found = worst_risk(sums, rows, self.rounds)
        return replace(self, best=self.best.consider(parameters, found))

    def parameters(self, which: Iterate) -> Tensor:
        """Return the chosen iterate in the model's own precision, as a tensor of its own."""
        if not isinstance(which, Iterate):
            raise InputError(f"iterate = {which!r}; give one of Iterate, such as Iterate.LAST")
        if which is Iterate.BEST:
            if not len(self.best.model):
                raise InputError(
                    "no round was measured on validation rows, so that none is the best; give the "
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
    """Return the first round that is in the tail average of so many rounds."""
    return max(1, (1 << rounds.bit_length() >> 2))


def no_iterates(initial: Tensor) -> Iterates:
    """Before the first round: every iterate is the initial model."""
    nothing = torch.zeros_like(initial, dtype=torch.float64)
    return Iterates(0, initial, nothing, nothing, nothing, nothing_chosen(initial))
