"""What a server must know about a linear model to use second derivatives: its layout and loss.

A softmax is invariant to a common shift of all outputs, so a model of C classes has C - 1 free
outputs. Its parameters theta [C, k] (a row per output, the intercept last) are U phi with U the
C x (C - 1) matrix of an orthonormal basis of the vectors of sum 0, and |theta| = |phi|.

A ridge m adds m/2 |theta|^2 to every group's risk, intercepts included: without them the penalised
risk would not be strongly convex, and nothing could be proved about its minimum from a few points
(see ``core.certificate``).
"""

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from fedminmax.core.additive.model import SIGNS_OF_SCORE, AdditiveModel
from fedminmax.core.errors import InputError
from fedminmax.core.explicit_layers import find_explicit_layers
from fedminmax.core.losses import LOSSES_BY_NAME
from fedminmax.core.task import Task
from fedminmax.core.text import format_value, is_finite

CONVEX_LOSSES = ("cross_entropy", "squared_error")
# Of the linear model that a network starts from. Columns are about 1 in size, and some rows are set
# aside: with 100 columns and 2,000 rows this is as good as 1e-4 and a tenth more rows.
RIDGE_OF_START = 0.02
# Of matrices that are transposed.
TILE = 128


@dataclass(frozen=True)
class LinearStructure:
    """``outputs`` x ``inputs`` weights, then the ``intercept`` of each output, if there is one.

    A ``coded`` one is an additive model's (``core.additive.model``), whose curvature sums are one
    matrix, weighted by group, instead of one for each group. Its parameters phi keep to
    ``cone`` phi >= 0, a row [f] for each step of an effect that may only go up, or down.
    """

    outputs: int
    inputs: int
    _: KW_ONLY
    intercept: bool
    loss: str
    ridge: float = 0.0
    coded: bool = False
    cone: Tensor = field(default=torch.zeros(0, 0, dtype=torch.float64), compare=False, repr=False)

    @property
    def has_cone(self) -> bool:
        """Whether not all parameters are allowed."""
        return len(self.cone) > 0

    @property
    def columns(self) -> int:
        """Parameters of one output, k."""
        return self.inputs + self.intercept

    @property
    def blocks(self) -> int:
        """Pairs of classes: each has a k x k block of curvature sums. One for a single output."""
        return max(self.outputs * (self.outputs - 1) // 2, 1)

    @property
    def curvature_numbers(self) -> int:
        """Number of curvature entries per group: each block's lower triangle."""
        return self.blocks * self.columns * (self.columns + 1) // 2

    @property
    def free_numbers(self) -> int:
        """The length of phi: (C - 1) k."""
        return max(self.outputs - 1, 1) * self.columns

    @property
    def is_convex(self) -> bool:
        """Return whether the risks are convex in the parameters."""
        return self.loss in CONVEX_LOSSES

    @property
    def is_quadratic(self) -> bool:
        """Return whether one round's sums determine the risks, which are quadratic."""
        return self.loss == "squared_error" and not self.coded

    @property
    def risk_at_zero(self) -> float:
        """Every group's risk if all parameters are 0; infinite if it depends on targets."""
        if self.loss == "cross_entropy":
            return math.log(self.outputs)
        return 1.0 - 1.0 / self.outputs if self.loss == "brier" else math.inf

    @cached_property
    def basis(self) -> Tensor:
        """U, in float64: columns of sum 0, orthonormal; the number 1 for a single output."""
        size = self.outputs
        if size == 1:
            return torch.ones(1, 1, dtype=torch.float64)
        columns = torch.zeros(size, size - 1, dtype=torch.float64)
        for place in range(1, size):
            columns[:place, place - 1] = 1.0
            columns[place, place - 1] = -float(place)
        return columns / columns.square().sum(dim=0).sqrt()

    def as_matrix(self, flat: Tensor) -> Tensor:
        """Return parameters, or gradients [..., p], in the model's order as [..., C, k]."""
        weights = flat[..., : self.outputs * self.inputs]
        matrix = weights.reshape(*flat.shape[:-1], self.outputs, self.inputs)
        if not self.intercept:
            return matrix
        own = flat[..., self.outputs * self.inputs :].unsqueeze(-1)
        return torch.cat([matrix, own], dim=-1)

    def as_flat(self, matrix: Tensor) -> Tensor:
        """Return parameters or gradients [..., C, k] in the model's order [..., p]."""
        weights = matrix[..., : self.inputs].flatten(-2)
        if not self.intercept:
            return weights
        return torch.cat([weights, matrix[..., self.inputs]], dim=-1)

    def to_free(self, flat: Tensor) -> Tensor:
        """Return phi (or the gradients in it) of parameters [..., p]."""
        return (self.basis.T @ self.as_matrix(flat.double())).flatten(-2)

    def from_free(self, free: Tensor) -> Tensor:
        """Return the parameters U phi in the model's order, in float64."""
        return self.as_flat(self.basis @ free.reshape(-1, self.columns))

    def free_curvature(self, packed: Tensor) -> Tensor:
        """Return second derivatives in phi [A, f, f] from packed sums [A, curvature_numbers]."""
        columns, groups = self.columns, len(packed)
        blocks = packed.new_zeros(groups, self.blocks, columns, columns)
        blocks.masked_scatter_(torch.ones(columns, columns, dtype=torch.bool).tril(), packed)
        _mirror_lower(blocks)
        sides = self._sides()
        # A block's class pair has one direction in phi; its curvature is that direction's.
        outer = torch.einsum("bi,bj->bij", sides, sides)
        if self.blocks == 1:
            return blocks.mul_(outer)[:, 0]
        full = torch.einsum("bij,abxy->aixjy", outer, blocks)
        return full.reshape(groups, self.free_numbers, self.free_numbers)

    def _sides(self) -> Tensor:
        """U'(e_c - e_d) of every pair of classes c < d, in the order of the blocks."""
        if self.outputs == 1:
            return torch.ones(1, 1, dtype=torch.float64)
        first, second = torch.triu_indices(self.outputs, self.outputs, 1)
        return self.basis[first] - self.basis[second]


def _mirror_lower(matrices: Tensor) -> None:
    """Make triangular matrices symmetric, in tiles, as a transpose of all of them misses caches."""
    for start in range(0, matrices.shape[-1], TILE):
        here, after = slice(start, start + TILE), slice(start + TILE, None)
        own = matrices[..., here, here]
        own += own.tril(-1).mT
        matrices[..., here, after] = matrices[..., after, here].mT


def linear_structure_of(task: Task) -> LinearStructure | None:
    """Return the layout of one trainable linear layer with a loss of ours; None for others."""
    names = [name for name, loss in LOSSES_BY_NAME.items() if loss is task.loss]
    coded = type(task.model) is AdditiveModel
    layers = None if coded else find_explicit_layers(task.model)
    if isinstance(task.model, AdditiveModel) and coded:
        shapes: Sequence[tuple[int, int, bool]] = [(*task.model.weight.shape, True)]
    else:
        shapes = [] if layers is None else layers.shapes
    if len(shapes) != 1 or not names:
        return None
    ((outputs, inputs, intercept),) = shapes
    if names[0] == "squared_error" and outputs != 1:
        return None
    structure = LinearStructure(
        outputs, inputs, intercept=intercept, loss=names[0], ridge=task.ridge, coded=coded
    )
    if not isinstance(task.model, AdditiveModel) or not task.model.design.has_cone:
        return structure
    rows = task.model.design.cone()
    # The score is the sum of the outputs with these signs; the intercept is free.
    side = torch.tensor(SIGNS_OF_SCORE[outputs], dtype=torch.float64) @ structure.basis
    return replace(structure, cone=torch.cat([rows * side, torch.zeros_like(rows[:, :1])], dim=1))


@dataclass(frozen=True, eq=False)
class LinearStart:
    """How a ReLU network computes a linear model exactly, so that training can start from one.

    Since z = max(z, 0) - max(-z, 0), two units of each hidden layer carry an output z of the linear
    model to the last layer: the first C units of a layer have z where it is positive, the next C
    units -z where that is. The last layer ignores all other units, whose weights stay as they are
    and are trained later. ``layers`` [L, 2] are the outputs and inputs of each layer.
    """

    structure: LinearStructure
    layers: Tensor

    def network_with(self, network: Tensor, linear: Tensor) -> Tensor:
        """Return the parameters of a network with the linear model's outputs."""
        changed = network.clone()
        weights, carried = self._views(changed), 2 * self.structure.outputs
        matrix = self.structure.as_matrix(linear).to(network)
        both = torch.cat([matrix, -matrix])
        (first, first_bias), *hidden, (last, last_bias) = weights
        first[:carried], first_bias[:carried] = both[:, :-1], both[:, -1]
        identity = torch.eye(carried, dtype=network.dtype, device=network.device)
        for weight, bias in hidden:
            weight[:carried] = 0.0
            weight[:carried, :carried] = identity
            bias[:carried] = 0.0
        last.zero_()
        last[:, :carried] = identity[: carried // 2] - identity[carried // 2 :]
        last_bias.zero_()
        return changed

    def linear_of(self, network: Tensor) -> Tensor:
        """Return the linear model of a network that was made by ``network_with``."""
        weight, bias = self._views(network)[0]
        outputs = self.structure.outputs
        return self.structure.as_flat(torch.cat([weight, bias[:, None]], dim=1)[:outputs])

    def _views(self, network: Tensor) -> list[tuple[Tensor, Tensor]]:
        shapes = self.layers.tolist()
        sizes = [size for rows, columns in shapes for size in (rows * columns, rows)]
        parts = torch.split(network, sizes)
        return [
            (weight.view(rows, columns), bias)
            for weight, bias, (rows, columns) in zip(parts[::2], parts[1::2], shapes, strict=True)
        ]


def linear_start_of(task: Task) -> LinearStart | None:
    """Return how a network can start from a linear model; None if it is not wide enough for one.

    Half of its units should be left for what is not linear.
    """
    layers = find_explicit_layers(task.model)
    names = [name for name, loss in LOSSES_BY_NAME.items() if loss is task.loss]
    if layers is None or len(layers.shapes) < 2 or not names:
        return None
    shapes = [(rows, columns) for rows, columns, _ in layers.shapes]
    outputs, inputs = shapes[-1][0], shapes[0][1]
    if min(rows for rows, _ in shapes[:-1]) < 4 * outputs or not all(
        intercept for *_, intercept in layers.shapes
    ):
        return None
    if names[0] == "squared_error" and outputs != 1:
        return None
    structure = LinearStructure(
        outputs, inputs, intercept=True, loss=names[0], ridge=RIDGE_OF_START
    )
    return LinearStart(structure, torch.tensor(shapes))


def check_ridge(task: Task) -> None:
    """Refuse an invalid penalty, or one for a model that does not support it."""
    if not is_finite(task.ridge) or task.ridge < 0:
        raise InputError(
            f"ridge = {format_value(task.ridge)}; give zero or a positive number, such as 1e-4"
        )
    if task.ridge and linear_structure_of(task) is None:
        raise InputError(
            f"ridge = {task.ridge:g} is a penalty for linear models with the Brier, cross-entropy "
            "or squared-error loss; other models have none, give ridge = 0"
        )
