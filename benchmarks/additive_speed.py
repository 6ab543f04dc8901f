"""Additive models against the dense path, and against LightGBM, in one run.

    pip install -r experiments/table_models/requirements.txt
    python -m benchmarks.additive_speed --data FOLDER

FOLDER has the files of the American Community Survey 2018 (``experiments/table_models/tables.py``):
19 states as sites, three numbers and five categories, ten groups. Codes are the ranks of a column's
distinct values. A pass gives losses, gradients and curvature of all groups over 213,707 records in
981 codes. The dense path has a float for each code, one where the record has it. Then the whole
training, from codes on, with LightGBM (400 trees, the same number of threads) in turns. Memory is
what a process of its own takes beyond its imports, with the codes, which it reads from a file.
"""

import argparse
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import lightgbm
import numpy as np
import torch

from benchmarks.timing import Contestant, median_ratio, peak_of, time_in_turns
from experiments.table_models.tables import acs
from fedminmax.core.additive.model import AdditiveModel, Block, codes_with_pairs
from fedminmax.core.additive.sums import coded_group_sums
from fedminmax.core.examples import Examples
from fedminmax.core.linear_structure import LinearStructure
from fedminmax.core.losses import cross_entropy_loss
from fedminmax.core.one_step import linear_group_sums
from fedminmax.methods.card import TOLERANCE
from fedminmax.methods.look_ahead import FedMinMaxFast
from fedminmax.training.additive_class import choose_class
from fedminmax.training.simulation import Simulation
from fedminmax.training.train import fit

TREES = 400
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


def histogram_pass(path: Path) -> Contestant:
    """Sums from histograms of codes."""
    census = load_pooled(path)
    rows, structure = census.pooled, census.structure
    model = AdditiveModel(structure.outputs, census.blocks, records=len(rows), ridge=RIDGE)
    parameters = torch.zeros(structure.outputs * (structure.inputs + 1), dtype=torch.float64)
    weights = torch.ones(census.groups, dtype=torch.float64)

    def run() -> None:
        coded_group_sums(
            structure, model.design, parameters, rows, census.groups, group_weights=weights
        )

    return Contestant(run)


def dense_pass(path: Path) -> Contestant:
    """Sums from matrix products of indicators, as for every other linear model."""
    census = load_pooled(path)
    coded, structure = census.pooled, census.structure
    x = torch.zeros(len(coded), structure.inputs)
    offset = 0
    for number, block in enumerate(census.blocks):
        x.scatter_(1, coded.x[:, number : number + 1].long() + offset, 1.0)
        offset += block.size
    rows = Examples(x, coded.y, coded.group)
    parameters = torch.zeros(structure.outputs * (structure.inputs + 1), dtype=torch.float64)
    return Contestant(lambda: linear_group_sums(structure, parameters, rows, census.groups))


def boosted_trees(census: CodedCensus, threads: int) -> Contestant:
    """LightGBM on the pooled records; columns that are not in order are categories."""
    rows = census.pooled
    x, y = rows.x.numpy().astype(np.float64), rows.y.numpy()
    categories = [number for number, block in enumerate(census.blocks) if not block.ordered]

    def run() -> None:
        model = lightgbm.LGBMClassifier(n_estimators=TREES, n_jobs=threads, verbose=-1)
        model.fit(x, y, categorical_feature=categories)

    return Contestant(run)


def show(times: dict[str, Sequence[float]], against: str) -> None:
    """Print medians, and the ratio to one of the contestants within each turn."""
    for name, seconds in times.items():
        ratio = median_ratio(seconds, times[against])
        print(f"{name:45}{statistics.median(seconds):9.3f} s{ratio:9.4f} of {against}")


def main() -> None:
    """Print passes, memory and whole trainings."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with acs")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    threads = torch.get_num_threads()
    passes = {"histograms": histogram_pass, "dense": dense_pass}
    census = coded_census(options.data)
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "codes.pt"
        save_pooled(census, path)
        contestants = {name: build(path) for name, build in passes.items()}
        show(dict(time_in_turns(contestants, options.repeats, threads)), "dense")
        contestants.clear()
        peaks = {name: peak_of(build, path) for name, build in passes.items()}
    for name, peak in peaks.items():
        of_dense = peak / peaks["dense"]
        print(f"{name:45}{peak / 2**20:9.0f} MB at most{of_dense:9.4f} of dense")
    trainings = {
        f"whole training, at most {pairs} pairs": Contestant(
            partial(whole_training, census, census.sites, pairs)
        )
        for pairs in (10, 0)
    }
    trees = f"LightGBM, {TREES} trees"
    trainings[trees] = boosted_trees(census, threads)
    show(dict(time_in_turns(trainings, options.repeats, threads)), trees)
    for pairs in (10, 0):
        print(f"{pairs} pairs: {whole_training(census, census.sites, pairs)}")


if __name__ == "__main__":
    main()
