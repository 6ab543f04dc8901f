"""Logistic regression with one curvature of all groups, or one of each, on Adult.

    python -m benchmarks.shared_curvature

Both servers get the sums of the same passes, until both claims of the default tolerance are
certified. Printed are rounds, numbers of curvature that a site sends in all of them, seconds of the
server, and the worst and mean risk of the model.
"""

import argparse
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from experiments.table_models.measures import SEEDS, split
from experiments.table_models.networks import columns_of
from experiments.table_models.tables import table
from fedminmax.core.examples import Examples
from fedminmax.core.losses import cross_entropy_loss
from fedminmax.core.one_step import linear_group_sums
from fedminmax.methods.card import TOLERANCE
from fedminmax.methods.look_ahead import FedMinMaxFast
from fedminmax.methods.shared.look_ahead import DEFAULT_GAP
from fedminmax.methods.shared.replies import RiskSums
from fedminmax.methods.shared.second_order_server import after_second_order_round
from fedminmax.methods.shared.second_order_state import SecondOrderState
from fedminmax.training.simulation import Simulation

RIDGE, MOST_ROUNDS = 1e-4, 60
Rows = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@dataclass(frozen=True, eq=False)
class Solved:
    """What a server needed, and the risks of its model."""

    rounds: int
    numbers: int
    seconds: float
    worst: float
    mean: float


def adult_rows(seed: int) -> Rows:
    """Return the training records of a split: features, classes and groups."""
    problem = table("adult", seed, Path())
    train, _ = split(problem, seed)
    x = torch.from_numpy(columns_of(problem, train)[train])
    _, group = np.unique(problem.frame["group"].to_numpy()[train], return_inverse=True)
    return x, torch.from_numpy(problem.target[train]).long(), torch.from_numpy(group)


def solved(rows: Rows, *, shared: bool) -> Solved:
    """Run the server on the sums of all records."""
    model = torch.nn.Linear(rows[0].shape[1], 2).double()
    federation = Simulation(model, cross_entropy_loss, [rows], ridge=RIDGE)
    census, method = federation.census, FedMinMaxFast(tolerance=TOLERANCE)
    state = method.init(torch.zeros_like(federation.initial_parameters), census)
    if not isinstance(state, SecondOrderState):
        raise TypeError("the model is too wide")
    plain, examples = state.structure, Examples(*rows)
    if shared:
        none = torch.zeros(1, plain.curvature_numbers, dtype=torch.float64)
        structure = replace(plain, coded=True)
        state = replace(state, structure=structure, curvature=none, natural_curvature=none)
    numbers, seconds = 0, 0.0
    while state.rounds < MOST_ROUNDS:
        sums = linear_group_sums(plain, state.parameters, examples, census.groups)
        curvature = sums.curvature
        if shared:
            curvature = (state.curvature_weights @ curvature)[None]
            curvature = curvature if state.wants_curvature else curvature[:, :0]
        numbers += curvature.numel()
        reported = RiskSums(state.counts, sums.losses, sums.gradients, curvature)
        start = time.perf_counter()
        state = after_second_order_round(state, reported, 0.0)
        seconds += time.perf_counter() - start
        left = state.remaining
        if left is not None and left <= DEFAULT_GAP and not state.is_halfway:
            break
    return Solved(state.rounds, numbers, seconds, state.allowed.worst, state.allowed.mean)


def main() -> None:
    """Print both servers' figures for each split."""
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    for seed in range(SEEDS):
        rows = adult_rows(seed)
        for shared in (False, True):
            found = solved(rows, shared=shared)
            name = "one curvature of all groups" if shared else "a curvature of each group"
            print(
                f"split {seed}, {name:27}: {found.rounds:3} rounds, {found.numbers:9,} numbers, "
                f"{found.seconds:6.2f} s, worst {found.worst:.6f}, mean {found.mean:.6f}"
            )


if __name__ == "__main__":
    main()
