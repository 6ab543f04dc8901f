"""Bytes per site of a whole masked run of an additive model: a census over real processes.

    python -m benchmarks.additive_bytes --data FOLDER

The files are those of ``coded_census``: 19 states, ten groups, five categories without a list. By
default they are put together to five sites, so that a machine of two cores can run all processes;
what a site sends is a sum, whose length does not depend on how many records or other sites there
are (but for 64 bytes for each other site and question). The table has all rounds: those in which
smoothing and pairs are chosen, the method's and its baseline's.
"""

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

import polars as pl

from experiments.table_models.tables import acs
from fedminmax.config.read import read_config
from fedminmax.network.flare.local import local_federation
from fedminmax.network.server.agreement import AGREEMENT_FILE, read_agreement
from fedminmax.network.server.log import run_folder
from fedminmax.network.site.settings import SiteSettings
from fedminmax.network.wire.calls import SiteRules
from fedminmax.network.wire.plan import SecureAggregation, plan_of_config
from fedminmax.training.round_record import ROUNDS_FILE, read_rounds

MEGABYTE = 1e6


def write_sites(data: Path, folder: Path, count: int) -> list[str]:
    """Write a table for each site, and the configuration; return the sites' names."""
    problem = acs(data)
    frame = problem.frame.drop("target").with_columns(
        income=pl.Series(problem.target).replace_strict(
            {0: "low", 1: "high"}, return_dtype=pl.String
        )
    )
    states = sorted(frame["site"].unique())
    names = [f"site-{number + 1}" for number in range(count)]
    for number, name in enumerate(names):
        own = frame.filter(pl.col("site").is_in(states[number::count])).drop("site")
        own.write_csv(folder / f"{name}.csv")
    groups = ", ".join(f'"{name}"' for name in sorted(frame["group"].unique()))
    lines = ["[data]", 'target = "income"', 'classes = ["low", "high"]', "[data.sites]"]
    lines += [f'{name} = "{name}.csv"' for name in names]
    lines += ["[groups]", 'columns = ["group"]', f"values = {{ group = [{groups}] }}"]
    for column in (*problem.numbers, *problem.categories):
        kind = "numeric" if column in problem.numbers else "category"
        lines += [f"[features.{column}]", f'kind = "{kind}"']
    (folder / "fedminmax.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return names


def main() -> None:
    """Run the federation and print what a site got and sent."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with acs")
    parser.add_argument("--sites", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        names = write_sites(options.data, folder, options.sites)
        config = read_config(folder / "fedminmax.toml")
        plan = plan_of_config(config, "bytes", names, SiteRules())
        plan = replace(plan, secure_aggregation=SecureAggregation(options.sites))
        tables = {name: SiteSettings(folder / f"{name}.csv") for name in names}
        with local_federation(folder / "kits", tables) as federation:
            for _ in federation.run(plan):
                pass
            results = federation.results(plan)
            agreed = read_agreement(results / AGREEMENT_FILE)
            if agreed is None or agreed.encoding.plain_fit is None:
                raise RuntimeError("the sites did not agree on smoothing and pairs")
            lines = [("smoothing and pairs", agreed.encoding.plain_fit.rounds, agreed.class_bytes)]
            for number, run in enumerate(plan.runs):
                rounds = read_rounds(run_folder(results, plan, number) / ROUNDS_FILE)
                down = sum(entry.sites.bytes_out for entry in rounds)
                up = sum(entry.sites.bytes_in for entry in rounds)
                lines.append((run.method, len(rounds), (down, up)))
    parameters = sum(block.own.size for block in agreed.encoding.blocks)
    print(f"{parameters:,} parameters of an output, {len(agreed.encoding.pairs)} pairs")
    whole = tuple(sum(own[2][side] for own in lines) for side in (0, 1))
    for name, count, (down, up) in (*lines, ("in all", sum(own[1] for own in lines), whole)):
        print(f"{name:25}{count:4} rounds{up / MEGABYTE:9.2f} MB up{down / MEGABYTE:9.2f} MB down")


if __name__ == "__main__":
    main()
