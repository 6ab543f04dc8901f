"""What a round of many sites costs the server, and each site, in bytes and in seconds.

    python -m benchmarks.many_sites [--sites 10 100 1000] [--columns 966 1905] [--groups 10]

A reply of an additive model has a gradient for each group and each of two outputs, and in some
rounds a curvature. The server reads each reply and adds it to the total. With masks a site adds one
key stream for each other site and one of its own, and the server takes the latter away again (see
``network.secure.masks``). Replies are read, added and masked here as there, at most ``MEASURED`` of
them; the seconds of more are in proportion.
"""

import argparse
import time

import numpy as np
import torch

from fedminmax.network.secure.fixed_point import Packed
from fedminmax.network.secure.masks import KEY_BYTES, Sum
from fedminmax.network.wire.codec import read_vectors, write_vectors

OUTPUTS, MEASURED = 2, 20


def main() -> None:
    """Print a line for each size of a reply and each number of sites."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sites", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--columns", type=int, nargs="+", default=[966, 1905])
    parser.add_argument("--groups", type=int, default=10)
    options = parser.parse_args()
    print(
        "sites  columns  reply            |  MB each  server GB | server s | mask: site s, server s"
    )
    for columns in options.columns:
        slopes = options.groups * OUTPUTS * (columns + 1)
        curvature = (columns + 1) * (columns + 2) // 2
        for name, numbers in (("gradients", slopes), ("and curvature", slopes + curvature)):
            plain, mask = seconds_of_a_reply(numbers)
            for sites in options.sites:
                size = 8 * numbers / 2**20
                whole = size * sites / 2**10
                print(
                    f"{sites:5,}  {columns:7,}  {name:15}  |  {size:7.2f}  {whole:9.2f} "
                    f"|  {plain * sites:8.2f} | {mask * sites:13.2f}  {(plain + mask) * sites:8.2f}"
                )


def seconds_of_a_reply(numbers: int) -> tuple[float, float]:
    """Return the seconds of a processor to read and add a reply, and to add one mask to it."""
    total = torch.zeros(numbers, dtype=torch.float64)
    message = write_vectors({"step": torch.ones(numbers, dtype=torch.float64)})
    start = time.process_time()
    for _ in range(MEASURED):
        read = read_vectors(message, {"step": (torch.float64,)}, 2 * len(message), "a site")
        total += read["step"]
    middle = time.process_time()
    masked = Sum(Packed(np.zeros(numbers, np.uint64), (), ()))
    for number in range(MEASURED):
        masked.add_mask(number.to_bytes(KEY_BYTES, "big"), 1)
    return (middle - start) / MEASURED, (time.process_time() - middle) / MEASURED


if __name__ == "__main__":
    main()
