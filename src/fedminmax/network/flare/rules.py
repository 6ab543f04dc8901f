"""Who may send what to whom in a federation: everything else is refused, wherever it arrives.

NVIDIA FLARE calls each process that takes part a cell and names it after its owner: ``server`` and
``server.JOB``, ``north`` and ``north.JOB``, ``_admin_NUMBER`` for a person's session. It registers
more than a hundred handlers in these cells, of which a run needs those below: a site is a
participant of computations, not a machine to be administered from elsewhere.

A rule holds within one job: a site's job hears the server's job of the same number, and no other
site's anything. Replies go where a request came from.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

ROOT = "server"
PERSON_PREFIX = "_admin_"
# The engine's numbers of jobs. They become names of folders and words of commands.
JOB_NUMBER = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# A process meets few others; one that makes up names makes no difference.
MAX_REMEMBERED = 1000
GOODBYE = ("cellnet.channel", "bye")


class Place(StrEnum):
    """The kinds of cells."""

    SITE = "site"
    SITE_JOB = "site's job"
    SERVER = "server"
    SERVER_JOB = "server's job"
    PERSON = "person"


@dataclass(frozen=True)
class Rule:
    """A message that is let through; ``needed`` says what for."""

    at: Place
    sender: Place
    channel: str
    topic: str
    needed: str


@dataclass(frozen=True)
class CellName:
    """A cell's name: what it is, whose it is, and in which job."""

    place: Place
    owner: str
    job: str | None = None


SITE, SITE_JOB, SERVER, SERVER_JOB, PERSON = Place
RULES = (
    # What is inside these has a list of its own: SITE_COMMANDS.
    Rule(SITE, SERVER, "admin", "admin", "jobs are brought, started and ended"),
    Rule(SITE, SITE_JOB, "admin", "train.notify_job_status", "a job reports how it ends"),
    Rule(SITE_JOB, SITE, "client_command", "abort", "a job is ended"),
    Rule(SITE_JOB, SERVER_JOB, "collab", "call", "all questions of our protocol"),
    Rule(SITE_JOB, SERVER_JOB, "aux_communication", "__end_run__", "the run has ended"),
    Rule(SERVER, SITE, "task", "challenge", "a site logs in: the server proves who it is"),
    Rule(SERVER, SITE, "task", "register", "a site logs in: it proves who it is"),
    Rule(SERVER, SITE, "task", "quit", "a site goes"),
    Rule(SERVER, SITE, "task", "heart_beat", "a site is still there"),
    Rule(SERVER, SITE, "task", "report_job_failure", "a site's job has died"),
    Rule(SERVER, SERVER_JOB, "server_parent_listener", "get_clients", "who is in the job"),
    Rule(SERVER, SERVER_JOB, "server_parent_listener", "heartbeat", "the job is still there"),
    Rule(SERVER, SERVER_JOB, "server_parent_listener", "update_run_status", "how the job ended"),
    Rule(SERVER, PERSON, "task", "challenge", "a person logs in: the server proves who it is"),
    Rule(SERVER, PERSON, "task", "register", "a person logs in: they prove who they are"),
    # What is inside these has a list of its own: SERVER_COMMANDS.
    Rule(SERVER, PERSON, "hci_channel", "command", "runs are listed, submitted, watched, stopped"),
    Rule(SERVER, PERSON, "aux_communication", "ObjectStreamer.Request", "a job is brought"),
    Rule(SERVER, PERSON, "aux_communication", "ObjectStreamer.Abort", "bringing it is given up"),
    Rule(SERVER, PERSON, "download_service__", "download_service__download", "results are fetched"),
    Rule(SERVER_JOB, SITE_JOB, "server_command", "get_task", "a site's job asks for its task"),
    Rule(SERVER_JOB, SITE_JOB, "server_command", "submit_update", "a site's job has done its task"),
    Rule(SERVER_JOB, SITE_JOB, "aux_communication", "__sync_runner__", "a site's job is there"),
    Rule(SERVER_JOB, SITE_JOB, "aux_communication", "__task_check__", "is the task still wanted?"),
    Rule(SERVER_JOB, SITE_JOB, "aux_communication", "__job_heartbeat__", "a job is still there"),
    Rule(SERVER_JOB, SITE, "sm__STREAM", "sm__ERROR", "a site could not pass on to its job"),
    Rule(SERVER_JOB, SERVER, "server_command", "app_command", "a person watches the run"),
    Rule(SERVER_JOB, SERVER, "server_command", "abort", "the run is stopped"),
    Rule(SERVER_JOB, SERVER, "server_command", "handle_dead_job", "a site's job has died"),
    Rule(PERSON, SERVER, "hci_channel", "SESSION_EXPIRED", "the server has ended a session"),
)
# A process says goodbye to those it is connected with.
CONNECTED = (
    (SITE, SITE_JOB),
    (SITE, SERVER),
    (SITE_JOB, SERVER),
    (SERVER, SERVER_JOB),
    (SERVER, PERSON),
)

# What the server may have a site do, by the topic inside an ``admin`` message. The engine marks
# with a header which of these ask for a person's right; the server sets that header, and the
# person's name and role, and nothing of it is signed. So nothing is here that would matter who
# asked: a job is checked by the signature that it brings (job_files).
SITE_COMMANDS = {
    "train.check_status": "is a job running? the coordinator looks for sites that are back",
    "scheduler.check_resource": "would the site take part in a job?",
    "scheduler.cancel_resource": "the job is not run after all",
    "train.deploy": "a job is brought; it must be one of ours, signed by a coordinator",
    "train.start_job": "the job is started",
    "train.abort": "the job is ended",
}
SITE_COMMANDS_OF_JOBS = {"train.notify_job_status": "the site's own job reports how it ends"}
# What a person may have the server do, if their role permits it.
SERVER_COMMANDS = {
    "_cert_login": "log in",
    "_logout": "log out",
    "_commands": "the engine's own client asks which commands there are",
    "_check_session": "the engine's own client asks whether it is still logged in",
    "check_status": "who is connected, and what runs",
    "list_jobs": "all runs",
    "get_job_meta": "one run",
    "submit_job": "start a run",
    "abort_job": "stop a run",
    "download_job": "fetch what a run left",
    "app_command": "watch a run",
}


def parse_cell_name(name: object) -> CellName | None:
    """Return what a cell of this name is; None if it is none of a federation's."""
    return _parse(name) if isinstance(name, str) and name else None


@lru_cache(maxsize=MAX_REMEMBERED)
def _parse(name: str) -> CellName | None:
    owner, dot, job = name.partition(".")
    if dot and JOB_NUMBER.fullmatch(job) is None:
        return None
    if owner.startswith(PERSON_PREFIX):
        return None if dot else CellName(Place.PERSON, owner)
    if owner == ROOT:
        return CellName(Place.SERVER_JOB, owner, job) if dot else CellName(Place.SERVER, owner)
    return CellName(Place.SITE_JOB, owner, job) if dot else CellName(Place.SITE, owner)


@lru_cache(maxsize=MAX_REMEMBERED)
def may_meet(one: CellName, other: CellName) -> bool:
    """Return whether any rule can hold between two cells: not between sites, or between jobs."""
    sites = {cell.owner for cell in (one, other) if cell.place in (SITE, SITE_JOB)}
    jobs = {cell.job for cell in (one, other) if cell.job is not None}
    return len(sites) <= 1 and len(jobs) <= 1 and {one.place, other.place} in _PAIRS


def is_allowed(at: CellName, sender: CellName, channel: object, topic: object) -> bool:
    """Return whether a rule lets this message through."""
    if not may_meet(at, sender):
        return False
    if (channel, topic) == GOODBYE:
        return (at.place, sender.place) in CONNECTED or (sender.place, at.place) in CONNECTED
    return (at.place, sender.place, channel, topic) in _ALLOWED


def allowed_at(place: Place) -> Iterator[tuple[str, str]]:
    """Yield the channels and topics that somebody may send to a cell of this kind."""
    yield GOODBYE
    for rule in RULES:
        if rule.at is place:
            yield rule.channel, rule.topic


_PAIRS = {frozenset({rule.at, rule.sender}) for rule in RULES} | set(map(frozenset, CONNECTED))
_ALLOWED = {(rule.at, rule.sender, rule.channel, rule.topic) for rule in RULES}
