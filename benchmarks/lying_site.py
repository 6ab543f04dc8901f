"""The effect of one lying site among four on a run, and a check that no honest site is refused.

Run: python -m benchmarks.lying_site            every lie, 300 rounds of FedMinMax or 40 of
                                                FedMinMaxFast, logistic model
     python -m benchmarks.lying_site --honest   every method with honest sites, mixed and single

Sites and server are in one process, with the real messages and the real checks. Each lie is a line:
in how many rounds the liar was refused, and the risk of the worst group at the end, over the true
rows of all sites.
"""

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load
from torch import Tensor

from fedminmax.config.planned_runs import PlannedRun
from fedminmax.config.read import TableConfig, read_config
from fedminmax.core.errors import InputError
from fedminmax.core.messages import Sums
from fedminmax.core.workspace import model_with
from fedminmax.data.tables.load import load_federated_tables
from fedminmax.methods.catalogue import CARDS
from fedminmax.network.server.agree import agree
from fedminmax.network.server.remote import RemoteFederation, TooFewSitesError
from fedminmax.network.server.sites import PlainSites
from fedminmax.network.site.settings import SiteSettings
from fedminmax.network.site.site import Site
from fedminmax.network.wire.calls import NO_LIMITS, Answer
from fedminmax.network.wire.codec import RefusedError
from fedminmax.network.wire.messages import (
    sections_to_bytes,
    sums_from_bytes,
    sums_to_bytes,
)
from fedminmax.network.wire.plan import NetworkPlan, Precision, task_of
from fedminmax.network.wire.site_rules import SiteRules
from fedminmax.training.simulation import Simulation
from fedminmax.training.train import train

SITES = ("north", "south", "east", "west")
LIAR = "west"
ROWS, FEATURES = 400, 6
GROUPS = ("most", "some", "few")
# Labels of the smallest group are the noisiest.
SHARES, NOISE = (0.6, 0.3, 0.1), (1.0, 1.5, 2.5)
MIXED = dict.fromkeys(SITES, SHARES)
SINGLE = {"north": (1, 0, 0), "south": (0, 1, 0), "east": (0, 0, 1), "west": (1, 0, 0)}
# Groups are numbered by alphabet.
SMALL_GROUP = sorted(GROUPS).index("few")
CONFIG = """
[data]
target = "ill"
classes = ["no", "yes"]
held_out = 0.2
[data.sites]
{sites}
[groups]
columns = ["group"]
minimum_size = 0
{features}
[model]
kind = "logistic"
loss = "brier"
[method]
rounds = 1
"""
Change = Callable[[Sums], Sums]
SLOW = PlannedRun("fedminmax", {"learning_rate": "safe"}, 300)
FAST = PlannedRun("fedminmax-fast", {}, 40)


@dataclass(frozen=True)
class Lie:
    """What the liar changes: its replies, its summary, its curvature or its table."""

    name: str
    reply: Change | None = None
    summary: Callable[[dict[str, Any]], None] | None = None
    curvature: float = 1.0
    flips_labels: bool = False
    run: PlannedRun = SLOW


def small_loss(change: Callable[[Tensor, Tensor], Tensor]) -> Change:
    """Change the loss sum of the small group; the second argument is its number of rows."""

    def spoil(reply: Sums) -> Sums:
        loss = reply.group_loss.clone()
        loss[SMALL_GROUP] = change(loss[SMALL_GROUP], reply.group_count[SMALL_GROUP])
        return replace(reply, group_loss=loss)

    return spoil


def times(factor: float) -> Change:
    """Scale the step, or reverse it."""
    return lambda reply: replace(reply, step=reply.step * factor)


def rows_times(factor: int) -> Callable[[dict[str, Any]], None]:
    """Report every row ``factor`` times."""

    def change(content: dict[str, Any]) -> None:
        content["rows"] *= factor
        for sums in content["quantities"].values():
            sums[0] *= factor
            for place in (1, 2):
                digits, exponent = sums[place].split("/")
                sums[place] = f"{int(digits, 16) * factor:x}/{exponent}"
        for stratum in content["strata"]:
            stratum[2] *= factor

    return change


def invent_a_group(content: dict[str, Any]) -> None:
    """Report one of the rows as of a group that no site has."""
    content["strata"][0][2] -= 1
    content["strata"].append([["invented"], 0, 1])


LIES = (
    Lie("none"),
    Lie("scale 1e300", lambda r: replace(r, scale=1e300)),
    Lie("scale 0", lambda r: replace(r, scale=0.0)),
    Lie("step x -1e6, scale x 1e6", lambda r: replace(r, step=r.step * -1e6, scale=r.scale * 1e6)),
    Lie("small group's loss 1e9", small_loss(lambda loss, _: loss * 0 + 1e9)),
    Lie("small group's loss x 10", small_loss(lambda loss, _: loss * 10)),
    Lie("small group's loss negative", small_loss(lambda loss, _: -loss)),
    Lie("half of its counts", lambda r: replace(r, group_count=r.group_count // 2)),
    Lie("curvature 1e300", lambda r: replace(r, curvature=1e300)),
    Lie("2^62 gradient evaluations", lambda r: replace(r, gradient_evaluations=2**62)),
    Lie("step x -999", times(-999)),
    Lie("step x -100", times(-100)),
    Lie("curvature for the learning rate x 1e6", curvature=1e6),
    Lie("10^10 times its rows", summary=rows_times(10**10)),
    Lie("invented group of one row", summary=invent_a_group),
    Lie("step x -10", times(-10)),
    Lie("step x -3", times(-3)),
    Lie("step x -1", times(-1)),
    Lie("small group's loss at its limit", small_loss(lambda _, rows: 2.0 * rows.double())),
    Lie("small group's loss 0", small_loss(lambda loss, _: loss * 0)),
    Lie("all labels flipped in its table", flips_labels=True),
    Lie("fast: none", run=FAST),
    Lie("fast: curvature x -1", lambda r: replace(r, statistics=-r.statistics), run=FAST),
    Lie("fast: curvature x 1e6", lambda r: replace(r, statistics=r.statistics * 1e6), run=FAST),
    Lie("fast: curvature + 1e9", lambda r: replace(r, statistics=r.statistics + 1e9), run=FAST),
    Lie("fast: curvature 0", lambda r: replace(r, statistics=r.statistics * 0), run=FAST),
    Lie("fast: gradients x -100", times(-100), run=FAST),
    Lie("fast: gradients x -1", times(-1), run=FAST),
    Lie("fast: small group's loss 0", small_loss(lambda loss, _: loss * 0), run=FAST),
    Lie("fast: all labels flipped in its table", flips_labels=True, run=FAST),
)


class LyingTransport:
    """Calls the sites in this process; one of them lies."""

    def __init__(self, folder: Path, lie: Lie) -> None:
        self._lie = lie
        self._sites = {
            name: Site(name, SiteSettings(folder / f"{name}.csv"), folder / f"{name}-kept", SITES)
            for name in SITES
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
                message = getattr(self._sites[site], endpoint)(**payload)
            except RefusedError as error:
                yield Answer(site, failure=str(error))
            else:
                yield Answer(site, self._changed(endpoint, message) if site == LIAR else message)

    def _changed(self, endpoint: str, message: bytes) -> bytes:
        lie, groups = self._lie, len(SHARES)
        if endpoint == "answer" and lie.reply is not None:
            like = torch.zeros(2 * (FEATURES + 1), dtype=torch.float64)
            reply, seconds = sums_from_bytes(message, like, groups=groups, limit=2**20, sender=LIAR)
            return sums_to_bytes(lie.reply(reply), seconds)
        if endpoint == "prepare" and lie.summary is not None:
            content = json.loads(message)
            lie.summary(content)
            return json.dumps(content).encode()
        if endpoint == "curvature":
            like = torch.zeros(groups * (FEATURES + 1), dtype=torch.float64)
            sums = lie.curvature * load(message)["sums"]
            return sections_to_bytes({"sums": sums}, 0.0)
        return message


def write_tables(
    folder: Path, shares: Mapping[str, Sequence[float]], *, flips_labels: bool, rows: int = ROWS
) -> TableConfig:
    """Write four tables; the label depends on the group's own direction, and on noise."""
    generator = np.random.default_rng(7)
    directions = generator.normal(size=(len(SHARES), FEATURES))
    names = [f"x{place}" for place in range(FEATURES)]
    for site in SITES:
        group = generator.choice(len(SHARES), rows, p=shares[site])
        x = generator.normal(size=(rows, FEATURES))
        score = (x * (directions[group] + directions[0])).sum(axis=1)
        ill = score + np.array(NOISE)[group] * generator.logistic(size=rows) > 0
        if flips_labels and site == LIAR:
            ill = ~ill
        lines = [
            ",".join([*(f"{value:.4f}" for value in own), GROUPS[g], "yes" if sick else "no"])
            for own, g, sick in zip(x, group.tolist(), ill.tolist(), strict=True)
        ]
        text = "\n".join([",".join([*names, "group", "ill"]), *lines]) + "\n"
        (folder / f"{site}.csv").write_text(text, encoding="utf-8")
    sites = "\n".join(f'{site} = "{site}.csv"' for site in SITES)
    features = "\n".join(f'[features.{name}]\nkind = "numeric"' for name in names)
    path = folder / "fedminmax.toml"
    path.write_text(CONFIG.format(sites=sites, features=features), encoding="utf-8")
    return read_config(path)


def plan_for(config: TableConfig, run: PlannedRun) -> NetworkPlan:
    """Return the plan of one run in double precision, without waiting times."""
    return NetworkPlan(
        run="lie",
        sites=SITES,
        schema=config.schema,
        model=config.model,
        runs=(run,),
        held_out=config.held_out,
        seed=config.seed,
        format=config.format,
        precision=Precision.FLOAT64,
        site_rules=SiteRules(round_timeout=0.0),
    )


def try_lie(lie: Lie, truth: TableConfig) -> str:
    """Return the result of a run with this lie, as a line of a table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = write_tables(folder, MIXED, flips_labels=lie.flips_labels)
        plan, rounds = plan_for(config, lie.run), lie.run.rounds
        sites = PlainSites(plan, LyingTransport(folder, lie))
        try:
            agreement = agree(plan, sites, folder)
            federation = RemoteFederation(agreement, sites, 0, folder / "notice")
            method, refused, answer = agreement.plan.runs[0].build(), 0, torch.zeros(0)
            for done in train(federation, method, rounds=rounds, seed=plan.seed):
                refused += LIAR in federation.take_notes().refused
                answer = done.members[0]
        except (InputError, TooFewSitesError) as stopped:
            return f"| {lie.name} | stopped: {stopped} | |"
        worst = worst_risk(answer, truth, agreement.plan)
    when = "before the first" if LIAR in agreement.refused else f"{refused} of {rounds}"
    return f"| {lie.name} | {when} | {worst:.3f} |"


def worst_risk(answer: Tensor, truth: TableConfig, plan: NetworkPlan) -> float:
    """Return the highest risk of a group over the true training rows of all sites."""
    tables = load_federated_tables(truth)
    task = task_of(plan, tables.encoding)
    model = model_with(task, answer)
    x, y, group = (
        torch.cat([getattr(part.examples, name) for part in tables.train])
        for name in ("x", "y", "group")
    )
    with torch.no_grad():
        losses = task.loss(model(x.double()), y)
    return max(float(losses[group == number].mean()) for number in range(len(SHARES)))


def try_honest(key: str, sites: Mapping[str, Sequence[float]], rounds: int) -> str:
    """Return how many honest replies were refused, and the difference to the simulation."""
    card = CARDS[key]
    options = {"epochs": "2"} if "epochs" in card.option_types else {}
    if "learning_rate" in card.option_types and card.build({}).learning_rate is None:
        # Then the curvature behind the rate limits steps, too.
        options["learning_rate"] = "safe"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = write_tables(folder, sites, flips_labels=False, rows=40)
        plan = plan_for(config, PlannedRun(key, options, rounds))
        asked = PlainSites(plan, LyingTransport(folder, LIES[0]))
        agreement = agree(plan, asked, folder)
        federation = RemoteFederation(agreement, asked, 0, folder / "notice")
        refused, answer = 0, torch.zeros(0)
        method = agreement.plan.runs[0].build()
        for done in train(federation, method, rounds=rounds, seed=plan.seed):
            refused += len(federation.take_notes().refused)
            answer = done.members
        task, parts = agreement.task, load_federated_tables(config).train
        rows = [(part.examples.x, part.examples.y, part.examples.group) for part in parts]
        simulation = Simulation(
            task.model, task.loss, rows, ridge=task.ridge, fused=False, minimum_group=0
        )
        *_, last = train(simulation, method, rounds=rounds, seed=plan.seed)
    difference = float((answer - last.members).abs().max())
    return f"| {key} | {refused} of {rounds * len(SITES):,} | {difference:.1g} |"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=300, help="of honest runs (300)")
    parser.add_argument("--honest", action="store_true", help="every method, no lie")
    parser.add_argument("--only", nargs="+", default=[], help="lies or methods that contain these")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)

    def wanted(name: str) -> bool:
        return not options.only or any(part in name for part in options.only)

    if options.honest:
        for title, sites in (("mixed", MIXED), ("single-group", SINGLE)):
            print(f"| {title} sites | replies refused | largest difference to the simulation |")
            for key in filter(wanted, CARDS):
                print(try_honest(key, sites, options.rounds), flush=True)
        return
    print("| lie | rounds in which it is refused | worst group's risk |", flush=True)
    with tempfile.TemporaryDirectory() as name:
        truth = write_tables(Path(name), MIXED, flips_labels=False)
        for lie in LIES:
            if wanted(lie.name):
                print(try_lie(lie, truth), flush=True)


if __name__ == "__main__":
    main()
