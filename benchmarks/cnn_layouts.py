"""Find the fastest layout of a CNN pass on this machine: chunks, memory format, threads, compiler.

    python -m benchmarks.cnn_layouts [--rows 6000] [--repeats 5] [--compile] [--json FILE]

glibc's allocator returns large blocks to the system after each chunk, and page faults cost time
when they are allocated again; run it again with MALLOC_TRIM_THRESHOLD_ and
MALLOC_MMAP_THRESHOLD_ at 1000000000 to see how much.
"""

import argparse
import json
import os
import statistics
from dataclasses import asdict
from pathlib import Path

import torch

from benchmarks.cnn_passes import Layout, plain_cnn_pass
from benchmarks.timing import fastest, median_ratio, time_in_turns
from benchmarks.workload import make_image_workload

CHUNKS = (30, 60, 125, 250)


def layouts(workers: int, *, compiled: bool) -> list[Layout]:
    """Return all layouts to compare."""
    plain = [
        Layout(rows, channels_last, threads)
        for threads in (1, workers)
        for channels_last in (False, True)
        for rows in CHUNKS
    ]
    return plain + [
        Layout(rows, channels_last=True, workers=1, compiled=True)
        for rows in CHUNKS[2:]
        if compiled
    ]


def main() -> None:
    """Time all layouts in turns and print them, fastest first."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.cnn_layouts")
    parser.add_argument("--rows", type=int, default=6000, help="rows of a pass")
    parser.add_argument("--repeats", type=int, default=5, help="turns")
    parser.add_argument("--compile", action="store_true", help="also try torch.compile")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    options = parser.parse_args()
    threads = torch.get_num_threads()
    work = make_image_workload(options.rows, 1)
    chosen = {
        str(layout): (layout, plain_cnn_pass(work, layout))
        for layout in layouts(threads, compiled=options.compile)
    }
    times = time_in_turns(
        {name: contestant for name, (_, contestant) in chosen.items()}, options.repeats, threads
    )
    best = fastest(times)
    allocator = {name: value for name, value in os.environ.items() if name.startswith("MALLOC_")}
    print(f"CNN 16/32, {options.rows} rows, allocator settings: {allocator or 'default'}")
    lines = sorted(times, key=lambda name: statistics.median(times[name]))
    for name in lines:
        ratio = median_ratio(times[name], times[best])
        print(f"{name:50}{statistics.median(times[name]):8.3f} s{ratio:8.2f}")
    if options.json:
        content = [
            asdict(chosen[name][0]) | {"seconds": statistics.median(times[name])} for name in lines
        ]
        result = {"rows": options.rows, "allocator": allocator, "layouts": content}
        options.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
