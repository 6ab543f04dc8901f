"""Additive models against the dense path, and against LightGBM, in one run.

    pip install -r experiments/table_models/requirements.txt
    python -m benchmarks.additive_speed --data FOLDER

A pass gives losses, gradients and curvature of all groups over 213,707 records of a census in 981
codes. The dense path has a float for each code, one where the record has it. Then the whole
training, from codes on, with LightGBM (400 trees, the same number of threads) in turns. Memory is
what a process of its own takes beyond its imports, with the codes, which it reads from a file.
"""

import argparse
import statistics
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import lightgbm
import numpy as np
import torch

from benchmarks.coded_census import (
    RIDGE,
    CodedCensus,
    coded_census,
    load_pooled,
    save_pooled,
    whole_training,
)
from benchmarks.memory import peak_of
from benchmarks.timing import Contestant, median_ratio, time_in_turns
from fedminmax.core.additive.model import AdditiveModel
from fedminmax.core.additive.sums import coded_group_sums
from fedminmax.core.examples import Examples
from fedminmax.core.one_step import linear_group_sums

TREES = 400


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
