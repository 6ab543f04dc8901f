"""A federation of real processes that has run some methods: what several files look at."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fedminmax.config.planned_runs import PlannedRun
from fedminmax.config.read import read_config
from fedminmax.network.flare.kits import ONE_PERSON
from fedminmax.network.flare.local import LocalFederation, local_federation
from fedminmax.network.server.log import LiveRound, run_folder
from fedminmax.network.site.settings import SiteSettings
from fedminmax.network.wire.plan import NetworkPlan
from tests.network.network_problem import SITES, plan_of, write_tables

ROUNDS = 3
MEMBER = "member@fedminmax.org"


@dataclass(frozen=True, eq=False)
class TrainedFederation:
    """A running federation, the plan that it has finished, and what was seen of it meanwhile."""

    folder: Path
    federation: LocalFederation
    plan: NetworkPlan
    seen: list[LiveRound]

    def run_folder(self, number: int) -> Path:
        """Where the server keeps one of the plan's runs."""
        return run_folder(self.federation.results(self.plan), self.plan, number)

    @property
    def port(self) -> int:
        """The server's port."""
        path = self.federation.kits.server / "startup" / "fed_server.json"
        target: str = json.loads(path.read_text())["servers"][0]["service"]["target"]
        return int(target.split(":")[1])


@contextmanager
def trained_federation(folder: Path, keys: Sequence[str]) -> Iterator[TrainedFederation]:
    """Start a federation and let it run these methods; nothing of it is alive after the block."""
    config = read_config(write_tables(folder))
    plan = plan_of(config, [PlannedRun(key, {}, ROUNDS) for key in keys])
    tables = {site: SiteSettings(folder / f"{site}.csv") for site in SITES}
    people = ONE_PERSON | {MEMBER: "member"}
    with local_federation(folder / "kits", tables, people) as federation:
        seen = [event for event in federation.run(plan) if isinstance(event, LiveRound)]
        yield TrainedFederation(folder, federation, plan, seen)
        families = [
            member
            for process in federation.processes.values()
            for member in (process, *process.children(recursive=True))
        ]
    assert not any(member.is_running() for member in families)
