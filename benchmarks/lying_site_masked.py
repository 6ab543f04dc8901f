"""The effect of one lying site among four if sums are masked, beside the same lies without masks.

Run: python -m benchmarks.lying_site_masked            every lie of ``lying_site``, and of FedAvg
     python -m benchmarks.lying_site_masked --only none labels

Sites and server are in one process, with real keys, messages and checks. The liar changes its
numbers after its own checks and before its masks. A masked total that cannot be true stops the run
and names nobody; then the risk is that of the last model before. Each lie is a line: what happened
without masks and with them, and the risk of the worst group over the true rows of all sites.
"""

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.lying_site import (
    GROUPS,
    LIAR,
    LIES,
    MIXED,
    SITES,
    Lie,
    LyingTransport,
    plan_for,
    times,
    worst_risk,
    write_tables,
)
from fedminmax.config.planned_runs import PlannedRun
from fedminmax.config.read import TableConfig, read_config
from fedminmax.core.errors import InputError
from fedminmax.network.flare.kits import Kits, provision
from fedminmax.network.secure.session import read_authority, read_identity
from fedminmax.network.server.agree import agree
from fedminmax.network.server.masked_sites import MaskedSites, Sites
from fedminmax.network.server.remote import RemoteFederation, TooFewSitesError
from fedminmax.network.server.sites import PlainSites
from fedminmax.network.site.sender import Asked, Credentials, MaskedSender
from fedminmax.network.site.settings import SiteSettings
from fedminmax.network.site.site import Site, read_call
from fedminmax.network.wire.calls import NO_LIMITS, Answer, Endpoint
from fedminmax.network.wire.codec import RefusedError
from fedminmax.network.wire.plan import NetworkPlan, SecureAggregation
from fedminmax.network.wire.sections import (
    Sections,
    sections_of_summary,
    sections_of_sums,
    summary_from_bytes,
    summary_to_bytes,
    sums_of,
)
from fedminmax.training.train import train

LOCAL = PlannedRun("fedavg", {"learning_rate": "0.5", "epochs": "2", "batch_size": "none"}, 100)
LOCAL_LIES = (
    Lie("fedavg: none", run=LOCAL),
    Lie("fedavg: scale x 0.001", lambda r: replace(r, scale=r.scale * 1e-3), run=LOCAL),
    Lie("fedavg: scale x 1e6", lambda r: replace(r, scale=r.scale * 1e6), run=LOCAL),
    Lie("fedavg: step x -100", times(-100), run=LOCAL),
    Lie("fedavg: step x -3", times(-3), run=LOCAL),
    Lie("fedavg: step x -1", times(-1), run=LOCAL),
)
Change = Callable[[Endpoint, Sections], Sections]


@dataclass(frozen=True, eq=False)
class Ended:
    """How a run ended: its last model, if it had a round, and what was noticed."""

    noticed: str
    answer: Tensor | None
    plan: NetworkPlan | None


class LyingSender(MaskedSender):
    """The liar's masks: what goes under them is not what was computed and checked."""

    def __init__(self, honest: MaskedSender, change: Change) -> None:
        super().__init__(honest.site, honest.agreed.plan, honest._journal)
        self._change = change

    def send(self, asked: Asked, compute: Callable[[], Sections], layout: Any) -> bytes:
        """Mask other numbers."""
        endpoint = asked.question.endpoint
        return super().send(asked, lambda: self._change(endpoint, compute()), layout)


class MaskedTransport:
    """Calls sites with keys in this process; one of them lies under its masks."""

    def __init__(self, folder: Path, kits: Kits, lie: Lie, plan: NetworkPlan) -> None:
        self._lie, self._plan = lie, plan
        self._sites = {
            name: Site(
                name,
                SiteSettings(folder / f"{name}.csv"),
                folder / f"{name}-kept",
                SITES,
                credentials=_credentials(kits.sites[name], name),
            )
            for name in SITES
        }

    def __call__(
        self,
        sites: Sequence[str],
        endpoint: Endpoint,
        payload: Mapping[str, object],
        seconds: Mapping[str, float] = NO_LIMITS,  # noqa: ARG002 - nobody takes long here
    ) -> Iterator[Answer]:
        """Ask one site after the other."""
        for site in sites:
            own = self._sites[site]
            try:
                arguments = read_call(endpoint, payload).arguments
                message = getattr(own, endpoint)(**arguments) if endpoint != "present" else b""
            except RefusedError as error:
                yield Answer(site, failure=f"{site}: {error}")
                continue
            job = own._prepared
            if (site, endpoint) == (LIAR, "prepare") and job is not None:
                honest = own._masks()
                own._prepared = replace(job, sender=LyingSender(honest, self._changed))
            yield Answer(site, message)

    def _changed(self, endpoint: Endpoint, sections: Sections) -> Sections:
        lie, schema = self._lie, self._plan.schema
        if endpoint is Endpoint.ANSWER and lie.reply is not None:
            return sections_of_sums(lie.reply(sums_of(sections)))
        if endpoint is Endpoint.CURVATURE:
            return {"sums": sections["sums"] * lie.curvature}
        job = self._sites[LIAR]._prepared
        if endpoint is Endpoint.SUMMARISE and lie.summary is not None and job is not None:
            content = json.loads(summary_to_bytes(job.summary))
            lie.summary(content)
            told = summary_from_bytes(json.dumps(content).encode(), schema, LIAR)
            return sections_of_summary(told, schema)
        return sections


def _credentials(kit: Path, name: str) -> Credentials:
    startup = kit / "startup"
    identity = read_identity(name, startup / "client.key", startup / "client.crt")
    return Credentials(identity, read_authority(startup / "rootCA.pem"))


def with_listed_groups(config: TableConfig, folder: Path) -> TableConfig:
    """Return the configuration with the groups' values listed, which masks need."""
    path = folder / "fedminmax.toml"
    listed = json.dumps(GROUPS)
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("[groups]", f"[groups]\nvalues = {{ group = {listed} }}"), "utf-8")
    return replace(read_config(path), seed=config.seed)


def run_with(lie: Lie, kits: Kits | None) -> Ended:
    """Run with this lie; with kits, sums are masked."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = write_tables(folder, MIXED, flips_labels=lie.flips_labels)
        sites: Sites
        if kits is None:
            plan = plan_for(config, lie.run)
            sites = PlainSites(plan, LyingTransport(folder, lie))
        else:
            masked = SecureAggregation(len(SITES))
            plan = plan_for(with_listed_groups(config, folder), lie.run)
            plan = replace(plan, secure_aggregation=masked)
            transport = MaskedTransport(folder, kits, lie, plan)
            sites = MaskedSites(plan, masked, transport, folder)
        answer, refused, done_rounds = None, 0, 0
        try:
            agreement = agree(plan, sites, folder)
        except (InputError, TooFewSitesError):
            return Ended("does not start", None, None)
        try:
            federation = RemoteFederation(agreement, sites, 0, folder / "notice")
            method = agreement.plan.runs[0].build()
            for done in train(federation, method, rounds=lie.run.rounds, seed=plan.seed):
                notes = federation.take_notes()
                refused += LIAR in {**notes.refused, **notes.absent}
                answer, done_rounds = done.members[0], done.number
        except (InputError, TooFewSitesError):
            return Ended(f"stops in round {done_rounds + 1}", answer, agreement.plan)
        before = LIAR in agreement.refused
        when = f"refused in {refused} of {done_rounds}" if refused else "never noticed"
        return Ended("refused before round 1" if before else when, answer, agreement.plan)


def line_of(lie: Lie, kits: Kits, truth: TableConfig) -> str:
    """Return the result of this lie without and with masks, as a line of a table."""
    cells = []
    for ended in (run_with(lie, None), run_with(lie, kits)):
        risk = ""
        if ended.answer is not None and ended.plan is not None:
            risk = f"{worst_risk(ended.answer, truth, ended.plan):.3f}"
        cells += [ended.noticed, risk]
    return f"| {lie.name} | {' | '.join(cells)} |"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", default=[], help="lies that contain one of these")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    print("| lie | no masks | worst risk | masked | worst risk |", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        truth = write_tables(folder, MIXED, flips_labels=False)
        kits = provision(folder / "kits", host="localhost", port=8002, sites=SITES)
        for lie in (*LIES, *LOCAL_LIES):
            if not options.only or any(part in lie.name for part in options.only):
                print(line_of(lie, kits, truth), flush=True)


if __name__ == "__main__":
    main()
