"""What a network of columns can reach on Adult: minibatch Adam with all records in one place.

    python -m experiments.table_models.networks

prints the risks of the worst group and of all records, for each split of ``run.py`` and several
starts. The network has two hidden layers of 64, and stops early on 10% of the training records.
"""

import argparse
import copy
from pathlib import Path

import numpy as np
import torch
from torch import nn

from experiments.table_models.measures import SEEDS, Numbers, Positions, risks_of, split
from experiments.table_models.tables import Problem, table

STARTS, BATCH, RATE, PATIENCE, MAX_EPOCHS = 3, 256, 1e-3, 5, 100


def columns_of(problem: Problem, train: Positions) -> Numbers:
    """Return inputs as `inputs = "columns"` has them: standardised numbers, and indicators."""
    parts = []
    for name in problem.numbers:
        values = problem.frame[name].to_numpy().astype(np.float64)
        missing = np.isnan(values)
        known = values[train][~missing[train]]
        parts.append(np.where(missing, 0.0, (values - known.mean()) / known.std())[:, None])
        if missing.any():
            parts.append(missing[:, None].astype(np.float64))
    for name in problem.categories:
        listed = problem.frame[name].drop_nulls().unique().sort()
        own = problem.frame[name].to_numpy()
        parts.append(np.stack([own == value for value in listed], axis=1).astype(np.float64))
    return np.concatenate(parts, axis=1)


def answers_of(x: Numbers, y: Numbers, train: Positions, test: Positions, start: int) -> Numbers:
    """Train one network, and return its probabilities of class 1."""
    generator = torch.Generator().manual_seed(start)
    torch.manual_seed(start)
    inputs, labels = torch.from_numpy(x).float(), torch.from_numpy(y).long()
    order = torch.from_numpy(train)[torch.randperm(len(train), generator=generator)]
    kept, used = order[: len(order) // 10], order[len(order) // 10 :]
    layers = [nn.Linear(x.shape[1], 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2)]
    network, loss = nn.Sequential(*layers), nn.CrossEntropyLoss()
    optimiser = torch.optim.Adam(network.parameters(), lr=RATE)
    best, lowest, since = copy.deepcopy(network), float("inf"), 0
    for _ in range(MAX_EPOCHS):
        shuffled = used[torch.randperm(len(used), generator=generator)]
        for rows in torch.split(shuffled, BATCH):
            optimiser.zero_grad()
            loss(network(inputs[rows]), labels[rows]).backward()
            optimiser.step()
        with torch.no_grad():
            now = float(loss(network(inputs[kept]), labels[kept]))
        since += 1
        if now < lowest:
            best, lowest, since = copy.deepcopy(network), now, 0
        if since >= PATIENCE:
            break
    with torch.no_grad():
        found: Numbers = torch.softmax(best(inputs[test]), dim=1)[:, 1].double().numpy()
    return found


def main() -> None:
    """Print a line for each split and encoding."""
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    for seed in range(SEEDS):
        problem = table("adult", seed, Path())
        train, test = split(problem, seed)
        x = columns_of(problem, train)
        for start in range(STARTS):
            answers = answers_of(x, problem.target, train, test, start)
            risks = risks_of(problem, train, test, answers)
            print(f"split {seed}, start {start}: {risks.worst:.4f} {risks.mean:.4f}", flush=True)


if __name__ == "__main__":
    main()
