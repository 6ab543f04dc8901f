"""Three sites with small tables: as files, as a plan, and as the simulation of the same run."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from fedminmax.config.planned_runs import PlannedRun
from fedminmax.config.read import TableConfig, read_config
from fedminmax.data.tables.load import load_federated_tables
from fedminmax.network.site.settings import SiteSettings
from fedminmax.network.site.site import Site, read_call
from fedminmax.network.wire.calls import NO_LIMITS, Answer, Endpoint
from fedminmax.network.wire.codec import RefusedError
from fedminmax.network.wire.plan import NetworkPlan, Precision, task_of
from fedminmax.network.wire.site_rules import MINIMUM_SITES, SiteRules
from fedminmax.training.simulation import Simulation
from fedminmax.training.train import Round, train

SITES = ("north", "south", "west")
ROWS = {"north": 60, "south": 45, "west": 30}
# West has men alone: the group of women lives at two sites.
WOMEN = {"north": 0.5, "south": 0.5, "west": 0.0}
# A test never waits: too few replies end the run.
AT_ONCE = SiteRules(round_timeout=0.0)
CONFIG = """
[data]
target = "ill"
classes = ["no", "yes"]
held_out = 0.2
seed = 3
[data.sites]
north = "north.csv"
south = "south.csv"
west = "west.csv"
[groups]
columns = ["sex"]
minimum_size = 0
[features.age]
kind = "numeric"
[features.ward]
kind = "category"
categories = ["a", "b", "c"]
[model]
kind = "logistic"
[method]
name = "fedminmax"
rounds = 3
learning_rate = 0.3
baseline = "none"
"""


def write_tables(folder: Path, women: Mapping[str, float] = WOMEN, rows_as: int = 1) -> Path:
    """Write each site's table and the configuration; return the configuration's path.

    ``women`` is their share at each site; tables are ``rows_as`` times as short as ``ROWS`` says.
    """
    for place, site in enumerate(SITES):
        rows = ROWS[site] // rows_as
        generator = np.random.default_rng(place)
        age = generator.normal(40 + 10 * place, 12, rows).round(1)
        female = generator.random(rows) < women[site]
        ill = generator.random(rows) < 1 / (1 + np.exp(-(age - 45) / 8 + female))
        ward = generator.choice(["a", "b", "c"], rows)
        lines = [
            f"{a},{'Female' if w else 'Male'},{d},{'yes' if i else 'no'}"
            for a, w, d, i in zip(age, female, ward, ill, strict=True)
        ]
        text = "\n".join(["age,sex,ward,ill", *lines]) + "\n"
        (folder / f"{site}.csv").write_text(text, encoding="utf-8")
    path = folder / "fedminmax.toml"
    path.write_text(CONFIG, encoding="utf-8")
    return path


def plan_of(
    config: TableConfig, runs: Sequence[PlannedRun], site_rules: SiteRules = AT_ONCE
) -> NetworkPlan:
    """The same job for the network, in double precision."""
    return NetworkPlan(
        run="test",
        sites=SITES,
        schema=config.schema,
        model=config.model,
        runs=tuple(runs),
        held_out=config.held_out,
        seed=config.seed,
        format=config.format,
        precision=Precision.FLOAT64,
        site_rules=site_rules,
    )


def simulated_federation(folder: Path, plan: NetworkPlan, *, fused: bool) -> Simulation:
    """The same sites in one process."""
    tables = load_federated_tables(read_config(folder / "fedminmax.toml"))
    task = task_of(plan, tables.encoding)
    return Simulation(
        task.model,
        task.loss,
        [(part.examples.x, part.examples.y, part.examples.group) for part in tables.train],
        group_names=tables.group_names,
        ridge=task.ridge,
        fused=fused,
        validation=[
            (part.examples.x, part.examples.y, part.examples.group) for part in tables.validation
        ],
        minimum_group=plan.schema.minimum_included,
    )


def simulate(folder: Path, plan: NetworkPlan, run: int, *, fused: bool) -> Iterator[Round[Any]]:
    """The rounds of the same run in the simulation."""
    planned = plan.runs[run]
    return train(
        simulated_federation(folder, plan, fused=fused),
        planned.build(),
        rounds=planned.rounds,
        seed=plan.seed,
        participation=planned.participation,
        patience=planned.patience,
    )


def simulated_members(folder: Path, plan: NetworkPlan, run: int, *, fused: bool) -> Tensor:
    """The models that the simulation ends with."""
    *_, last = simulate(folder, plan, run, fused=fused)
    return last.members


class DirectTransport:
    """Calls sites in this process; ``spoil`` may change what one of them answers."""

    def __init__(self, folder: Path, minimum_sites: int = MINIMUM_SITES) -> None:
        self.sites = {
            name: Site(
                name,
                SiteSettings(folder / f"{name}.csv", minimum_sites=minimum_sites),
                folder / f"{name}-kept",
                SITES,
            )
            for name in SITES
        }
        self.calls: list[tuple[str, tuple[str, ...]]] = []

    def __call__(
        self,
        sites: Sequence[str],
        endpoint: Endpoint,
        payload: Mapping[str, object],
        seconds: Mapping[str, float] = NO_LIMITS,  # noqa: ARG002 - nobody takes long here
    ) -> Iterator[Answer]:
        self.calls.append((endpoint, tuple(sites)))
        for site in sites:
            try:
                yield Answer(site, self.answer(site, endpoint, payload))
            except RefusedError as error:
                yield Answer(site, failure=str(error))
            except TimeoutError:
                yield Answer(site, failure=f"{site} did not answer in time", late=True)

    def answer(self, site: str, endpoint: str, payload: Mapping[str, object]) -> object:
        """One site's answer."""
        if endpoint == Endpoint.PRESENT:
            return b""
        call = read_call(Endpoint(endpoint), payload)
        if call.fault is not None:
            raise call.fault
        return getattr(self.sites[site], endpoint)(**call.arguments)
