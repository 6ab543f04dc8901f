"""The coordinator's connection to a server of NVIDIA FLARE: wait for sites, submit, look, stop."""

import io
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path

from nvflare.fuel.flare_api.api_spec import JobNotRunning, NoConnection
from nvflare.fuel.flare_api.flare_api import Session, new_secure_session

from fedminmax.core.errors import InputError

SECONDS_PER_LOGIN = 5.0
SECONDS_BETWEEN_LOOKS = 0.5


@contextmanager
def connected(kit: Path, seconds: float, alive: Callable[[], None]) -> Iterator[Session]:
    """Log in with a person's kit; ``alive`` raises if waiting is of no more use."""
    session = _log_in(kit, seconds, alive)
    try:
        yield session
    finally:
        session.close()


def wait_for_sites(
    session: Session, sites: Sequence[str], seconds: float, alive: Callable[[], None]
) -> None:
    """Wait until all these sites are there, or say which are missing."""
    deadline = time.monotonic() + seconds
    while True:
        alive()
        present = {client.name for client in session.get_system_info().client_info}
        missing = [site for site in sites if site not in present]
        if not missing:
            return
        if time.monotonic() > deadline:
            raise InputError(
                f"sites {', '.join(missing)} did not come within {seconds:g} seconds; "
                "start them, or look into their logs"
            )
        time.sleep(SECONDS_BETWEEN_LOOKS)


def submit(session: Session, job: Path) -> str:
    """Submit the job's folder and return the engine's number for it."""
    return str(session.submit_job(str(job)))


def status_of(session: Session, job: str) -> str:
    """Return the engine's word for where the job is, such as RUNNING or FINISHED:COMPLETED."""
    return str(session.get_job_meta(job).get("status", "UNKNOWN"))


def reason_of(session: Session, job: str) -> str:
    """Return why the engine did not run a job, as far as it says so."""
    detail = session.get_job_meta(job).get("job_deploy_detail") or []
    return "; ".join(map(str, detail)) or "the engine gives no reason"


def stop(session: Session, job: str) -> None:
    """End a job; one that has ended already is left as it is."""
    with suppress(JobNotRunning):
        session.abort_job(job)


def _log_in(kit: Path, seconds: float, alive: Callable[[], None]) -> Session:
    # A server that is away is our message to the user, not the engine's.
    logging.getLogger("nvflare").setLevel(logging.CRITICAL)
    deadline = time.monotonic() + seconds
    while True:
        alive()
        try:
            # The engine prints that it connects.
            with redirect_stdout(io.StringIO()):
                return new_secure_session(kit.name, str(kit), timeout=SECONDS_PER_LOGIN)
        except NoConnection as error:
            if time.monotonic() > deadline:
                raise InputError(
                    f"the server does not answer within {seconds:g} seconds; is it running?"
                ) from error
