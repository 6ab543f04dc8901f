"""What masks cost in a round over the network: the same federation, masked and unmasked in turns.

Run: python -m benchmarks.masked_rounds --sites 3 10 [--models logistic mlp] [--repeats 3]

Each line has medians over the rounds of all repeats: the seconds of a round, unmasked and masked,
and the difference; the processor's seconds per round of all processes of server and sites together,
which depend less on what else the machine does; and the bytes per site and direction. The models
are those of ``network_rounds``; all processes share this machine's cores and its disk, so that the
work of ten sites, which takes place at the same time elsewhere, is done one after the other here.
"""

import argparse
import statistics
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path

import psutil

from benchmarks.network_rounds import MODELS, write_tables
from fedminmax.config.planned_runs import PlannedRun
from fedminmax.network.flare.local import LocalFederation, local_federation
from fedminmax.network.server.log import LiveRound, run_folder
from fedminmax.network.site.settings import SiteSettings
from fedminmax.network.wire.plan import NetworkPlan, SecureAggregation
from fedminmax.training.round_record import ROUNDS_FILE

ROUNDS = {"logistic": 100, "fast": 15, "mlp": 15}
SECONDS_BETWEEN_SAMPLES = 0.2


@dataclass(frozen=True)
class Cost:
    """What a round took: seconds by the clock and of the processors, and bytes per site."""

    seconds: float
    processor: float
    _: KW_ONLY
    bytes_out: int
    bytes_in: int


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure every model with every number of sites."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sites", type=int, nargs="+", default=[3, 10])
    parser.add_argument("--models", nargs="+", default=["logistic", "mlp"], choices=list(MODELS))
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args(arguments)
    lines = [
        measure(sites, name, options.repeats) for sites in options.sites for name in options.models
    ]
    print("sites model    |  round s  masked   more |  cpu s  masked   more | out B  masked | in B")
    print("\n".join(lines))


def measure(sites: int, name: str, repeats: int) -> str:
    """Run a federation on Adult, with and without masks in turns, and return its line."""
    method, model, rows, _ = MODELS[name]
    names = [f"site-{number}" for number in range(1, sites + 1)]
    costs: dict[bool, list[Cost]] = {False: [], True: []}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        config = write_tables(folder, names, rows)
        plan = NetworkPlan(
            "bench",
            tuple(names),
            schema=config.schema,
            model=model,
            runs=(PlannedRun(method, {}, ROUNDS[name]),),
            held_out=0.0,
            seed=0,
            format=config.format,
        )
        tables = {site: SiteSettings(folder / f"{site}.csv") for site in names}
        masks = SecureAggregation(sites)
        with local_federation(folder / "kits", tables) as federation:
            for repeat in range(repeats):
                for masked in (False, True):
                    run = f"bench-{repeat}-{'masked' if masked else 'plain'}"
                    own = replace(plan, run=run, secure_aggregation=masks if masked else None)
                    costs[masked].append(cost_of(federation, own))
    plain, masked_costs = costs[False], costs[True]
    pairs = list(zip(plain, masked_costs, strict=True))
    seconds, cpu = ([getattr(own, field) for own in plain] for field in ("seconds", "processor"))
    return (
        f"{sites:5d} {name:8s} |"
        f" {statistics.median(seconds):8.3f}"
        f" {statistics.median(own.seconds for own in masked_costs):7.3f}"
        f" {statistics.median(two.seconds - one.seconds for one, two in pairs):6.3f} |"
        f" {statistics.median(cpu):6.3f}"
        f" {statistics.median(own.processor for own in masked_costs):7.3f}"
        f" {statistics.median(two.processor - one.processor for one, two in pairs):6.3f} |"
        f" {plain[0].bytes_out} {masked_costs[0].bytes_out} |"
        f" {plain[0].bytes_in} {masked_costs[0].bytes_in}"
    )


def cost_of(federation: LocalFederation, plan: NetworkPlan) -> Cost:
    """Run a plan and return the medians of its rounds after the first."""
    log = run_folder(federation.results(plan), plan, 0) / ROUNDS_FILE
    samples: list[tuple[int, float]] = []
    done = threading.Event()
    sampler = threading.Thread(target=_sample, args=(federation, log, samples, done))
    sampler.start()
    try:
        rounds = [own.round for own in federation.run(plan) if isinstance(own, LiveRound)][1:]
    finally:
        done.set()
        sampler.join()
    # After the last round processes of the job end, and their times with them.
    (first, before), *_, (last, after) = [
        own for own in samples if 2 <= own[0] < plan.runs[0].rounds
    ]
    return Cost(
        statistics.median(entry.seconds for entry in rounds),
        (after - before) / (last - first),
        bytes_out=max(entry.sites.bytes_out for entry in rounds),
        bytes_in=max(entry.sites.bytes_in for entry in rounds),
    )


def _sample(
    federation: LocalFederation, log: Path, samples: list[tuple[int, float]], done: threading.Event
) -> None:
    """Note again and again how many rounds there were, and what the processors did for them."""
    while not done.wait(SECONDS_BETWEEN_SAMPLES):
        rounds = log.read_bytes().count(b"\n") if log.exists() else 0
        samples.append((rounds, _processor_seconds(federation)))


def _processor_seconds(federation: LocalFederation) -> float:
    total = 0.0
    for process in federation.processes.values():
        for own in (process, *process.children(recursive=True)):
            try:
                times = own.cpu_times()
            except psutil.NoSuchProcess:
                continue
            total += times.user + times.system
    return total


if __name__ == "__main__":
    main()
