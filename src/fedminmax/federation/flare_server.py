"""The server's half of a job on NVIDIA FLARE: calls to sites, and the round loop around them."""

import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from nvflare.collab import collab

from fedminmax.core.errors import InputError
from fedminmax.federation.network_news import collect_news, news_as_json
from fedminmax.federation.network_plan import NetworkPlan, plan_from_bytes
from fedminmax.federation.network_run import run_plan
from fedminmax.federation.transport import Answers

RUNS_FOLDER = "fedminmax_runs"
# Where a job's coordinator finds the run among the job's results.
RESULTS_FOLDER = "fedminmax_results"
NEWS_TOPIC = "fedminmax_news"
LONGEST_REASON = 300


class FlareServer:
    """Runs a plan, which comes as JSON text with the job, in the server's own folder."""

    def __init__(self, plan: str) -> None:
        self._plan = plan

    @collab.main
    def run(self) -> None:
        """Do the whole job."""
        plan = plan_from_bytes(self._plan.encode(), "the job")
        folder = Path(collab.workspace.get_root_dir()) / RUNS_FOLDER / plan.run
        results = Path(collab.workspace.get_run_dir(collab.fl_ctx.get_job_id())) / RESULTS_FOLDER
        engine = collab.fl_ctx.get_engine()
        engine.register_app_command(NEWS_TOPIC, tell_news, plan, folder)
        seconds = plan.patience.seconds_per_answer

        def ask(sites: Sequence[str], question: str, words: Mapping[str, object]) -> Answers:
            return ask_sites(sites, question, words, seconds)

        outcome = run_plan(plan, ask, folder)
        shutil.copytree(folder, results)
        if outcome.error is not None:
            raise InputError(outcome.error)


def tell_news(
    topic: str,  # noqa: ARG001 - the engine's signature
    data: Mapping[str, object] | None,
    context: object,  # noqa: ARG001 - the engine's signature
    plan: NetworkPlan,
    folder: Path,
) -> dict[str, object]:
    """Answer the coordinator, who names the last round seen of each run."""
    seen = (data or {}).get("seen")
    rounds = [int(number) for number in seen] if isinstance(seen, list) else []
    return news_as_json(collect_news(plan, folder, rounds))


def ask_sites(
    sites: Sequence[str], question: str, words: Mapping[str, object], seconds: float
) -> Answers:
    """Call the question at those of the sites that are in the job, all at once."""
    present = {proxy.name for proxy in collab.clients}
    failures = {site: f"{site} is not connected" for site in sites if site not in present}
    called = [site for site in sites if site in present]
    if not called:
        return Answers({}, failures)
    started = time.monotonic()
    group = collab.get_clients(called)(timeout=seconds)
    results = getattr(group, question)(**words)
    # The engine also calls it a timeout if it finds nobody there.
    waited = time.monotonic() - started >= seconds
    messages = {}
    for site, answer in results:
        if isinstance(answer, str):
            failures[site] = f"{site}: {answer[:LONGEST_REASON]}"
        else:
            messages[site] = answer
    late = {site for site, error in results.failures.items() if _too_late(error)}
    silent = f"did not answer within {seconds:g} seconds" if waited else "cannot be reached"
    for site in results.failures:
        failures[site] = f"{site} {silent if site in late else 'failed'}"
    return Answers(messages, failures, frozenset(late))


def _too_late(error: Exception) -> bool:
    return isinstance(getattr(error, "cause", None), TimeoutError)
