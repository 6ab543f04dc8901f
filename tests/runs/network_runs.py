"""The same configuration as a run between sites, and as `fedminmax train` runs it."""

from dataclasses import dataclass
from pathlib import Path

from fedminmax.config.read import TableConfig
from fedminmax.network.server.run import run_plan
from fedminmax.network.wire.plan import NetworkPlan
from fedminmax.network.wire.site_rules import SiteRules
from fedminmax.runs.federation import NETWORK_FOLDER, FederationRun, open_federation_run, plan_of
from fedminmax.runs.network import collect_network_run
from tests.cli.command import run_here
from tests.network.network_problem import AT_ONCE, SITES, DirectTransport


@dataclass(frozen=True)
class NetworkRun:
    """A run folder, what it was collected from, and how it was planned."""

    folder: Path
    fetched: Path
    plan: NetworkPlan
    config: TableConfig

    def collect(self) -> None:
        """Write the run folder."""
        collect_network_run(self.fetched, self.plan, self.config, self.folder)


def run_between_sites(
    config: Path,
    folder: Path,
    transport: DirectTransport | None = None,
    site_rules: SiteRules = AT_ONCE,
) -> NetworkRun:
    """Do all but the collecting, with sites in this process."""
    record = FederationRun("", config, kit=None, sites=SITES, site_rules=site_rules)
    record = open_federation_run(folder, record)
    content = record.read_config()
    plan, fetched = plan_of(record, content), folder / NETWORK_FOLDER / "results"
    outcome = run_plan(plan, transport or DirectTransport(config.parent), fetched)
    assert outcome.error is None
    return NetworkRun(folder, fetched, plan, content)


def run_both_ways(config: Path) -> tuple[Path, Path]:
    """Return the folders of the run between sites and of the one in this process."""
    apart, together = config.parent / "apart", config.parent / "together"
    run_between_sites(config, apart).collect()
    run_here("train", config, "--out", together)
    return apart, together
