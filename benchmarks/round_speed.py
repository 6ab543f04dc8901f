"""The overhead of a round over its lower limit.

One-step methods (FedMinMax, AFL) against one plain centralized forward and backward pass over
the same rows; FedAvg and q-FedAvg against the best hand-written loop. Run it on a quiet machine:

    python -m benchmarks.round_speed --json speed.json
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

import torch

from benchmarks.contest import (
    LIBRARY,
    LOCAL,
    Entry,
    check_same_work,
    local_entries,
    one_step_entries,
    plain_entries,
    plan_of,
)
from benchmarks.hand_written import LocalPlan
from benchmarks.race import ALLOWED, Line, Verdict, machine, peaks_of, race, show, tabulate
from benchmarks.timing import fastest


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.round_speed")
    parser.add_argument("--rows", type=int, default=8000, help="rows of all sites")
    parser.add_argument("--epochs", type=int, default=15, help="local epochs, E")
    parser.add_argument("--repeats", type=int, default=7, help="repeats of one-step rounds")
    parser.add_argument("--local-repeats", type=int, default=5, help="repeats of local rounds")
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
    base = Entry("FedAvg", LIBRARY, options.rows, 40, plan)
    check_same_work(base)
    print("checked: in float64 all contestants reach the same parameters", flush=True)
    tables: dict[str, list[Line]] = {}
    verdicts: list[Verdict] = []

    if options.only != "local":
        plain, library = plain_entries(base), one_step_entries(base)
        entries = {**plain, **library}
        times = race(entries, options.repeats, threads)
        best = fastest({name: times[name] for name in plain})
        peaks = {} if options.no_memory else peaks_of(entries)
        lines = tabulate(times, best, peaks)
        tables["one step"] = lines
        show(f"One step, MLP 4x512, {options.rows} rows; limit: plain PyTorch, {best}", lines)
        verdicts += [
            Verdict(f"fused {line.name}", line.ratio, f"the limit ({best})")
            for line in lines
            if line.name in library
        ]
    if options.only != "one-step":
        for method in LOCAL:
            entries = local_entries(Entry(method, LIBRARY, options.rows, 40, plan_of(method, plan)))
            times = race(entries, options.local_repeats, threads)
            best = fastest({name: times[name] for name in entries if name != LIBRARY})
            # The peak does not depend on the number of epochs, the time does.
            short = local_entries(
                Entry(
                    method,
                    LIBRARY,
                    options.rows,
                    40,
                    plan_of(method, LocalPlan(1, plan.batch_size, plan.learning_rate, None)),
                )
            )
            lines = tabulate(times, best, {} if options.no_memory else peaks_of(short))
            tables[method] = lines
            show(f"{method}, E={plan.epochs}, B=100, 40 sites; best by hand: {best}", lines)
            verdicts += [
                Verdict(f"{method}, 40 sites", line.ratio, f"the best hand-written loop ({best})")
                for line in lines
                if line.name == LIBRARY
            ]
    print()
    for verdict in verdicts:
        print(verdict)
    if options.json:
        result = {
            "machine": about,
            "rows": options.rows,
            "plan": asdict(plan),
            "allowed": ALLOWED,
            "tables": {title: [asdict(line) for line in lines] for title, lines in tables.items()},
            "verdicts": [asdict(verdict) for verdict in verdicts],
        }
        options.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
