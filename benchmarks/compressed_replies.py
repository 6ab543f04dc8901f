"""What ``--compress`` does to a run: bytes of a reply, and the worst group's risk.

Run: python -m benchmarks.compressed_replies

Adult (30,000 rows, four sites, groups by sex), logistic model. Sites and server are in one process,
with the real messages and the real checks. The risk is that of the worst group over all training
rows, for the model at the start of the last round of FedMinMax, and for the best so far of
FedMinMaxFast.
"""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks.network_rounds import write_tables
from fedminmax.data.tables.config import ModelChoice
from fedminmax.federation.server.agreement import agree
from fedminmax.federation.server.remote import RemoteFederation
from fedminmax.federation.server.transport import NO_LIMITS, Answer
from fedminmax.federation.site.settings import SiteSettings
from fedminmax.federation.site.site import Site
from fedminmax.federation.train import train
from fedminmax.federation.wire.codec import RefusedError
from fedminmax.federation.wire.plan import NetworkPlan, PlannedRun

SITES = ("north", "south", "east", "west")
ROWS = 30_000
RUNS = (
    PlannedRun("fedminmax", {"learning_rate": "0.5"}, 300),
    PlannedRun("fedavg", {"epochs": "1"}, 20),
    PlannedRun("fedminmax-fast", {}, 15),
)
LOSSES = ("brier", "cross_entropy")


class HereTransport:
    """Calls the sites in this process."""

    def __init__(self, folder: Path, kept: Path) -> None:
        self._sites = {
            name: Site(name, SiteSettings(folder / f"{name}.csv"), kept / name) for name in SITES
        }

    def __call__(
        self,
        sites: Sequence[str],
        endpoint: str,
        payload: Mapping[str, object],
        seconds: Mapping[str, float] = NO_LIMITS,  # noqa: ARG002 - nobody takes long here
    ) -> Iterator[Answer]:
        """Ask one site after the other."""
        for site in sites:
            try:
                yield Answer(site, getattr(self._sites[site], endpoint)(**payload))
            except RefusedError as error:
                yield Answer(site, failure=str(error))


def line(folder: Path, plan: NetworkPlan) -> str:
    """Run a plan and return its line of the table."""
    with tempfile.TemporaryDirectory() as name:
        own = Path(name)
        transport = HereTransport(folder, own)
        agreement = agree(plan, transport, own)
        federation = RemoteFederation(agreement, transport, 0, own / "notice")
        run = plan.runs[0]
        refused = size = 0
        worst: list[float] = []
        for done in train(federation, run.build(), rounds=run.rounds, seed=plan.seed):
            notes = federation.take_notes()
            refused += len(notes.refused)
            size = notes.bytes_in
            worst.append(done.worst_risk)
    risk = min(worst) if run.method == "fedminmax-fast" else worst[-1]
    sent = "compressed" if plan.compress else "as it is"
    return (
        f"| {run.method} | {plan.model.loss} | {run.rounds} | {sent} | {size:,} | {risk:.7f} | "
        f"{refused} |"
    )


def main() -> None:
    """Print a table."""
    torch.set_num_threads(1)
    print("| method | loss | rounds | replies | bytes of one | worst group's risk | refused |")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = write_tables(folder, SITES, ROWS)
        for run in RUNS:
            for loss in LOSSES:
                model = ModelChoice("logistic", (), loss)
                plan = NetworkPlan(
                    "bench",
                    SITES,
                    schema=config.schema,
                    model=model,
                    runs=(run,),
                    held_out=0.0,
                    seed=0,
                    format=config.format,
                )
                for compress in (False, True):
                    print(line(folder, replace(plan, compress=compress)), flush=True)


if __name__ == "__main__":
    main()
