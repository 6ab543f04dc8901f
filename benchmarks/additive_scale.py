"""The whole training of an additive model on millions of records: from files to results.

    python -m benchmarks.additive_scale --data FOLDER --times 43
    python -m benchmarks.additive_scale --simulate 100000000 --pairs 0 --folder /var/tmp/simulated

The first writes the census of 19 states (``coded_census``) 43 times over as Parquet files, 9.2
million records; the second simulates as many records as are asked for, a million at a time, for
sites that are large enough for their columns to be kept on disk. Then this process reads the files,
trains the method of ``CONFIG`` and measures it on held-out records. Lines say how many seconds have
passed by the clock and of the processors, and the most memory so far: all resident pages, and those
that are not in files on disk, which the system cannot drop.
"""

import argparse
import gzip
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.timing import peak_bytes
from fedminmax.config.read import TableConfig, read_config
from fedminmax.runs.train import open_training, training_rounds

BLOCK = 1_000_000
CONFIG = """
[data]
target = "{target}"
classes = ["false", "true"]
held_out = 0.2
[data.sites]
{sites}
[groups]
columns = {groups}
[method]
name = "fedminmax-fast"
baseline = "none"
[model]
kind = "additive"
pairs = {pairs}
{features}
"""
ACS = {
    **dict.fromkeys(("AGEP", "SCHL", "WKHP"), "numeric"),
    **dict.fromkeys(("COW", "MAR", "OCCP", "POBP", "RELP"), "category"),
}
SIMULATED = {
    **{f"number_{number}": "numeric" for number in range(5)},
    **{f"code_{number}": "category" for number in range(3)},
}


def main() -> None:
    """Write the files, then read them, train, and say what that takes."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, help="folder with acs")
    parser.add_argument("--times", type=int, default=43)
    parser.add_argument("--simulate", type=int, metavar="RECORDS")
    parser.add_argument("--sites", type=int, default=10)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--folder", type=Path, help="for the files; by default a temporary one")
    options = parser.parse_args()
    if (options.data is None) == (options.simulate is None):
        parser.error("give --data or --simulate")
    with tempfile.TemporaryDirectory(dir=options.folder) as parent:
        folder = Path(parent)
        start = time.perf_counter()
        if options.simulate is None:
            names = write_census(options.data, folder, options.times)
            features, groups, target = ACS, '["SEX", "RAC1P"]', "PINCP"
        else:
            names = write_simulated(folder, options.simulate, options.sites)
            features, groups, target = SIMULATED, '["group"]', "ill"
        size = sum(path.stat().st_size for path in folder.iterdir()) / 2**20
        print(f"{len(names)} files, {size:,.0f} MB, {time.perf_counter() - start:.0f} s")
        config = CONFIG.format(
            target=target,
            sites="\n".join(f'{name} = "{name}.parquet"' for name in names),
            groups=groups,
            pairs=options.pairs,
            features="\n".join(f'[features.{n}]\nkind = "{kind}"' for n, kind in features.items()),
        )
        path = folder / "fedminmax.toml"
        path.write_text(config)
        with sampled_memory() as most:
            measure(read_config(path), folder / "run", most)


def write_census(data: Path, folder: Path, times: int) -> list[str]:
    """Write the states' records, repeated."""
    files = sorted((data / "acs").glob("*.csv.gz"))
    for path in files:
        frame = pl.read_csv(gzip.decompress(path.read_bytes()))
        pl.concat([frame] * times).write_parquet(folder / f"{path.name[:2]}.parquet")
    return [path.name[:2] for path in files]


def write_simulated(folder: Path, records: int, sites: int) -> list[str]:
    """Write records whose target depends on curved numbers and on codes, also by group."""
    names = [f"site{number}" for number in range(sites)]
    for number, name in enumerate(names):
        count = records * (number + 1) // sites - records * number // sites
        parts = [folder / f"{name}.{part}.part" for part in range(-(-count // BLOCK))]
        for part, path in enumerate(parts):
            size = min(BLOCK, count - part * BLOCK)
            _simulated(np.random.default_rng([number, part]), size).write_parquet(path)
        pl.scan_parquet(parts).sink_parquet(folder / f"{name}.parquet")
        for path in parts:
            path.unlink()
    return names


def _simulated(draw: np.random.Generator, size: int) -> pl.DataFrame:
    numbers = draw.normal(size=(size, 5)).round(2)
    codes = (draw.random((size, 3)) ** 2 * (10, 100, 500)).astype(np.int64)
    group = (draw.random(size) ** 3 * 6).astype(np.int64)
    score = np.sin(2 * numbers[:, 0]) + numbers[:, 1] * (group > 2) + 0.3 * numbers[:, 2] ** 2
    score += np.cos(codes).sum(axis=1) - 0.5 * group
    return pl.DataFrame(
        {
            **{f"number_{n}": numbers[:, n].astype(np.float32) for n in range(5)},
            **{f"code_{n}": codes[:, n].astype(np.int16) for n in range(3)},
            "group": group.astype(np.int8),
            "ill": draw.random(size) < 1 / (1 + np.exp(-score)),
        }
    )


@contextmanager
def sampled_memory() -> Iterator[list[float]]:
    """Sample the pages of this process that are not in files; the list has the most, in GB."""
    most, done = [0.0], threading.Event()

    def sample() -> None:
        while not done.wait(0.05):
            for line in Path("/proc/self/status").read_text().splitlines():
                if line.startswith("RssAnon:"):
                    most[0] = max(most[0], int(line.split()[1]) / 2**20)

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield most
    finally:
        done.set()
        thread.join()


def measure(config: TableConfig, folder: Path, most: list[float]) -> None:
    """Train as `fedminmax train` does, and print what each part takes."""
    start, processors = time.perf_counter(), time.process_time()

    def say(what: str) -> None:
        print(
            f"{what}: {time.perf_counter() - start:.1f} s, {time.process_time() - processors:.1f} "
            f"s of the processors, {most[0]:.2f} GB, with files {peak_bytes() / 2**30:.2f} GB",
            flush=True,
        )

    training = open_training(config, folder)
    records = sum(len(part.examples) for part in training.tables.train)
    fit = training.tables.encoding.plain_fit
    say(f"{records:,} training records, {fit.rounds if fit else 0} rounds before the method's")
    for _ in training_rounds(training):
        pass
    (results,) = training.results
    say(f"{results.method.rounds} rounds, gap {results.gap_left}, measured")


if __name__ == "__main__":
    main()
