"""A coordinator's session with a server of NVIDIA FLARE: log in, submit, look, stop, fetch.

NVIDIA FLARE waits forever for a frozen server; the workarounds are here. ``federation_status``
returns who is connected and the status of the runs. ``Participants`` checks the server and the
sites during a run, and restarts them if possible.
"""

import io
import logging
import shutil
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from nvflare.apis.fl_exception import FLCommunicationError
from nvflare.fuel.flare_api.api_spec import (
    AuthenticationError,
    AuthorizationError,
    InternalError,
    JobNotFound,
    JobNotRunning,
    NoClientsAvailable,
    NoConnection,
    NoReply,
    SessionClosed,
)
from nvflare.fuel.flare_api.flare_api import Session

from fedminmax.core.errors import InputError
from fedminmax.network.flare.patches import patch_session
from fedminmax.network.flare.presence import tls_context
from fedminmax.network.flare.server import NEWS_TOPIC, RESULTS_FOLDER
from fedminmax.network.server.log import News, news_from_json
from fedminmax.network.server.run import disk_is_full, find_disk_full

POLL_SECONDS = 0.5
# What a server that went away ends a call with.
GONE = (NoConnection, SessionClosed, ConnectionError)
# A job whose process begins or ends at this moment.
NOT_NOW = (JobNotRunning, NoReply, InternalError)
NO_JOBS = "no_jobs"
NO_REPLY = "no_reply"
# A site lets the server hear of it every ten seconds.
HEARTBEAT_TIMEOUT = 30.0
ENDED = "FINISHED"
SECONDS_PER_LOGIN = 5.0
SECONDS_BETWEEN_LOGINS = 0.5
SECONDS_BETWEEN_CLOSINGS = 1.0
MAX_REASON_LENGTH = 300
# What a server that is there, but cannot do its work, ends a call with.
FAILURES = (InternalError, NoReply, JobNotFound)
RUNNING = "RUNNING"
# A plan has a method and a baseline.
MAX_RUNS_PER_PLAN = 2


def sites_present(session: Session) -> dict[str, float]:
    """Return the sites that are connected, with the time when each was last heard of."""
    found = session.get_system_info().client_info
    return {client.name: float(client.last_connect_time) for client in found}


def jobs_at_sites(session: Session, sites: Sequence[str]) -> dict[str, str]:
    """Return those of these sites that reply now, with the status of each one's last job.

    The engine lists a site that is gone for another ten minutes, and waits for its answer for
    longer than a command may take; so those that were not heard of are not asked.
    """
    heard = sites_present(session)
    since = max(heard.values(), default=0.0) - HEARTBEAT_TIMEOUT
    listed = [site for site in sites if site in heard and heard[site] >= since]
    try:
        reported = session.get_client_job_status(listed) if listed else None
    except (NoClientsAvailable, InternalError, NoReply, NoConnection):
        # One of them has just gone; if it is the server, the next command says so.
        return {}
    states = {str(entry["client_name"]): str(entry["status"]) for entry in reported or []}
    return {site: state for site, state in states.items() if state != NO_REPLY}


def wait_for_sites(
    session: Session, sites: Sequence[str], seconds: float, alive: Callable[[], None]
) -> list[str]:
    """Wait until all these sites are connected; return those that were not in time."""
    deadline = time.monotonic() + seconds
    while True:
        alive()
        there = jobs_at_sites(session, sites)
        missing = [site for site in sites if site not in there]
        if not missing or time.monotonic() > deadline:
            return missing
        time.sleep(POLL_SECONDS)


def server_start_time(session: Session) -> float:
    """Return when the server was started."""
    return float(session.get_system_info().server_info.start_time)


def submit(session: Session, job: Path) -> str:
    """Submit the job's folder and return the engine's number for it."""
    # The engine takes a relative path for one in its own folder.
    return str(session.submit_job(str(job.absolute())))


def is_known(session: Session, job: str) -> bool:
    """Return whether the server has this job."""
    try:
        session.get_job_meta(job)
    except JobNotFound:
        return False
    return True


def status_of(session: Session, job: str) -> str:
    """Return the engine's status of the job, such as RUNNING or FINISHED:COMPLETED."""
    return str(session.get_job_meta(job).get("status", "UNKNOWN"))


def submitted_at(session: Session, job: str) -> float:
    """Return when the job was submitted, by the server's clock."""
    return float(session.get_job_meta(job).get("submit_time", 0.0))


def reason_of(session: Session, job: str) -> str:
    """Return why the engine did not run a job, as far as it says so."""
    detail = session.get_job_meta(job).get("job_deploy_detail") or []
    return "; ".join(map(str, detail)) or "the engine gives no reason"


def news_of(session: Session, job: str, seen: Sequence[int]) -> News | None:
    """Ask a running job for its news; None if it is not running."""
    try:
        return news_from_json(session.do_app_command(job, NEWS_TOPIC, {"seen": list(seen)}))
    except NOT_NOW:
        return None


def has_idle_site(session: Session, sites: Sequence[str]) -> bool:
    """Return whether one of these sites is connected and has no job: it could join the next one."""
    return NO_JOBS in jobs_at_sites(session, sites).values()


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


@contextmanager
def connected(kit: Path, seconds: float, alive: Callable[[], None]) -> Iterator[Session]:
    """Log in with a person's kit; ``alive`` raises if waiting is pointless."""
    # A person's machine has doors, too.
    patch_session()
    session = _log_in(kit, seconds, alive)
    try:
        yield session
    except AuthorizationError as error:
        raise InputError(
            f"{kit.name} may not do this in the federation; ask somebody with the role coordinator"
        ) from error
    except FAILURES as error:
        raise InputError(_failure(error)) from error
    finally:
        _close(session)


def _log_in(kit: Path, seconds: float, alive: Callable[[], None]) -> Session:
    # A server that is away is our message to the user, not the engine's.
    logging.getLogger("nvflare").setLevel(logging.CRITICAL)
    deadline = time.monotonic() + seconds
    while True:
        alive()
        try:
            # The engine prints that it connects.
            with redirect_stdout(io.StringIO()):
                return _try_once(kit)
        except AuthenticationError as error:
            raise InputError(
                f"the server does not accept {kit}; is it a person's kit of this federation?"
            ) from error
        # The engine's own challenge of a server that is slow ends with the second of these.
        except (NoConnection, FLCommunicationError, *FAILURES) as error:
            if time.monotonic() > deadline:
                # A server that answers, but with a failure of its own, is running.
                asked = "is it running?"
                if isinstance(error, FAILURES):
                    asked = f"it failed ({_in_one_line(error)}): look into its log and its disk"
                raise InputError(
                    f"the server does not answer within {seconds:g} seconds; {asked}"
                ) from error
        time.sleep(SECONDS_BETWEEN_LOGINS)


def _failure(error: Exception) -> str:
    """Return the message for a call at which the server failed."""
    reason = _in_one_line(error)
    full = find_disk_full(reason)
    if full is not None:
        return disk_is_full(full)
    return (
        f"the server failed ({reason}); look into its log and its disk, and repeat the command: "
        "everything saved is kept"
    )


def _in_one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:MAX_REASON_LENGTH]


def _try_once(kit: Path) -> Session:
    session = Session(kit.name, str(kit))
    api = session.api
    _probe_tls(session, tls_context(kit, api.ca_cert, api.client_cert, api.client_key))
    try:
        session.try_connect(SECONDS_PER_LOGIN)
    except BaseException:
        _close(session)
        raise
    return session


def _probe_tls(session: Session, context: ssl.SSLContext) -> None:
    """Check whether the server replies: the engine would wait for a frozen one until it resumes.

    It still waits for one that freezes between this and the engine's own handshake.
    """
    address = (session.api.host, int(session.api.port))
    try:
        with (
            socket.create_connection(address, SECONDS_PER_LOGIN) as plain,
            context.wrap_socket(plain),
        ):
            return
    except OSError as error:
        raise NoConnection(f"no handshake with {address[0]}:{address[1]}") from error


def _close(session: Session) -> None:
    """End the session.

    The engine closes its connections and waits for their ends. One that comes about in between it
    overlooks, and would wait for ever: such connections are closed here as long as it waits.
    """
    closed = threading.Event()
    threading.Thread(target=_close_stray_connections, args=(session, closed), daemon=True).start()
    try:
        session.close()
    finally:
        closed.set()


def _close_stray_connections(session: Session, closed: threading.Event) -> None:
    while not closed.wait(SECONDS_BETWEEN_CLOSINGS):
        if session.api.cell is None:
            continue
        manager = session.api.cell.core_cell.communicator.conn_manager
        for connector in list(manager.connectors.values()):
            if connector.stopped.is_set():
                connector.driver.shutdown()


class Participants(Protocol):
    """The server and the sites, as far as the coordinator can do something about them."""

    def check(self) -> None:
        """Raise an error if waiting for them is of no use."""
        ...

    def lost(self) -> bool:
        """Return whether one of them has died."""
        ...

    def restart_dead(self) -> None:
        """Restart the participants that have died."""
        ...


class Unsupervised:
    """Participants on other machines, where `start` commands bring back what dies."""

    def check(self) -> None:
        """Nothing is known from here."""

    def lost(self) -> bool:
        """Unknown from here: the engine reports which sites are connected."""
        return False

    def restart_dead(self) -> None:
        """Left to those who run them."""


@dataclass(frozen=True)
class RunStatus:
    """One run: the engine's status, and its progress if it is running.

    ``risks`` are by group, without groups that are too small for minimax training.
    """

    name: str
    status: str
    round: int | None = None
    risks: dict[str, float] = field(default_factory=dict)
    notice: str | None = None


@dataclass(frozen=True)
class FederationStatus:
    """When each connected site was last heard of, and all runs, the newest first."""

    heard: dict[str, float]
    runs: tuple[RunStatus, ...]


def federation_status(kit: Path, seconds: float) -> FederationStatus:
    """Ask the server, for at most these seconds."""
    with connected(kit, seconds, Unsupervised().check) as session:
        jobs = list_jobs(session)
        runs = tuple(_run_status(session, *job) for job in jobs)
        return FederationStatus(sites_present(session), runs)


def _run_status(session: Session, job: str, name: str, status: str) -> RunStatus:
    news = news_of(session, job, [0] * MAX_RUNS_PER_PLAN) if status == RUNNING else None
    if news is None or not news.rounds:
        return RunStatus(name, status, notice=news.notice if news else None)
    last = news.live_rounds[-1]
    return RunStatus(name, status, last.round.round, last.risks, news.notice)
