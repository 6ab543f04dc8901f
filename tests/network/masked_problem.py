"""The sites of ``network_problem``, and a fourth one, with keys of their own: sums are masked."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from fedminmax.config.planned_runs import PlannedRun
from fedminmax.config.read import TableConfig, read_config
from fedminmax.network.site.sender import Credentials
from fedminmax.network.site.settings import SiteSettings
from fedminmax.network.site.site import Site
from fedminmax.network.wire.plan import NetworkPlan, SecureAggregation, threshold_for
from tests.network.network_problem import DirectTransport, plan_of, write_tables
from tests.network.secure.masked_sites import federation_certifier, kit

FOUR_SITES = ("east", "north", "south", "west")
LISTED = '[groups]\nvalues = { sex = ["Female", "Male"] }'


def listed_config(folder: Path, settings: str = "") -> TableConfig:
    """Write the tables; the groups' values are listed, as masked sums need it.

    ``settings`` are those of the model.
    """
    path = write_tables(folder)
    text = path.read_text().replace("[groups]", LISTED)
    path.write_text(text.replace("[model]", f"[model]\n{settings}"))
    # East has the people of north in another order.
    header, *lines = (folder / "north.csv").read_text().splitlines()
    (folder / "east.csv").write_text("\n".join([header, *reversed(lines[:50])]) + "\n")
    return read_config(path)


def masked_plan(
    config: TableConfig, sites: tuple[str, ...], *runs: PlannedRun, same_sites: bool = True
) -> NetworkPlan:
    """A plan for these sites: all of them are in every total, or enough of them."""
    plan = replace(plan_of(config, runs), sites=sites)
    rules = replace(plan.site_rules, skip_rounds=0)
    least = len(sites) if same_sites else threshold_for(len(sites))
    masked = SecureAggregation(least, same_sites=same_sites)
    return replace(plan, site_rules=rules, secure_aggregation=masked)


class Killed(BaseException):
    """The server's process ends here."""


class FourSites(DirectTransport):
    """Calls sites that have keys, until one or the server goes away at a certain call.

    Their policies leave it to the plan whether totals are over the same sites.

    ``gone`` counts the calls of a question, from 1, at which a site does not answer.
    """

    def __init__(
        self,
        folder: Path,
        gone: Mapping[tuple[str, str], int] | None = None,
        killed_at: tuple[str, int] | None = None,
    ) -> None:
        super().__init__(folder)
        authority = federation_certifier().authority
        self.sites = {
            site: Site(
                site,
                SiteSettings(folder / f"{site}.csv", allow_other_sites=True),
                folder / f"{site}-kept",
                FOUR_SITES,
                credentials=Credentials(kit(site), authority),
            )
            for site in FOUR_SITES
        }
        self._gone, self._killed_at = dict(gone or {}), killed_at
        self.asked: list[tuple[str, str]] = []
        self.sent: list[tuple[str, str, object]] = []

    def answer(self, site: str, question: str, words: Mapping[str, object]) -> object:
        """One site's answer."""
        self.asked.append((site, question))
        number = self.asked.count((site, question))
        if self._killed_at == (question, number):
            raise Killed
        if self._gone.get((site, question)) == number:
            raise TimeoutError
        answer = super().answer(site, question, words)
        self.sent.append((site, question, answer))
        return answer
