"""What noise hides, how strong it is, and limits on what one row adds to a sum.

Without such limits no noise could hide a row.

A row's gradient that is longer than ``gradient`` is shortened to that, and its loss is at most
``loss`` (Abadi et al.: Deep learning with differential privacy, CCS 2016). A row whose gradient is
too long to be computed adds none, and the largest loss: sums are finite whatever the rows. For
stacks of linear layers the lengths of all rows' gradients come from one more backward pass at the
most (see ``explicit_layers``); for any other model each row's gradient is formed, a few rows at a
time.
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from enum import Enum

import torch
from torch import Tensor, nn

from fedminmax.core.errors import InputError
from fedminmax.core.losses import Loss

# Numbers of rows' own gradients in memory at a time.
MAX_NUMBERS = 2**22


class Unit(Enum):
    """Whose presence stays hidden: one row's, or everything that one site has."""

    ROW = "row"
    SITE = "site"


@dataclass(frozen=True)
class NoiseLevels:
    """Standard deviations of what the server gets, summed over all sites.

    ``gradient`` is that of each number of gradient sums by group, ``loss`` of loss sums; ``moment``
    is that of a number off the diagonal of the sum of x x', whose rows have length ``max_row`` at
    most. ``rounds`` is how many rounds there will be, ``unit`` what the noise hides.
    """

    gradient: float
    loss: float
    _: KW_ONLY
    moment: float
    max_row: float
    rounds: int
    unit: Unit


@dataclass(frozen=True)
class ClippedRows:
    """The largest length of a row's gradient, and its largest loss; the least loss is 0."""

    gradient: float
    loss: float

    def factors(self, squared_lengths: Tensor) -> Tensor:
        """Return what each row's gradient is multiplied by."""
        return (self.gradient / squared_lengths.sqrt()).clamp_(max=1.0)

    def losses(self, losses: Tensor) -> Tensor:
        """Return losses within their limits."""
        return losses.nan_to_num(nan=self.loss).clamp_(min=0.0, max=self.loss)


def add_clipped_rows(
    model: nn.Module,
    loss: Loss,
    slots: Sequence[tuple[nn.Parameter, Tensor]],
    *,
    rows: tuple[Tensor, Tensor],
    row_weights: Tensor,
    limits: ClippedRows,
) -> Tensor:
    """Add the weighted sum of clipped gradients to each parameter's slot; return limited losses."""
    x, y = rows
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    own = {names[id(parameter)]: parameter.detach() for parameter, _ in slots}
    rest: dict[str, Tensor] = dict(model.named_buffers())
    rest |= {name: value for name, value in model.named_parameters() if name not in own}

    def loss_of_row(parameters: dict[str, Tensor], row: Tensor, target: Tensor) -> Tensor:
        outputs = torch.func.functional_call(model, (parameters, rest), (row.unsqueeze(0),))
        return loss(outputs, target.unsqueeze(0)).squeeze(0)

    of_each = torch.func.vmap(torch.func.grad_and_value(loss_of_row), in_dims=(None, 0, 0))
    size = max(MAX_NUMBERS // max(sum(value.numel() for value in own.values()), 1), 1)
    losses: list[Tensor] = []
    for part in range(0, len(x), size):
        chunk = slice(part, part + size)
        try:
            gradients, values = of_each(own, x[chunk], y[chunk])
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
            raise InputError(
                f"the model's gradient cannot be taken row by row ({reason}); a privacy guarantee "
                "needs that, choose another model"
            ) from error
        by_tensor = [own.flatten(1).square().sum(dim=1) for own in gradients.values()]
        squares = torch.stack(by_tensor).sum(dim=0)
        finite = squares.isfinite()
        coefficients = row_weights[chunk][finite] * limits.factors(squares[finite])
        for (_, slot), gradient in zip(slots, gradients.values(), strict=True):
            slot.add_(torch.tensordot(coefficients, gradient[finite], dims=1))
        losses.append(limits.losses(values.detach()).where(finite, limits.loss))
    return torch.cat(losses)
