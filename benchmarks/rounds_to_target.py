"""How many rounds it takes to reach the target: task by task, with bytes and seconds.

    python -m benchmarks.rounds_to_target > benchmarks/results/rounds_to_target.md
    python -m benchmarks.rounds_to_target --tasks adult-brier regression --seeds 1

One line per task, setting and seed. A target that is missed says so. Lines in comments give the
values that targets are measured against.
"""

import argparse
from collections.abc import Callable, Iterator
from functools import partial

from benchmarks import rounds_linear, rounds_networks
from benchmarks.target_rows import HEADER, Reached

TASKS: dict[str, Callable[[range], Iterator[Reached]]] = {
    "regression": rounds_linear.regression,
    "adult-cross-entropy": rounds_linear.adult_cross_entropy,
    "adult-ablations": rounds_linear.adult_ablations,
    "adult-brier": rounds_linear.adult_brier,
    "wide-cross-entropy": partial(rounds_linear.wide, "cross_entropy"),
    "wide-brier": partial(rounds_linear.wide, "brier"),
    "adult-first-order": rounds_networks.adult_first_order,
    "synthetic": rounds_networks.synthetic,
    "fashion-6000": rounds_networks.fashion_6000,
    "fashion-60000": rounds_networks.fashion_60000,
}


def main() -> None:
    """Print a line for each run."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    options.add_argument("--seeds", type=int, default=3)
    chosen = options.parse_args()
    print(HEADER, flush=True)
    for name in chosen.tasks:
        for line in TASKS[name](range(chosen.seeds)):
            print(line, flush=True)


if __name__ == "__main__":
    main()
