"""Sites that promise privacy: a plan for them, and one site's answers before they are masked."""

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import torch

from fedminmax.config.planned_runs import PlannedRun
from fedminmax.config.read import TableConfig
from fedminmax.core.messages import Order, RoundKey
from fedminmax.core.privacy.mechanism import Privacy
from fedminmax.data.tables.agree import agree_on_encoding
from fedminmax.data.tables.encoding import Encoding
from fedminmax.data.tables.site_summary import summarise
from fedminmax.network.site.encoded_site import EncodedSite, encode_site, reply_to
from fedminmax.network.site.policy import read_rows
from fedminmax.network.site.privacy import PrivateAnswers
from fedminmax.network.site.settings import SiteSettings
from fedminmax.network.site.site import Site
from fedminmax.network.wire.plan import NetworkPlan, SecureAggregation
from fedminmax.network.wire.sections import Sections
from tests.network.masked_problem import FOUR_SITES, FourSites, listed_config, masked_plan
from tests.network.network_problem import SITES

PROMISE = Privacy(epsilon=8.0, delta=1e-3, clip=0.6, rounds=2)
FAST = PlannedRun("fedminmax-fast", {"curvature": "false"}, 2)
PROMISED = "epsilon = 4.0\ndelta = 1e-3"
MASKED = "[federation]\nsecure_aggregation = true"


def private_config(folder: Path, promise: str = PROMISED, federation: str = MASKED) -> Path:
    """The tables of masked sites, and a configuration that promises privacy."""
    listed_config(folder)
    path = folder / "fedminmax.toml"
    text, _, _ = path.read_text().partition("[method]")
    method = '[method]\nname = "fedminmax-fast"\nrounds = 2'
    path.write_text(f"{text}{method}\n{federation}\n[privacy]\n{promise}\n")
    return path


def private_plan(
    config: TableConfig,
    promise: Privacy = PROMISE,
    run: PlannedRun = FAST,
    sites: tuple[str, ...] = SITES,
) -> NetworkPlan:
    """A plan whose totals are over all sites but the colluding ones at least."""
    plan = masked_plan(config, sites, replace(run, rounds=promise.rounds))
    least = max(3, len(sites) - promise.colluding)
    masked = SecureAggregation(least, same_sites=promise.colluding == 0)
    return replace(plan, privacy=promise, secure_aggregation=masked)


def with_limit(sites: FourSites, folder: Path, max_epsilon: float) -> FourSites:
    """Give every site a limit of its own."""
    for name, site in sites.sites.items():
        settings = SiteSettings(folder / f"{name}.csv", max_epsilon=max_epsilon)
        kept = folder / f"{name}-kept"
        sites.sites[name] = Site(name, settings, kept, FOUR_SITES, credentials=site._credentials)
    return sites


class Questioned(FourSites):
    """Sites whose server changes its orders or layouts: ``spoil`` gets each call's payload."""

    def spoil(self, question: str, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        raise NotImplementedError

    def answer(self, site: str, question: str, words: Mapping[str, object]) -> object:
        return super().answer(site, question, self.spoil(question, words))


def shared_encoding(plan: NetworkPlan, folder: Path) -> Encoding:
    """The encoding of all four tables."""
    rows = [
        read_rows(replace(plan, sites=FOUR_SITES), SiteSettings(folder / f"{site}.csv"), site).train
        for site in FOUR_SITES
    ]
    return agree_on_encoding(
        plan.schema, reduce(add, (summarise(own, plan.schema) for own in rows))
    )


class OneSite:
    """One site's encoded rows, and its noisy answers as they are before masks."""

    def __init__(
        self, plan: NetworkPlan, folder: Path, site: str, encoding: Encoding, kept: str = "kept"
    ) -> None:
        settings = SiteSettings(folder / f"{site}.csv")
        self.plan, self.folder = plan, folder / f"{site}-{kept}"
        rows = read_rows(plan, settings, site)
        self.encoded: EncodedSite = encode_site(plan, rows, encoding, site)
        self.private = PrivateAnswers(plan, settings, self.folder)
        self.method: Any = plan.runs[0].build()

    def order(self, size: float = 0.1, number: int = 1) -> Order:
        """An order with a model of this size."""
        parameters = size * torch.arange(len(self.encoded.start)).to(self.encoded.start)
        weights = torch.tensor([0.5, 2.0], dtype=torch.float64)
        return Order(RoundKey(self.plan.seed, number), parameters, weights)

    def reply(self, order: Order, asked: bytes = b"asked") -> Sections:
        """The round's sums with this site's noise."""
        exact = reply_to(self.method, order, self.encoded, self.folder / "state")
        return self.private.reply(self.encoded, self.method, order, exact, asked)

    def census(self, asked: bytes = b"asked") -> Sections:
        """The census with this site's noise."""
        return self.private.census(self.encoded, asked)
