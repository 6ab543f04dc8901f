"""The paper's second experiment: the speed of a round of the CNN on FashionMNIST.

One-step methods against the best plain centralized pass over the same rows, for 1, 40 and 1,000
sites; FedAvg against the best hand-written loop and against one core alone.

    python -m benchmarks.cnn_speed --json cnn_speed.json
"""

import argparse
import json
import math
from dataclasses import asdict, replace
from pathlib import Path

import torch

from benchmarks.contest import (
    LIBRARY,
    SITES,
    Entry,
    check_same_work,
    local_entries,
    one_step_entries,
    plain_entries,
)
from benchmarks.hand_written import LocalPlan
from benchmarks.race import Line, Verdict, machine, peaks_of, race, show, tabulate
from benchmarks.timing import fastest, median_ratio

ONE_CORE = "autograd, one core"


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.cnn_speed")
    parser.add_argument("--rows", type=int, default=60_000, help="rows of one-step rounds")
    parser.add_argument("--local-rows", type=int, default=8000, help="rows of local rounds")
    parser.add_argument("--epochs", type=int, default=15, help="local epochs, E")
    parser.add_argument("--repeats", type=int, default=5, help="turns of one-step rounds")
    parser.add_argument("--local-repeats", type=int, default=5, help="turns of local rounds")
    parser.add_argument("--only", choices=("one-step", "local"), help="run one half")
    parser.add_argument("--no-memory", action="store_true", help="skip the peak memory")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    return parser.parse_args()


def main() -> None:
    """Check, measure, print, and write JSON if requested."""
    options = parse()
    threads = torch.get_num_threads()
    about = machine()
    print(", ".join(f"{name}: {value}" for name, value in about.items()))
    plan = LocalPlan(options.epochs, batch_size=100, learning_rate=0.1, q=None)
    base = Entry("FedAvg", LIBRARY, options.rows, 40, plan, images=True)
    check_same_work(base)
    print("checked: in float64 all contestants reach the same parameters", flush=True)

    tables: dict[str, list[Line]] = {}
    verdicts: list[Verdict] = []
    for sites in SITES if options.only != "local" else ():
        # A separate race for each number of sites: with few contestants the cache stays warm.
        library = one_step_entries(base, (sites,))
        entries = {**plain_entries(base), **library}
        times = race(entries, options.repeats, threads)
        best = fastest({name: times[name] for name in entries if name not in library})
        lines = tabulate(times, best, {} if options.no_memory else peaks_of(entries))
        tables[f"one step, {sites} sites"] = lines
        show(f"One step, CNN 16/32, {options.rows} images; limit: plain PyTorch, {best}", lines)
        verdicts += [
            Verdict(f"fused {line.name}", line.ratio, f"the limit ({best})")
            for line in lines
            if line.name in library
        ]

    gain = math.nan
    if options.only != "one-step":
        local = local_entries(replace(base, rows=options.local_rows))
        local_times = race(local, options.local_repeats, threads)
        best_loop = fastest({name: local_times[name] for name in local if name != LIBRARY})
        local_lines = tabulate(local_times, best_loop, {} if options.no_memory else peaks_of(local))
        title = f"FedAvg, CNN 16/32, {options.local_rows} images, E={plan.epochs}, B=100, 40 sites"
        tables["FedAvg"] = local_lines
        show(f"{title}; best by hand: {best_loop}", local_lines)
        verdicts += [
            Verdict("FedAvg, 40 sites", line.ratio, f"the best hand-written loop ({best_loop})")
            for line in local_lines
            if line.name == LIBRARY
        ]
        gain = median_ratio(local_times[ONE_CORE], local_times[LIBRARY])
    print()
    for verdict in verdicts:
        print(verdict)
    if options.only != "one-step":
        print(f"FedAvg, 40 sites: {gain:.2f} times as fast as one core alone (asked: 1.6)")
    if options.json:
        _write(options.json, about, tables, verdicts, gain)


def _write(
    path: Path,
    about: dict[str, str | int],
    tables: dict[str, list[Line]],
    verdicts: list[Verdict],
    gain: float,
) -> None:
    result = {
        "machine": about,
        "tables": {title: [asdict(line) for line in lines] for title, lines in tables.items()},
        "verdicts": [asdict(verdict) for verdict in verdicts],
        "times_as_fast_as_one_core": None if math.isnan(gain) else gain,
    }
    path.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
