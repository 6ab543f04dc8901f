"""A census as codes, and the whole training of an additive model from there on.

FOLDER has the files of the American Community Survey 2018 (``experiments/table_models/tables.py``):
19 states as sites, 213,707 records, three numbers and five categories, ten groups. Codes are the
ranks of a column's distinct values.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from experiments.table_models.tables import acs
from fedminmax.core.additive.model import AdditiveModel, Block, codes_with_pairs
from fedminmax.core.examples import Examples
from fedminmax.core.linear_structure import LinearStructure
from fedminmax.core.losses import cross_entropy_loss
from fedminmax.methods.card import TOLERANCE
from fedminmax.methods.look_ahead import FedMinMaxFast
from fedminmax.training.additive_class import choose_class
from fedminmax.training.simulation import Simulation
from fedminmax.training.train import fit

CLASSES, RIDGE, MINIMUM_GROUP = 2, 1e-6, 30


@dataclass(frozen=True, eq=False)
class CodedCensus:
    """The sites' codes, and what their columns are."""

    sites: tuple[Examples, ...]
    blocks: tuple[Block, ...]
    groups: int

    @property
    def pooled(self) -> Examples:
        """All records as those of one site."""
        return Examples(
            torch.cat([site.x for site in self.sites]),
            torch.cat([site.y for site in self.sites]),
            torch.cat([site.group for site in self.sites]),
        )

    @property
    def structure(self) -> LinearStructure:
        """The layout of an additive model without pairs."""
        columns = sum(block.size for block in self.blocks)
        return LinearStructure(
            CLASSES, columns, intercept=True, loss="cross_entropy", ridge=RIDGE, coded=True
        )


def coded_census(folder: Path, times: int = 1) -> CodedCensus:
    """Read the files; ``times`` repeats the records of every site."""
    problem = acs(folder)
    frame, blocks, columns = problem.frame, [], []
    for name in (*problem.numbers, *problem.categories):
        codes = (frame[name].rank("dense") - 1).to_numpy()
        size = int(codes.max()) + 1
        columns.append(codes.astype(np.int16))
        blocks.append(Block(size, ordered=size if name in problem.numbers else 0))
    x = torch.from_numpy(np.stack(columns, axis=1))
    y = torch.from_numpy(problem.target.astype(np.int64))
    names, group = np.unique(frame["group"].to_numpy(), return_inverse=True)
    _, site = np.unique(frame["site"].to_numpy(), return_inverse=True)
    rows = Examples(x, y, torch.from_numpy(group))
    sites = []
    for number in range(int(site.max()) + 1):
        part = rows.rows(torch.from_numpy(np.flatnonzero(site == number)))
        sites.append(
            Examples(part.x.repeat(times, 1), part.y.repeat(times), part.group.repeat(times))
        )
    return CodedCensus(tuple(sites), tuple(blocks), len(names))


def save_pooled(census: CodedCensus, path: Path) -> None:
    """Write the pooled records, so that another process need not read the tables."""
    rows = census.pooled
    torch.save((rows.x, rows.y, rows.group, census.blocks, census.groups), path)


def load_pooled(path: Path) -> CodedCensus:
    """Read them as those of one site."""
    x, y, group, blocks, groups = torch.load(path, weights_only=False)
    return CodedCensus((Examples(x, y, group),), blocks, groups)


@dataclass(frozen=True, eq=False)
class WholeTraining:
    """The result of training: parameters of one output, rounds before and with the method."""

    parameters: int
    class_rounds: int
    rounds: int
    gap: float | None


def whole_training(census: CodedCensus, sites: Sequence[Examples], pairs: int) -> WholeTraining:
    """Choose smoothing and pairs, then train the minimax model until its gap is certified."""
    chosen = choose_class(sites, census.structure, census.blocks, max_pairs=pairs)
    records = sum(map(len, sites))
    model = AdditiveModel(CLASSES, chosen.blocks, records=records, ridge=RIDGE)
    model.load_effects(chosen.effects, chosen.intercepts)
    coded = [replace(site, x=codes_with_pairs(site.x, chosen.pairs)) for site in sites]
    federation = Simulation(
        model,
        cross_entropy_loss,
        [(site.x, site.y, site.group) for site in coded],
        ridge=RIDGE,
        minimum_group=MINIMUM_GROUP,
    )
    # With the tolerance that users have by default.
    last = fit(federation, FedMinMaxFast(tolerance=TOLERANCE), rounds=200)
    return WholeTraining(model.design.columns, chosen.rounds, last.number, last.remaining)
