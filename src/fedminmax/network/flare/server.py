"""The server's half of a job on NVIDIA FLARE: calls to sites, and the round loop around them."""

import logging
import queue
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nvflare.collab import collab

from fedminmax.core.errors import InputError
from fedminmax.network.flare.engine import (
    RunAborted,
)
from fedminmax.network.server.log import ProgressReporter, news_as_json
from fedminmax.network.server.run import publish_results, run_plan
from fedminmax.network.wire.calls import (
    NO_LIMITS,
    PRESENCE_TIMEOUT,
    Answer,
    Endpoint,
    wait_for_all,
)
from fedminmax.network.wire.plan import plan_from_bytes

RUNS_FOLDER = "fedminmax_runs"
# Where a job's coordinator finds the run among the job's results.
RESULTS_FOLDER = "fedminmax_results"
NEWS_TOPIC = "fedminmax_news"
MAX_REASON_LENGTH = 300
SECONDS_BETWEEN_ABORT_CHECKS = 1.0


class FlareServer:
    """Runs a plan, which comes as JSON text with the job, in the server's own folder."""

    def __init__(self, plan: str) -> None:
        self._plan = plan

    @collab.main
    def run(self) -> None:
        """Do the whole job."""
        # The engine logs several lines per call and site to three files, which is slow.
        logging.getLogger("nvflare.collab").setLevel(logging.WARNING)
        plan = plan_from_bytes(self._plan.encode(), "the job")
        folder = Path(collab.workspace.get_root_dir()) / RUNS_FOLDER / plan.run
        results = Path(collab.workspace.get_run_dir(collab.fl_ctx.get_job_id())) / RESULTS_FOLDER
        engine = collab.fl_ctx.get_engine()
        engine.register_app_command(NEWS_TOPIC, report_progress, ProgressReporter(plan, folder))
        agreed = plan.site_rules.reply_timeout

        def ask(
            sites: Sequence[str],
            endpoint: Endpoint,
            payload: Mapping[str, object],
            seconds: Mapping[str, float] = NO_LIMITS,
        ) -> Iterator[Answer]:
            return ask_sites(sites, endpoint, payload, {**dict.fromkeys(sites, agreed), **seconds})

        outcome = publish_results(folder, run_plan(plan, ask, folder), results)
        if outcome.error is not None:
            raise InputError(outcome.error)


def report_progress(
    topic: str,  # noqa: ARG001 - the engine's signature
    data: Mapping[str, object] | None,
    context: object,  # noqa: ARG001 - the engine's signature
    reporter: ProgressReporter,
) -> dict[str, object]:
    """Reply to the coordinator, which sends the last round seen of each run."""
    seen = (data or {}).get("seen")
    rounds = [int(number) for number in seen] if isinstance(seen, list) else []
    return news_as_json(reporter.collect(rounds))


def ask_sites(
    sites: Sequence[str],
    endpoint: Endpoint,
    payload: Mapping[str, object],
    limits: Mapping[str, float],
) -> Iterator[Answer]:
    """Call the endpoint at all of these sites that are in the job, in parallel."""
    in_the_job = {proxy.name for proxy in collab.clients}
    for site in sites:
        if site not in in_the_job:
            yield Answer(site, failure=f"{site} is not connected")
    called = [site for site in sites if site in in_the_job]
    if called:
        own = {site: limits[site] for site in called}
        arrivals = FlareArrivals(_call(called, endpoint, payload, max(own.values())))
        for answer in wait_for_all(arrivals, own, _connected_sites):
            if answer.late:
                _stop_waiting(answer.site)
            yield answer


class FlareArrivals:
    """The results of a call to several sites, as they come."""

    def __init__(self, results: Any) -> None:
        self._results = results
        self._failed: set[str] = set()

    def next_within(self, seconds: float) -> Answer | None:
        """Return the next answer; None if none came within these seconds."""
        deadline = time.monotonic() + seconds
        while True:
            if collab.is_aborted:
                raise RunAborted("the job was stopped while it waited for sites")
            left = max(0.0, deadline - time.monotonic())
            try:
                # The queue also reports failed calls, without a name.
                item = self._results.q.get(timeout=min(left, SECONDS_BETWEEN_ABORT_CHECKS))
            except queue.Empty:
                if left <= SECONDS_BETWEEN_ABORT_CHECKS:
                    return None
                continue
            return _as_answer(*item) if isinstance(item, tuple) else self._failure()

    def _failure(self) -> Answer:
        site = next(site for site in self._results.failures if site not in self._failed)
        self._failed.add(site)
        error = self._results.failures[site]
        # The engine reports a timeout if the site is not connected.
        gone = isinstance(error.cause, TimeoutError)
        why = "cannot be reached" if gone else "failed"
        return Answer(site, failure=f"{site} {why}", late=True)


def _as_answer(site: str, answer: object) -> Answer:
    if isinstance(answer, str):
        return Answer(site, failure=f"{site}: {answer[:MAX_REASON_LENGTH]}")
    return Answer(site, answer)


def _stop_waiting(site: str) -> None:
    """End the engine's own waiting for a site, which would delay the end of the job."""
    (proxy,) = collab.get_clients([site])
    for waiter in list(proxy.backend.cell.requests_dict.values()):
        if waiter.target == proxy.backend.target_fqcn:
            waiter.stream_error = "given up"
            waiter.in_receiving.set()


def _connected_sites(sites: list[str]) -> set[str]:
    results = _call(sites, Endpoint.PRESENT, {}, PRESENCE_TIMEOUT)
    arrivals, there = FlareArrivals(results), set()
    for _ in sites:
        answer = arrivals.next_within(PRESENCE_TIMEOUT)
        if answer is not None and answer.failure is None:
            there.add(answer.site)
    return there


def _call(
    sites: Sequence[str], endpoint: Endpoint, payload: Mapping[str, object], seconds: float
) -> Any:
    group = collab.get_clients(sites)(timeout=seconds, blocking=False)
    # A site replies that it is present also while it works.
    if endpoint is Endpoint.PRESENT:
        return group.present()
    return group.call(endpoint=endpoint.value, payload=dict(payload))
