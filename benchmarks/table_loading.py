"""From Parquet files to the first training round: seconds and peak memory.

1,000,000 rows in 40 files of 20 columns (12 numbers with gaps, 4 categories, a boolean, a date, a
sensitive attribute, the target), written to a temporary folder. Measured in a process of its own,
imports included: `load_federated_tables`, the in-process federation, and one round of FedMinMax.
The limits are 20 seconds and 3 GB on two cores.

    python -m benchmarks.table_loading
"""

import argparse
import multiprocessing
import tempfile
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.timing import peak_bytes
from fedminmax.data.tables.config_text import config_text
from fedminmax.data.tables.propose import InitChoices, propose

NUMBERS = 12
CATEGORIES = 10
MISSING_SHARE = 0.02


@dataclass(frozen=True)
class Measured:
    """The cost of loading once."""

    import_seconds: float
    load_seconds: float
    round_seconds: float
    features: int
    peak_bytes: int


def write_sites(folder: Path, rows: int, sites: int, suffix: str) -> list[Path]:
    """Write random tables, one file per site."""
    generator = np.random.default_rng(0)
    paths = [folder / f"site_{number:02}.{suffix}" for number in range(sites)]
    for path in paths:
        frame = _random_table(generator, rows // sites)
        if suffix == "csv":
            frame.write_csv(path)
        else:
            frame.write_parquet(path)
    return paths


def _random_table(generator: np.random.Generator, rows: int) -> pl.DataFrame:
    values = np.array([f"value {letter}" for letter in "abcdefghij"[:CATEGORIES]])
    numbers = generator.standard_normal((NUMBERS, rows)) * 100
    numbers[generator.random((NUMBERS, rows)) < MISSING_SHARE] = np.nan
    columns = {
        f"number_{i}": pl.Series(column, nan_to_null=True) for i, column in enumerate(numbers)
    }
    categories = {f"category_{i}": generator.choice(values, rows) for i in range(4)}
    days = np.datetime64("2000-01-01") + generator.integers(0, 9000, rows)
    own = {
        "flag": generator.random(rows) < 0.5,
        "day": days.astype("datetime64[us]"),
        "sex": generator.choice(np.array(["Female", "Male"]), rows),
        "outcome": generator.choice(np.array(["no", "yes"]), rows),
    }
    return pl.DataFrame({**columns, **categories, **own}).with_columns(pl.col("day").cast(pl.Date))


def _measure(config: Path, answer: Connection) -> None:
    """Run in the child."""
    start = time.perf_counter()
    from fedminmax import FedMinMax, Simulation, train
    from fedminmax.config.read import read_config
    from fedminmax.data.tables.load import load_federated_tables
    from fedminmax.losses import brier_loss
    from fedminmax.models import linear

    imported = time.perf_counter()
    tables = load_federated_tables(read_config(config))
    loaded = time.perf_counter()
    width = len(tables.encoding.names)
    rows = [(part.examples.x, part.examples.y, part.examples.group) for part in tables.train]
    federation = Simulation(
        linear(width, tables.encoding.outputs), brier_loss, rows, group_names=tables.group_names
    )
    for _ in train(federation, FedMinMax(), rounds=1, seed=0):
        pass
    done = time.perf_counter()
    answer.send(Measured(imported - start, loaded - imported, done - loaded, width, peak_bytes()))


def measure(config: Path) -> Measured:
    """Load these tables in a fresh process."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_measure, args=(config, sender))
    child.start()
    sender.close()
    try:
        answer = receiver.recv()
    except EOFError as error:
        raise RuntimeError("the measured process died; see its traceback above") from error
    finally:
        child.join()
    assert isinstance(answer, Measured)
    return answer


def main() -> None:
    """Print seconds and peak memory."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.table_loading")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--sites", type=int, default=40)
    parser.add_argument("--format", choices=("parquet", "csv"), default="parquet")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = write_sites(folder, options.rows, options.sites, options.format)
        config = folder / "fedminmax.toml"
        start = time.perf_counter()
        proposal = propose(paths, "outcome", ["sex"], site_column=None, choices=InitChoices())
        config.write_text(config_text(proposal, config))
        print(f"fedminmax init: {time.perf_counter() - start:.1f} s")
        for _ in range(options.repeats):
            result = measure(config)
            total = result.import_seconds + result.load_seconds + result.round_seconds
            print(
                f"{options.rows:,} rows, {options.sites} {options.format} files, "
                f"{result.features} encoded features: imports {result.import_seconds:.1f} s, files "
                f"to tensors {result.load_seconds:.1f} s, federation and first round "
                f"{result.round_seconds:.1f} s, in all {total:.1f} s; peak "
                f"{result.peak_bytes / 1e9:.2f} GB",
                flush=True,
            )


if __name__ == "__main__":
    main()
