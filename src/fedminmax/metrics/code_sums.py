"""Sums by group and code at additive models: records, and derivatives of the group's losses.

They tell where the records of a group differ from an effect (``exports.effects``): with the effect
alone free, the group's own level would be G / H lower, with G the sum of slopes of its losses and H
that of their second derivatives. All are sums over records, so over sites, too.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedminmax.core.additive.model import AdditiveModel, Block
from fedminmax.core.additive.sums import coded_bends, coded_group_sums
from fedminmax.core.examples import Examples
from fedminmax.core.linear_structure import LinearStructure
from fedminmax.data.tables.encoding import CodedFeature, Encoding

# Of outputs: more classes have more scores than one.
MAX_OUTPUTS = 2


@dataclass(frozen=True)
class CodeShape:
    """How many models and groups there are, the codes of each column, and the models' outputs."""

    models: int
    groups: int
    sizes: tuple[int, ...]
    outputs: int

    @property
    def numbers(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the sums by name; empty without models."""
        models, by_code = self.models, (self.groups, sum(self.sizes))
        return {
            "code_counts": (min(models, 1), *by_code),
            "code_slopes": (models, *by_code),
            "code_bends": (models, *by_code),
            "code_losses": (models if self.outputs == 1 else 0,),
        }


@dataclass(frozen=True, eq=False)
class CodeSums:
    """Records [1, groups, codes]; of each model, slopes and bends [models, groups, codes].

    Of squared errors, there is the sum of each model's losses [models]; of classes none.
    """

    code_counts: Tensor
    code_slopes: Tensor
    code_bends: Tensor
    code_losses: Tensor

    def __add__(self, other: "CodeSums") -> "CodeSums":
        """Add the sums over other records."""
        return CodeSums(
            self.code_counts + other.code_counts,
            self.code_slopes + other.code_slopes,
            self.code_bends + other.code_bends,
            self.code_losses + other.code_losses,
        )


def code_shape(encoding: Encoding, models: int) -> CodeShape:
    """Return which sums by code are of use: of additive models with one score."""
    coded = [own for own in encoding.features if isinstance(own, CodedFeature)]
    told = encoding.is_additive and encoding.outputs <= MAX_OUTPUTS
    sizes = tuple(feature.block.size for feature in coded) if told else ()
    groups, outputs = len(encoding.groups), encoding.outputs
    return CodeShape(models if sizes else 0, groups, sizes, outputs)


def no_code_sums(shape: CodeShape) -> CodeSums:
    """Return the sums over no records."""
    sums = {name: torch.zeros(own, dtype=torch.float64) for name, own in shape.numbers.items()}
    return CodeSums(**sums | {"code_counts": sums["code_counts"].long()})


def code_sums(models: Sequence[nn.Module], rows: Examples, shape: CodeShape) -> CodeSums:
    """Return the sums at these models, over records whose first codes are those of the columns."""
    sums, columns = no_code_sums(shape), sum(shape.sizes)
    for number, model in enumerate(models[: shape.models]):
        if not isinstance(model, AdditiveModel):
            raise TypeError("only additive models have codes")
        plain = AdditiveModel(
            shape.outputs, [Block(size) for size in model.design.sizes], records=1, ridge=0.0
        )
        plain.load_effects(model.effects.detach(), model.bias.detach())
        loss = "cross_entropy" if shape.outputs == MAX_OUTPUTS else "squared_error"
        structure = LinearStructure(shape.outputs, plain.design.columns, intercept=True, loss=loss)
        parameters = torch.cat([own.detach().flatten() for own in plain.parameters()])
        own = coded_group_sums(structure, plain.design, parameters, rows, shape.groups)
        sums.code_slopes[number] += structure.as_matrix(own.gradients)[:, -1, :columns]
        if shape.outputs == 1:
            sums.code_losses[number] += own.losses.sum()
        for group in range(shape.groups):
            members = rows.rows((rows.group == group).nonzero()[:, 0])
            bends = coded_bends(structure, plain.design, parameters, members)
            sums.code_bends[number, group] += bends[-1, :columns]
    start = 0
    for column, size in enumerate(shape.sizes if shape.models else ()):
        cells = rows.group * size + rows.x[:, column]
        counts = torch.bincount(cells, minlength=shape.groups * size).reshape(-1, size)
        sums.code_counts[0, :, start : start + size] += counts
        start += size
    return sums
