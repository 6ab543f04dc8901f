"""What a round over the network costs besides the sites' work, on this machine's loopback.

Run: python -m benchmarks.network_rounds --sites 3 10

Sums are not masked; what masks cost is in ``masked_rounds``.

Each line is the median over the rounds after the first: the round's seconds, those of the slowest
site's work, their difference (messages, checks, checkpoint) and the bytes per site and direction
as a multiple of the parameters ("fast" is fedminmax-fast on the logistic model, which returns
gradients and curvature by group). All processes share this machine's cores.
"""

import argparse
import statistics
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from fedminmax.cli.main import main as fedminmax
from fedminmax.config.planned_runs import PlannedRun
from fedminmax.config.read import TableConfig, read_config
from fedminmax.config.sections import ModelSection
from fedminmax.data.adult import TRAIN, packed_folder, parse_rows, read_packed
from fedminmax.network.flare.local import LocalFederation, local_federation
from fedminmax.network.server.log import LiveRound, run_folder
from fedminmax.network.server.run import read_members
from fedminmax.network.site.settings import SiteSettings
from fedminmax.network.wire.plan import NetworkPlan

MODELS = {
    "logistic": ("fedminmax", ModelSection("logistic", (), "brier"), 30_000, 50),
    "fast": ("fedminmax-fast", ModelSection("logistic", (), "brier"), 30_000, 15),
    "mlp": ("fedminmax", ModelSection("mlp", (512, 512, 512, 512), "brier"), 1_000, 15),
}
BYTES_PER_PARAMETER = 4


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure every model with every number of sites."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sites", type=int, nargs="+", default=[3, 10])
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    options = parser.parse_args(arguments)
    print("sites model      rounds  round s  slowest s  overhead s  out x  in x")
    for sites in options.sites:
        for name in options.models:
            with tempfile.TemporaryDirectory() as folder:
                measure(Path(folder), sites, name)


def measure(folder: Path, sites: int, name: str) -> None:
    """Run a federation on Adult and print its line."""
    method, model, rows, rounds = MODELS[name]
    names = [f"site-{number}" for number in range(1, sites + 1)]
    config = write_tables(folder, names, rows)
    run = PlannedRun(method, {}, rounds)
    plan = NetworkPlan(
        "bench",
        tuple(names),
        schema=config.schema,
        model=model,
        runs=(run,),
        held_out=0.0,
        seed=0,
        format=config.format,
    )
    tables = {site: SiteSettings(folder / f"{site}.csv") for site in names}
    with local_federation(folder / "kits", tables) as federation:
        report(federation, plan, name)


def report(federation: LocalFederation, plan: NetworkPlan, name: str) -> None:
    """Run the plan and print the medians of its rounds."""
    events = list(federation.run(plan))
    records = [event.round for event in events if isinstance(event, LiveRound)]
    rounds = records[1:]
    seconds = [after.seconds - before.seconds for before, after in pairwise(records)]
    members = read_members(run_folder(federation.results(plan), plan, 0))
    size = members.shape[1] * BYTES_PER_PARAMETER
    overhead = [
        own - entry.sites.slowest_seconds for own, entry in zip(seconds, rounds, strict=True)
    ]
    print(
        f"{len(plan.sites):5d} {name:10s} {len(rounds):6d} "
        f"{statistics.median(seconds):8.3f} "
        f"{statistics.median(entry.sites.slowest_seconds for entry in rounds):10.3f} "
        f"{statistics.median(overhead):11.3f} "
        f"{max(entry.sites.bytes_out for entry in rounds) / size:6.3f} "
        f"{max(entry.sites.bytes_in for entry in rounds) / size:5.3f}",
        flush=True,
    )


def write_tables(folder: Path, sites: Sequence[str], rows: int) -> TableConfig:
    """Distribute Adult's first rows to the sites, as files with a configuration."""
    columns = parse_rows(read_packed(packed_folder(), TRAIN))
    table = np.stack([column[:rows] for column in columns.values()], axis=1)
    for number, site in enumerate(sites):
        lines = [",".join(row) for row in table[number :: len(sites)].tolist()]
        text = "\n".join([",".join(columns), *lines]) + "\n"
        (folder / f"{site}.csv").write_text(text, encoding="utf-8")
    path = folder / "fedminmax.toml"
    files = [folder / f"{site}.csv" for site in sites]
    names = [*map(str, files), "--target", "income", "--groups", "sex", "--out", str(path)]
    if fedminmax(["init", *names]):
        raise RuntimeError("no configuration was written")
    return read_config(path)


if __name__ == "__main__":
    main()
