"""An additive model of coded columns: one effect per code, smoothed, in coordinates of a ridge.

    outputs = intercept + sum over blocks b of effect_b[code_b]

A block is a column of numbers in bins, a column of categories, or a pair of columns in coarse cells
(Lou, Caruana, Gehrke, Hooker: Accurate intelligible models with pairwise interactions, KDD 2013).
Its effects have a quadratic penalty: lambda_b times squared second differences of bins in order
(Eilers, Marx: Flexible smoothing with B-splines and penalties, 1996), or lambda_b times squares.
A small ridge m on everything makes the penalised risk strongly convex.

The parameters phi of the module are not the effects: effect_b = T_b phi_b with
T_b = sqrt(m) P_b^-1/2 and P_b = lambda_b S_b / n + m I. So the whole penalty, 1/2 effect' P effect,
is m/2 |phi|^2, the penalty of any linear model with ridge m, and what is written for those
(servers, certificates, limits on replies) holds for additive models as it is. No eigenvalue of T_b
is above 1, so a record's vector in these coordinates is at most as long as its codes' indicators:
its squared length is at most the number of blocks.

| symbol   | name      |
|----------|-----------|
| lambda_b | smoothing |
| n        | records   |
| m        | ridge     |
| T_b      | transform |
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise

import torch
from torch import Tensor, nn

from fedminmax.core.errors import InputError

# The name of this kind of model.
ADDITIVE = "additive"
# Which way an effect may go, as the sign of a difference.
DIRECTIONS = {"up": 1, "down": -1}
# Of codes for missing values beside bins in order: they have no neighbours.
RIDGE_BESIDE_BINS = 1.0
# Whether the score rises or falls with each output; more classes have more than one score.
SIGNS_OF_SCORE = {1: (1.0,), 2: (-1.0, 1.0)}


@dataclass(frozen=True)
class Block:
    """One column of codes: how many there are, and how strongly their effects are smoothed.

    The first ``ordered`` codes are bins in order, whose bends are penalised: how far an effect is
    from the straight line between its neighbours, at the bins' ``positions`` (by default, one bin
    after another). 0 means that the squares of all effects are penalised. A ``smoothing`` of 0
    penalises nothing. Effects of the first ``rising`` codes on the score must not fall from one
    code to the next; those of the first ``-rising`` codes must not rise.

    With ``nodes``, which need positions, only these bins, the first and the last among them, have
    effects of their own; others are on the straight line between the nodes beside them. So a
    straight effect is as fine as the bins, and needs few parameters (Wood, Li, Shaddick, Augustin:
    Generalized additive models for gigadata, JASA 2017, have fine bins of coarse splines, too).
    """

    size: int
    ordered: int = 0
    smoothing: float = 0.0
    positions: tuple[float, ...] = ()
    rising: int = 0
    nodes: tuple[int, ...] = ()

    @property
    def own(self) -> "Block":
        """The block of the effects of its own, which are the parameters."""
        if not self.nodes:
            return self
        count = len(self.nodes)
        return Block(
            count + self.size - self.ordered,
            count,
            self.smoothing,
            tuple(self.positions[node] for node in self.nodes),
            (self.rising > 0) * count - (self.rising < 0) * count,
        )

    @property
    def rank(self) -> int:
        """The rank of the penalty that smoothing multiplies."""
        return max(self.ordered - 2, 0) if self.ordered else self.size

    def line_shares(self) -> Tensor:
        """Return which parts of its own effects make the effect of each code [size, own.size].

        >>> Block(4, 3, positions=(0.0, 1.0, 4.0), nodes=(0, 2)).line_shares().tolist()
        [[1.0, 0.0, 0.0], [0.75, 0.25, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
        """
        if not self.nodes:
            return torch.eye(self.size, dtype=torch.float64)
        places = torch.tensor(self.positions, dtype=torch.float64)
        nodes = places[list(self.nodes)]
        after = torch.searchsorted(nodes, places).clamp(min=1)
        share = (places - nodes[after - 1]) / (nodes[after] - nodes[after - 1])
        codes, own = torch.arange(self.ordered), self.own.size
        shares = torch.zeros(self.size, own, dtype=torch.float64)
        shares[codes, after - 1] = 1.0 - share
        shares[codes, after] = share
        beside = torch.arange(self.size - self.ordered)
        shares[self.ordered + beside, len(self.nodes) + beside] = 1.0
        return shares


@dataclass(frozen=True)
class Pair:
    """Two columns of codes that act together, in coarse cells.

    ``first_cells`` has the cell of each code of the column number ``first``; likewise ``second``.
    """

    first: int
    second: int
    first_cells: tuple[int, ...]
    second_cells: tuple[int, ...]
    smoothing: float = 0.0

    @property
    def width(self) -> int:
        """How many cells the second column has."""
        return 1 + max(self.second_cells)

    @property
    def block(self) -> Block:
        """The block of the cells of both."""
        return Block((1 + max(self.first_cells)) * self.width, smoothing=self.smoothing)


def codes_with_pairs(codes: Tensor, pairs: Sequence[Pair]) -> Tensor:
    """Return codes [n, columns] with a column of cells appended for each pair.

    >>> pair = Pair(0, 1, (0, 0, 1), (0, 1))
    >>> codes_with_pairs(torch.tensor([[2, 1], [1, 0]]), [pair]).tolist()
    [[2, 1, 3], [1, 0, 0]]
    """
    if not pairs:
        return codes
    largest = max(pair.block.size for pair in pairs)
    wide = codes if largest - 1 <= torch.iinfo(codes.dtype).max else codes.int()
    halves = {(pair.first, pair.first_cells) for pair in pairs}
    halves |= {(pair.second, pair.second_cells) for pair in pairs}
    cells = {
        half: wide.new_tensor(half[1]).index_select(0, codes[:, half[0]].int()) for half in halves
    }
    columns = [
        cells[pair.first, pair.first_cells] * pair.width + cells[pair.second, pair.second_cells]
        for pair in pairs
    ]
    return torch.cat([wide, torch.stack(columns, dim=1)], dim=1)


def roughness(block: Block) -> Tensor:
    """Return S of a block [size, size], which is not to be changed: what smoothing multiplies.

    >>> roughness(Block(3, ordered=3)).tolist()[1]
    [-2.0, 4.0, -2.0]
    """
    return _roughness(block.size, block.ordered, block.positions)


@lru_cache(maxsize=256)
def _roughness(size: int, ordered: int, positions: tuple[float, ...]) -> Tensor:
    if not ordered:
        return torch.eye(size, dtype=torch.float64)
    bends = torch.zeros(max(ordered - 2, 0), size, dtype=torch.float64)
    places = positions or tuple(map(float, range(ordered)))
    for row in range(len(bends)):
        before, here, after = places[row : row + 3]
        share = (here - before) / (after - before)
        line = [2.0 * (1.0 - share), -2.0, 2.0 * share]
        bends[row, row : row + 3] = torch.tensor(line, dtype=torch.float64)
    return bends.T @ bends


def positions_of(edges: Sequence[float]) -> tuple[float, ...]:
    """Return the middles of the bins that these edges separate; outer ones are as wide as the next.

    >>> positions_of([1.0, 3.0, 4.0])
    (0.0, 2.0, 3.5, 4.5)
    """
    if len(edges) < 2:
        return tuple(map(float, range(len(edges) + 1)))
    middles = [(low + high) / 2 for low, high in pairwise(edges)]
    first, last = edges[0] - (edges[1] - edges[0]) / 2, edges[-1] + (edges[-1] - edges[-2]) / 2
    return (first, *middles, last)


def fixed_roughness(block: Block) -> Tensor:
    """Return the diagonal of the penalty that does not depend on smoothing, in sums over records.

    Only effects of missing values beside bins have one, and no block without smoothing.
    """
    fixed = torch.zeros(block.size, dtype=torch.float64)
    if block.ordered and block.smoothing:
        fixed[block.ordered :] = RIDGE_BESIDE_BINS
    return fixed


class Design:
    """The blocks of an additive model, where their codes begin, and their transforms.

    ``sizes`` and ``offsets`` are about codes. ``columns`` counts the parameters of an output:
    those of each block, in turn, are its own effects, of which ``fills`` make those of all codes
    (None if that is the same).

    Args:
        blocks: at least one.
        records: n, over which losses are averaged.
        ridge: m; 0 only if no block is smoothed.
    """

    def __init__(self, blocks: Sequence[Block], records: int, ridge: float) -> None:
        self.blocks = tuple(blocks)
        self.sizes = tuple(block.size for block in blocks)
        self.offsets = (0, *accumulate(self.sizes[:-1]))
        self.own = tuple(block.own for block in blocks)
        self.widths = [block.size for block in self.own]
        self.columns = sum(self.widths)
        self.fills = tuple(block.line_shares() if block.nodes else None for block in blocks)
        self.transforms = tuple(_transform(block, records, ridge) for block in self.own)

    @property
    def is_plain(self) -> bool:
        """Whether no block is smoothed: the parameters are then the effects."""
        return not any(block.smoothing for block in self.blocks)

    @property
    def has_cone(self) -> bool:
        """Whether the effects of some block may go only up, or down."""
        return any(abs(block.rising) > 1 for block in self.blocks)

    def slices(self) -> list[slice]:
        """Return where the parameters of each block are among all."""
        return [slice(*ends) for ends in pairwise(accumulate(self.widths, initial=0))]

    def code_slices(self) -> list[slice]:
        """Return where the codes of each block are among all."""
        return [slice(*ends) for ends in pairwise(accumulate(self.sizes, initial=0))]

    def filled(self, effects: Tensor) -> Tensor:
        """Return the effects of all codes, given the blocks' own [..., columns]."""
        if all(fill is None for fill in self.fills):
            return effects
        parts = torch.split(effects, self.widths, dim=-1)
        filled = [
            part if fill is None else part @ fill.T.to(part)
            for part, fill in zip(parts, self.fills, strict=True)
        ]
        return torch.cat(filled, dim=-1)

    def cone(self) -> Tensor:
        """Return the rows a with a . phi >= 0 for one output that keeps to ``rising`` [k, columns].

        >>> Design([Block(3, rising=2)], records=1, ridge=0.0).cone().tolist()
        [[-1.0, 1.0, 0.0]]
        """
        rows = []
        for block, span, transform in zip(self.own, self.slices(), self.transforms, strict=True):
            changes = torch.eye(block.size, dtype=torch.float64)[: abs(block.rising)].diff(dim=0)
            changes = changes if block.rising >= 0 else -changes
            own = torch.zeros(len(changes), self.columns, dtype=torch.float64)
            own[:, span] = changes @ transform if transform.dim() else changes * transform
            rows.append(own)
        return torch.cat(rows)

    def in_order(self, effects: Tensor) -> Tensor:
        """Return own effects [outputs, columns] that keep to ``rising``: the same if they do.

        Parameters in the cone do so up to rounding.
        """
        if not self.has_cone:
            return effects
        signs = effects.new_tensor(SIGNS_OF_SCORE[len(effects)])[:, None]
        parts = []
        for block, part in zip(self.own, torch.split(effects, self.widths, 1), strict=True):
            towards = signs if block.rising >= 0 else -signs
            bins = towards * part[:, : abs(block.rising)]
            highest = bins.cummax(dim=1).values if block.rising else bins
            lowest = bins.flip(1).cummin(dim=1).values.flip(1) if block.rising else bins
            parts += [towards * 0.5 * (highest + lowest), part[:, abs(block.rising) :]]
        return torch.cat(parts, dim=1)

    def transformed(self, values: Tensor) -> Tensor:
        """Return T' values for values [..., columns]; transforms are symmetric.

        That turns phi into own effects, and gradients in these into gradients in phi.
        """
        parts = torch.split(values, self.widths, dim=-1)
        products = [
            part @ transform.to(part) if transform.dim() else part * transform.to(part)
            for part, transform in zip(parts, self.transforms, strict=True)
        ]
        return torch.cat(products, dim=-1)

    def restored(self, effects: Tensor) -> Tensor:
        """Return phi of these effects of all codes [..., codes]."""
        parts = torch.split(effects, list(self.sizes), dim=-1)
        solved = []
        for block, part, transform in zip(self.blocks, parts, self.transforms, strict=True):
            beside = range(block.ordered, block.size)
            own = part[..., [*block.nodes, *beside]] if block.nodes else part
            solved.append(
                torch.linalg.solve(transform.to(own), own, left=False)
                if transform.dim()
                else own / transform.to(own)
            )
        return torch.cat(solved, dim=-1)


def _transform(block: Block, records: int, ridge: float) -> Tensor:
    """Return T of a block: a matrix for bins in order, else one number."""
    if block.smoothing == 0.0:
        return torch.ones((), dtype=torch.float64)
    if not block.ordered:
        share = ridge / (block.smoothing / records + ridge)
        return torch.tensor(share, dtype=torch.float64).sqrt()
    penalty = block.smoothing * roughness(block) + fixed_roughness(block).diag()
    values, vectors = torch.linalg.eigh(penalty / records)
    root = (ridge / (values.clamp(min=0.0) + ridge)).sqrt()
    transform: Tensor = (vectors * root) @ vectors.T
    return transform


def check_rising(blocks: Sequence[Block], outputs: int) -> None:
    """Refuse effects in order of more than two classes."""
    if any(block.rising for block in blocks) and outputs not in SIGNS_OF_SCORE:
        raise InputError(
            f"monotone: {outputs} classes have no score that could go only up or down; give two "
            "classes or a quantity, or drop monotone"
        )


class AdditiveModel(nn.Linear):
    """Codes [n, blocks] to outputs [n, outputs]; it starts at zeros and computes in float64.

    It is a linear model of the codes' indicators, after a fixed transform: hence its base class,
    whose ``weight`` [outputs, columns] and ``bias`` are phi and the intercepts.

    >>> model = AdditiveModel(1, [Block(2), Block(3)], records=10, ridge=0.0)
    >>> _ = model.load_effects(torch.tensor([[1.0, 2.0, 10.0, 20.0, 30.0]]), torch.tensor([100.0]))
    >>> model(torch.tensor([[0, 2], [1, 0]])).tolist()
    [[131.0], [112.0]]
    """

    def __init__(
        self, outputs: int, blocks: Sequence[Block], *, records: int, ridge: float
    ) -> None:
        check_rising(blocks, outputs)
        design = Design(blocks, records, ridge)
        super().__init__(design.columns, outputs, dtype=torch.float64)
        self.design: Design = design
        self.register_buffer("offsets", torch.tensor(design.offsets), persistent=False)
        nn.init.zeros_(self.weight)
        nn.init.zeros_(self.bias)

    offsets: Tensor

    @property
    def effects(self) -> Tensor:
        """The effect of every code on every output [outputs, codes]."""
        design = self.design
        return design.filled(design.in_order(design.transformed(self.weight)))

    def load_effects(self, effects: Tensor, intercepts: Tensor) -> "AdditiveModel":
        """Set the effects [outputs, codes] and the intercepts [outputs]."""
        with torch.no_grad():
            self.weight.copy_(self.design.restored(effects.to(self.weight)))
            self.bias.copy_(intercepts)
        return self

    def forward(self, codes: Tensor) -> Tensor:
        """Return the outputs of these records."""
        rows = codes.long() + self.offsets
        outputs: Tensor = nn.functional.embedding(rows, self.effects.T).sum(dim=1) + self.bias
        return outputs
