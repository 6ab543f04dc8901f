"""What a coordinator asks of a server of NVIDIA FLARE: submit, look, stop, fetch."""

import io
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout, suppress
from pathlib import Path

from nvflare.fuel.flare_api.api_spec import (
    InternalError,
    JobNotFound,
    JobNotRunning,
    NoClientsAvailable,
    NoConnection,
    NoReply,
    SessionClosed,
)
from nvflare.fuel.flare_api.flare_api import Session

from fedminmax.federation.flare_server import NEWS_TOPIC, RESULTS_FOLDER
from fedminmax.federation.network_news import News, news_from_json

SECONDS_BETWEEN_LOOKS = 0.5
# What a server that went away ends a call with.
GONE = (NoConnection, SessionClosed, ConnectionError)
# A job whose process begins or ends at this moment.
NOT_NOW = (JobNotRunning, NoReply, InternalError)
WITHOUT_A_JOB = "no_jobs"
NO_REPLY = "no_reply"
# A site lets the server hear of it every ten seconds.
SECONDS_UNHEARD = 30.0
ENDED = "FINISHED"


def sites_present(session: Session) -> dict[str, float]:
    """Return the sites that are connected, with the time when each was last heard of."""
    found = session.get_system_info().client_info
    return {client.name: float(client.last_connect_time) for client in found}


def jobs_at_sites(session: Session, sites: Sequence[str]) -> dict[str, str]:
    """Return those of these sites that answer now, with how the last of each one's jobs is.

    The engine lists a site that is gone for another ten minutes, and waits for its answer for
    longer than a command may take; so those that were not heard of are not asked.
    """
    heard = sites_present(session)
    since = max(heard.values(), default=0.0) - SECONDS_UNHEARD
    listed = [site for site in sites if site in heard and heard[site] >= since]
    try:
        told = session.get_client_job_status(listed) if listed else None
    except (NoClientsAvailable, InternalError, NoReply, NoConnection):
        # One of them has just gone; if it is the server, the next command says so.
        return {}
    states = {str(entry["client_name"]): str(entry["status"]) for entry in told or []}
    return {site: state for site, state in states.items() if state != NO_REPLY}


def wait_for_sites(
    session: Session, sites: Sequence[str], seconds: float, alive: Callable[[], None]
) -> list[str]:
    """Wait until all these sites are there; return those that did not come in time."""
    deadline = time.monotonic() + seconds
    while True:
        alive()
        there = jobs_at_sites(session, sites)
        missing = [site for site in sites if site not in there]
        if not missing or time.monotonic() > deadline:
            return missing
        time.sleep(SECONDS_BETWEEN_LOOKS)


def server_began(session: Session) -> float:
    """Return when the server was started."""
    return float(session.get_system_info().server_info.start_time)


def submit(session: Session, job: Path) -> str:
    """Submit the job's folder and return the engine's number for it."""
    # The engine takes a relative path for one in its own folder.
    return str(session.submit_job(str(job.absolute())))


def is_known(session: Session, job: str) -> bool:
    """Tell whether the server has this job."""
    try:
        session.get_job_meta(job)
    except JobNotFound:
        return False
    return True


def status_of(session: Session, job: str) -> str:
    """Return the engine's word for where the job is, such as RUNNING or FINISHED:COMPLETED."""
    return str(session.get_job_meta(job).get("status", "UNKNOWN"))


def submitted_at(session: Session, job: str) -> float:
    """Return when the job was submitted, by the server's clock."""
    return float(session.get_job_meta(job).get("submit_time", 0.0))


def reason_of(session: Session, job: str) -> str:
    """Return why the engine did not run a job, as far as it says so."""
    detail = session.get_job_meta(job).get("job_deploy_detail") or []
    return "; ".join(map(str, detail)) or "the engine gives no reason"


def news_of(session: Session, job: str, seen: Sequence[int]) -> News | None:
    """Ask a running job for its news; None if it does not run at this moment."""
    try:
        return news_from_json(session.do_app_command(job, NEWS_TOPIC, {"seen": list(seen)}))
    except NOT_NOW:
        return None


def came_back_without_the_job(session: Session, sites: Sequence[str]) -> bool:
    """Tell whether one of these sites is connected and has no job: it could join the next one."""
    return WITHOUT_A_JOB in jobs_at_sites(session, sites).values()


def list_jobs(session: Session) -> list[tuple[str, str, str]]:
    """Return each job's number, its run's name and its status, the newest first."""
    found = session.list_jobs(reverse=True) or []
    return [(str(job["job_id"]), str(job["job_name"]), str(job["status"])) for job in found]


def stop(session: Session, job: str) -> None:
    """End a job; one that has ended already is left as it is."""
    with suppress(JobNotRunning):
        session.abort_job(job)


def fetch_results(session: Session, job: str, folder: Path) -> bool:
    """Bring what an ended job left to this folder; False if it left nothing.

    What the folder holds stays until something takes its place.
    """
    beside = folder.with_suffix(".partial")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    with redirect_stdout(io.StringIO()):
        location = Path(session.download_job_result(job, str(beside.absolute())))
    left = location / "workspace" / RESULTS_FOLDER
    found = left.is_dir()
    if found and folder.exists():
        folder.rename(beside / "earlier")
    if found:
        left.rename(folder)
    shutil.rmtree(beside)
    return found
