"""A recipe for sites that NVIDIA FLARE has provisioned already, without our kits.

The job names installed classes and brings no code: the server and each site install
``fedminmax[flare]`` and allow ``ALLOWED_CLASSES``. What a site lets out is its own policy, in its
``local/fedminmax.json``. With our kits the engine answers nothing but our questions
(``network.flare.allow_list``); here it is as its administrators start it.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from nvflare.job_config.api import FedJob
from nvflare.recipe.spec import Recipe

from fedminmax.config.read import TableConfig, read_config
from fedminmax.core.errors import InputError
from fedminmax.findings.records import Results
from fedminmax.network.flare.job_files import write_job
from fedminmax.network.flare.kits import ALLOWED_CLASSES
from fedminmax.network.flare.server import RESULTS_FOLDER
from fedminmax.network.server.run import read_outcome
from fedminmax.network.wire.plan import NetworkPlan
from fedminmax.network.wire.site_rules import SiteRules
from fedminmax.runs.federation import FederationRun, open_federation_run, plan_of
from fedminmax.runs.network import collect_network_run

__all__ = ["ALLOWED_CLASSES", "FedMinMaxRecipe"]


class PlannedJob(FedJob):  # type: ignore[misc] # the engine has no types
    """A job of a plan; the engine would put the source of our classes into it."""

    def __init__(self, plan: NetworkPlan) -> None:
        super().__init__(name=plan.run, min_clients=plan.minimum_sites)
        self._planned = plan

    def export_job(self, job_root: str) -> None:
        """Write the job's folder below this one."""
        write_job(Path(job_root), self._planned)


class FedMinMaxRecipe(Recipe):  # type: ignore[misc]
    """Runs a configuration between provisioned sites, in ``ProdEnv`` or ``PocEnv``.

    Args:
        config: a `fedminmax.toml`; its paths of tables are not used.
        sites: the names of the sites that take part, as they were provisioned.
        folder: the run folder. The same folder continues a run that was lost.
        site_rules: what happens if sites do not answer.
    """

    def __init__(
        self,
        config: str | os.PathLike[str],
        sites: Sequence[str],
        folder: str | os.PathLike[str],
        site_rules: SiteRules | None = None,
    ) -> None:
        path = Path(config).absolute()
        if read_config(path).secure_aggregation is None:
            raise InputError(
                f"{path} does not say whether sums are masked; write secure_aggregation = true or "
                "false in [federation], so that every site can check it"
            )
        record = FederationRun(
            "", path, kit=None, sites=tuple(sites), site_rules=site_rules or SiteRules()
        )
        self._folder = Path(folder)
        self._config: TableConfig = record.read_config()
        self._plan = plan_of(open_federation_run(self._folder, record), self._config)
        super().__init__(PlannedJob(self._plan))

    def collect(self, result: str | os.PathLike[str] | None) -> list[Results]:
        """Write the run folder from what ``Run.get_result()`` returned; return the results."""
        fetched = Path(result or "") / "workspace" / RESULTS_FOLDER
        outcome = read_outcome(fetched)
        if outcome is None:
            raise InputError(
                f"{fetched} has no finished run; look into the server's log, and execute the "
                "recipe again: it goes on after the last saved round"
            )
        if outcome.error is not None:
            raise InputError(outcome.error)
        return collect_network_run(fetched, self._plan, self._config, self._folder)
