"""Look at a run over a network again and again while it goes on.

The news comes from the server, with a person's kit, or for a run on this machine from the server's
own files in the run folder.
"""

import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedminmax.core.errors import InputError
from fedminmax.core.files import is_held
from fedminmax.live.watch import LiveModel, LiveRun, LiveSite, Stage, without_groups
from fedminmax.network.flare.coordinator import ObservedJob, observe_jobs
from fedminmax.network.flare.local import SECONDS_TO_START, SERVER
from fedminmax.network.server.log import News, PlannedJob, ProgressReporter
from fedminmax.network.server.run import CLAIM_FILE, read_outcome
from fedminmax.runs import federation
from fedminmax.runs.folder import read_results
from fedminmax.training.round_record import RoundRecord

CONNECTING = "Connecting to the server."


@dataclass(frozen=True)
class NewsSoFar:
    """The rounds of each of a job's runs, and the last news about everything else, if any came."""

    rounds: tuple[tuple[RoundRecord, ...], ...] = ((), ())
    news: News | None = None

    def with_news(self, news: News) -> "NewsSoFar":
        """Add new rounds; one that is done again takes the place of what came after it."""
        rounds = list(self.rounds)
        for number, entry in news.rounds:
            kept = [own for own in rounds[number] if own.round < entry.round]
            rounds[number] = (*kept, entry)
        return NewsSoFar(tuple(rounds), replace(news, rounds=()))


def watch_federation_folder(folder: Path, wait: float) -> Generator[LiveRun]:
    """Yield how the run over a network in this folder is; end when its results are there."""
    record = federation.read_federation_run(folder)
    source = (
        _watch_server_files(folder, record)
        if record.kit is None
        else watch_kit(record.kit, wait, folder)
    )
    for live in source:
        if read_results(folder) is not None:
            return
        yield live


def watch_kit(kit: Path, wait: float, folder: Path | None = None) -> Generator[LiveRun]:
    """Yield how the job of a run folder is, or the newest one at the server of this kit."""
    so_far, job = NewsSoFar(), None
    place = str(folder) if folder is not None else f"the server of {kit.name}"
    for observed in observe_jobs(
        kit, wait, folder / federation.NETWORK_FOLDER if folder is not None else None
    ):
        if observed.job != job:
            so_far, job = NewsSoFar(), observed.job
        if observed.news is not None:
            so_far = so_far.with_news(observed.news)
        stage, message = _stage_of_job(observed, folder, so_far)
        name = f"{place}: {observed.name}" if observed.name and folder is None else place
        yield live_run(name, so_far, stage, message)


def watch_server(kit: Path, wait: float) -> Generator[LiveRun]:
    """Yield how the newest run at the server of this kit is, also while the server is away."""
    place = f"the server of {kit.name}"
    yield LiveRun(place, Stage.WAITING, CONNECTING)
    while True:
        try:
            yield from watch_kit(kit, wait)
        except (InputError, OSError) as error:
            yield LiveRun(place, Stage.WAITING, f"{error}.")


def _stage_of_job(
    observed: ObservedJob, folder: Path | None, so_far: NewsSoFar
) -> tuple[Stage, str]:
    if observed.is_lost:
        return Stage.RUNNING, "The connection to the server was lost; connecting again."
    if observed.job is None:
        return Stage.WAITING, "No run was submitted yet; waiting for one."
    own = folder if folder is not None else "RUN"
    if observed.has_ended:
        how = observed.status.partition(":")[2].replace("_", " ").lower() or "ended"
        if how == "completed":
            return (
                Stage.FINISHED,
                f"Finished at the server. 'fedminmax federation resume {own}' fetches the results.",
            )
        return (
            Stage.INTERRUPTED,
            f"The job ended ({how}). 'fedminmax federation resume {own}' continues the run.",
        )
    return Stage.RUNNING, _progress(so_far)


def _watch_server_files(folder: Path, record: federation.FederationRun) -> Generator[LiveRun]:
    """Yield what the server of a local federation has written."""
    plan = federation.plan_of(record, record.read_config())
    own = folder / federation.NETWORK_FOLDER / federation.RESUME_FOLDER / SERVER / record.run
    reporter = ProgressReporter(plan, own)
    so_far = NewsSoFar()
    working = time.monotonic()
    while True:
        news = reporter.collect([_last(rounds) for rounds in so_far.rounds])
        so_far = so_far.with_news(news)
        if is_held(own / CLAIM_FILE) is not False:
            working = time.monotonic()
        stage, message = Stage.RUNNING, _progress(so_far)
        outcome = read_outcome(own) if own.is_dir() else None
        if outcome is not None and outcome.error is not None:
            stage, message = Stage.INTERRUPTED, f"The run stopped: {outcome.error}"
        elif time.monotonic() - working > SECONDS_TO_START:
            stage = Stage.INTERRUPTED
            message = (
                "No server is working on this run: run the same 'fedminmax federation local' "
                "command again to continue."
            )
        elif not any(so_far.rounds):
            message = "Server and sites are starting, and agree on how rows are encoded."
        yield live_run(str(folder), so_far, stage, message)


def _last(rounds: Sequence[RoundRecord]) -> int:
    return rounds[-1].round if rounds else 0


def _progress(so_far: NewsSoFar) -> str:
    if so_far.news is not None:
        for number, (method, planned) in reversed([*enumerate(so_far.news.planned.runs)]):
            if so_far.rounds[number]:
                done = _last(so_far.rounds[number])
                return f"{method} is being trained: round {done:,} of {planned:,}."
    return "The sites agree on how rows are encoded."


def live_run(place: str, so_far: NewsSoFar, stage: Stage, message: str) -> LiveRun:
    """Return what a watcher sees of this news."""
    news = so_far.news
    if news is None:
        return LiveRun(place, stage, message)
    hidden = news.small_groups
    begun = [number for number, rounds in enumerate(so_far.rounds) if rounds]
    current = max(begun, default=0)
    models = tuple(
        LiveModel(
            news.planned.runs[number][0],
            without_groups(so_far.rounds[number], news.groups, news.small_groups),
            planned=news.planned.runs[number][1],
            # The runs of a job come one after the other.
            stage=stage if number == current else Stage.FINISHED,
            rounds_after=sum(rounds for _, rounds in news.planned.runs[number + 1 :]),
        )
        for number in sorted({0, *begun})
    )
    return LiveRun(
        place,
        stage,
        message,
        groups=tuple(name for name in news.groups if name not in hidden),
        small_groups=hidden,
        sites=news.planned.sites,
        models=models if news.groups else (),
        site_progress=_sites(news.planned, so_far.rounds[current]),
        threshold=news.planned.threshold,
        privacy=news.planned.privacy,
        notices=(news.notice,) if news.notice else (),
    )


def _sites(planned: PlannedJob, rounds: Sequence[RoundRecord]) -> tuple[LiveSite, ...]:
    """Return for each site how often it took part in this run, and whether in its last round."""
    if not rounds:
        return ()
    last = rounds[-1]
    return tuple(
        LiveSite(
            site,
            sum(site in entry.sites.took_part for entry in rounds),
            answered=site in last.sites.took_part,
            reason=last.sites.refused.get(site),
        )
        for site in planned.sites
    )
