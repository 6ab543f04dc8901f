"""A FedMinMax round on table-like rows against plain PyTorch on the pooled tensor.

A logistic model is so cheap that any overhead shows. The plain contestants do only
what a centralized minimax round needs: weighted losses, their gradient, one step, the
groups' mean losses and a projected ascent of the weights; with all rows at once or in chunks.

    python -m benchmarks.table_speed
"""

import argparse
import statistics
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from benchmarks.timing import Contestant, fastest, median_ratio, time_in_turns
from fedminmax.core.losses import brier_loss
from fedminmax.core.models import linear
from fedminmax.core.solvers.simplex import project_on_simplex
from fedminmax.methods.fedminmax import FedMinMax
from fedminmax.training.simulation import Simulation
from fedminmax.training.train import train

GROUPS = 10
SITES = 40


def draw(rows: int, features: int) -> tuple[Tensor, Tensor, Tensor]:
    """Draw rows of a table: features, labels, groups."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, features, generator=generator)
    y = (x[:, 0] + torch.randn(rows, generator=generator) > 0).long()
    return x, y, torch.randint(GROUPS, (rows,), generator=generator)


def library(data: tuple[Tensor, Tensor, Tensor], rounds: int) -> Contestant:
    """Train FedMinMax over 40 sites; each call is some rounds."""
    parts = torch.arange(len(data[0])).chunk(SITES)
    sites = [(data[0][part], data[1][part], data[2][part]) for part in parts]
    torch.manual_seed(0)
    federation = Simulation(linear(data[0].shape[1], 2), brier_loss, sites)
    running = train(federation, FedMinMax(), rounds=10**9)

    def run() -> None:
        for _ in range(rounds):
            next(running)

    return Contestant(run)


def plain(data: tuple[Tensor, Tensor, Tensor], rounds: int, rows_at_once: int) -> Contestant:
    """Return the hand-written round."""
    torch.manual_seed(0)
    running = plain_rounds(data, linear(data[0].shape[1], 2), rows_at_once)

    def run() -> None:
        for _ in range(rounds):
            next(running)

    return Contestant(run)


def plain_rounds(
    data: tuple[Tensor, Tensor, Tensor], model: nn.Module, rows_at_once: int
) -> Iterator[Tensor]:
    """Yield the weights of round after round of Algorithm 2 of Papadaki et al. 2021."""
    x, y, group = data
    count = torch.bincount(group, minlength=GROUPS)
    weights = count.double() / len(y)
    starts = range(0, len(y), rows_at_once)
    while True:
        per_row = (weights / count).float()[group]
        model.zero_grad()
        losses = []
        for start in starts:
            part = slice(start, start + rows_at_once)
            own = brier_loss(model(x[part]), y[part])
            torch.dot(own, per_row[part]).backward()  # type: ignore[no-untyped-call]
            losses.append(own.detach())
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.grad is not None:
                    parameter.sub_(parameter.grad, alpha=0.1)
        sums = torch.bincount(group, weights=torch.cat(losses).double(), minlength=GROUPS)
        weights = project_on_simplex(weights + 0.1 * sums / count)
        yield weights


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()
    threads = torch.get_num_threads()
    print(f"{'rows':>10}{'features':>10}{'contestant':>22}{'ms per round':>14}{'of limit':>10}")
    for rows, features in ((3_000, 20), (32_561, 100), (1_000_000, 66)):
        data = draw(rows, features)
        rounds = max(1, 300_000 // rows)
        contestants = {
            f"plain, {size:,} at once": plain(data, rounds, size)
            for size in sorted({rows, min(rows, 8192), min(rows, 65536)})
        }
        times = time_in_turns(
            contestants | {"fedminmax": library(data, rounds)}, options.repeats, threads
        )
        best = fastest({name: times[name] for name in contestants})
        for name, own in times.items():
            milliseconds = 1000 * statistics.median(own) / rounds
            ratio = median_ratio(own, times[best])
            print(f"{rows:>10,}{features:>10}{name:>22}{milliseconds:>14.2f}{ratio:>10.2f}")


if __name__ == "__main__":
    main()
