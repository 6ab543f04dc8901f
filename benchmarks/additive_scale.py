"""The whole training of an additive model on millions of records: seconds and memory.

    python -m benchmarks.additive_scale --data FOLDER --times 43

repeats the census of 19 states (``coded_census``) 43 times, 9.2 million records, and trains the
minimax model with pairs in this process, from codes on.
"""

import argparse
import time
from pathlib import Path

from benchmarks.coded_census import coded_census, whole_training
from benchmarks.memory import peak_bytes


def main() -> None:
    """Print seconds, and how much the process has taken at most, imports included."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with acs")
    parser.add_argument("--times", type=int, default=43)
    parser.add_argument("--pairs", type=int, default=10)
    options = parser.parse_args()
    start = time.perf_counter()
    census = coded_census(options.data, options.times)
    records = sum(map(len, census.sites))
    seconds, memory = time.perf_counter() - start, peak_bytes() / 2**30
    print(f"{records:,} records read and coded in {seconds:.1f} s, {memory:.2f} GB", flush=True)
    start = time.perf_counter()
    trained = whole_training(census, census.sites, options.pairs)
    seconds = time.perf_counter() - start
    print(f"{trained.parameters:,} parameters of an output")
    print(f"{trained.class_rounds} rounds to choose the class, {trained.rounds} of the method")
    print(f"gap {trained.gap}, {seconds:.1f} s, {peak_bytes() / 2**30:.2f} GB at most")


if __name__ == "__main__":
    main()
