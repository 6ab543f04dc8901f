"""Real processes: what a hostile site, a hostile server and a member get out of honest processes.

South and the server run other code, which sends what these tests tell it to, over the connections
that their certificates open. North is honest, and so is everything else of the engine.
"""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from nvflare.fuel.utils.zip_utils import zip_directory_to_bytes
from nvflare.lighter.utils import load_private_key_file, sign_folders

from fedminmax.network.flare.job_files import write_job
from fedminmax.network.flare.rules import SERVER_COMMANDS, Place, allowed_at
from fedminmax.network.flare.session import connected
from tests.hostile.engine_federation import (
    MEMBER,
    ROUNDS,
    SERVER_KIT,
    Attack,
    HostileFederation,
    Said,
    coordinator_kit,
    finished,
    hostile_federation,
)
from tests.hostile.engine_handlers import BY_THEIR_CONTENT, ON_DEMAND, closed_at
from tests.hostile.engine_handlers import SERVER_COMMANDS as CLOSED_COMMANDS

# The engine leaves its sockets to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning"),
    pytest.mark.slow,
]
SERVER, SERVER_JOB = "localhost-main", "localhost-job"
SOUTH, SOUTH_JOB = "south-main", "south-job"
STREAMED = "sm__STREAM/sm__DATA/"
UNANSWERED = ("timeout", "None")
REFUSED = "this command is refused"
NOT_ALLOWED = "not allowed"
ANOTHER = "it speaks for somebody else"


@dataclass(frozen=True)
class Case:
    """An attack, who refuses it, and what that one's log says of it in one line."""

    attack: Attack
    refused_by: str
    logged: tuple[str, ...]

    @property
    def name(self) -> str:
        """What the test is called."""
        own = self.attack
        parts = [own.source, own.to, own.channel, own.topic, own.command, own.payload, own.origin]
        return " ".join(str(part)[:40] for part in parts if part is not None)


# logging.config.dictConfig calls whatever a formatter's "()" names.
CALLS_ANYTHING = (
    '{"version": 1, "formatters": {"f": {"()": "os.mkdir", "path": "dict-config"}}, "handlers": '
    '{"h": {"class": "logging.StreamHandler", "formatter": "f"}}, "root": {"handlers": ["h"]}}'
)
COMMANDS = (
    ("sys.shell", "head -n 3 north.csv"),
    ("sys.shell", "cat startup/client.key"),
    ("sys.shell", "cat local/fedminmax.json"),
    ("sys.info", None),
    ("sys.report_env", None),
    ("sys.report_version", None),
    ("sys.configure_site_log", "DEBUG"),
    ("sys.configure_site_log", CALLS_ANYTHING),
    ("train.configure_job_log", "DEBUG"),
    ("train.configure_job_log", CALLS_ANYTHING),
    ("train.get_scopes", None),
    ("train.delete_run", None),
    ("train.abort_task", None),
    ("train.shutdown", None),
    ("train.restart", None),
    ("resource_manager.report_resources", None),
    ("info.show_stats", None),
)
DIAGNOSTICS = ("cells", "peers", "process_info", "config_vars", "comm_config", "echo", "stop")
# A question of our own protocol, from another site.
CALL = {
    "collab__protocol_version": 1,
    "collab__target_name": "north",
    "collab__method_name": "present",
}


def kind_of(attack: Attack) -> str:
    """What a log calls it."""
    return f"{STREAMED if attack.streamed else ''}{attack.channel}/{attack.topic}"


def from_others(source: str, origin: str) -> Iterator[Case]:
    """What a site, or the server's job, sends: the server passes none of it on."""

    def case(*words: object, **own: object) -> Case:
        attack = Attack(source, *words, **own)  # type: ignore[arg-type]
        return Case(
            attack, SERVER_KIT, (f"refused at server: {kind_of(attack)}", origin, NOT_ALLOWED)
        )

    for command, payload in COMMANDS:
        yield case("north", "admin", "admin", payload, command)
    for topic in DIAGNOSTICS:
        for to in ("north", "north.JOB", "server"):
            yield case(to, "_net_manager", topic, "x")
    for topic in ("show_stats", "configure_job_log", "abort_task"):
        yield case("north.JOB", "client_command", topic, "DEBUG")
    if source != SERVER_JOB:
        yield case("north.JOB", "collab", "call", {"kwargs": {}}, streamed=True, headers=CALL)
    yield case("north", "cellnet.channel", "bulk", [])
    yield case("server", "task", "fire_event", {})
    yield case("server", "hci_channel", "command", "{}", streamed=True)


def from_the_server() -> Iterator[Case]:
    """What the server itself sends, in its own name or in another's: a site refuses it."""

    def case(*words: object, why: str = NOT_ALLOWED, **own: object) -> Case:
        attack = Attack(SERVER, *words, **own)  # type: ignore[arg-type]
        said = (
            f"refused at {attack.to}",
            kind_of(attack),
            f"from {attack.origin or 'server'}",
            why,
        )
        return Case(attack, "north", said)

    for topic in DIAGNOSTICS:
        for to in ("north", "north.JOB"):
            yield case(to, "_net_manager", topic, "x")
    for topic in ("show_stats", "configure_job_log", "abort_task", "abort"):
        yield case("north.JOB", "client_command", topic, "DEBUG")
    # Passed on for others, or said to be.
    shell = ("head -n 3 north.csv", "sys.shell")
    yield case("north", "admin", "admin", *shell, origin="south")
    yield case("north", "admin", "admin", *shell, origin="server.JOB")
    yield case("north", "admin", "train.notify_job_status", *shell, origin="north.JOB", why=ANOTHER)
    yield case("north.JOB", "client_command", "abort", {}, origin="north", why=ANOTHER)
    yield case("north", "admin", "admin", *shell, origin="nobody.at.all", why="no participant")
    # Addresses to connect to.
    yield case("north", "admin", "admin", *shell, conn_url="tcp://localhost:9", why="an address")


def in_anothers_name() -> Iterator[Case]:
    """What a site sends to the server, in the name of another."""
    for source, origin in ((SOUTH, "north"), (SOUTH_JOB, "north.JOB"), (SOUTH, "server")):
        attack = Attack(source, "server", "task", "quit", {}, origin=origin)
        yield Case(attack, SERVER_KIT, ("refused at server: task/quit", origin, ANOTHER))


CASES = [
    *from_others(SOUTH, "south"),
    *from_others(SOUTH_JOB, "south.JOB"),
    *from_others(SERVER_JOB, "server.JOB"),
    *from_the_server(),
    *in_anothers_name(),
]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostileFederation]:
    with hostile_federation(tmp_path_factory.mktemp("hostile")) as running:
        yield running
    # Nothing of all this has disturbed the run.
    assert finished(running) == list(range(1, ROUNDS + 1))


@pytest.mark.parametrize("place", [*Place][:4])
def test_every_handler_of_the_installed_engine_is_known(
    hostile: HostileFederation, place: Place
) -> None:
    """A handler of a new version is closed, as all are; here it is named, to be decided about."""
    found = {(channel, topic) for at, channel, topic in hostile.handlers() if at == place.name}
    allowed, closed = set(allowed_at(place)), closed_at(place)
    assert found - allowed - closed - BY_THEIR_CONTENT == set()
    assert closed - found <= ON_DEMAND
    assert allowed & closed == set()


@pytest.fixture(scope="module")
def answers(hostile: HostileFederation) -> dict[str, Said]:
    """All attacks of the list, made at once."""
    said = hostile.send([case.attack for case in CASES])
    return {case.name: own for case, own in zip(CASES, said, strict=True)}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_it_is_not_answered_and_named_where_it_is_refused(
    hostile: HostileFederation, answers: dict[str, Said], case: Case
) -> None:
    said = answers[case.name]
    assert (said.code, said.text) == UNANSWERED
    words = [word.replace("JOB", hostile.job) for word in case.logged]
    assert hostile.is_logged(case.refused_by, *words)


def test_a_site_carries_out_what_a_run_needs_and_nothing_else(
    hostile: HostileFederation,
) -> None:
    attacks = [
        Attack(SERVER, "north", "admin", "admin", payload, command) for command, payload in COMMANDS
    ]
    for attack, said in zip(attacks, hostile.send(attacks), strict=True):
        assert said.text == REFUSED
        assert hostile.is_logged(
            "north", "refused at north: command", f"{attack.command}", "from server", NOT_ALLOWED
        )
    needed = Attack(SERVER, "north", "admin", "admin", None, "train.check_status")
    (said,) = hostile.send([needed])
    assert hostile.job in said.text


NAMES_OF_FOLDERS = ("local", "../south", "startup", "x --set y", "/", "")


@pytest.mark.parametrize("topic", ["train.deploy", "train.start_job", "train.abort"])
def test_a_job_is_a_number_and_no_folder(hostile: HostileFederation, topic: str) -> None:
    attacks = [
        Attack(SERVER, "north", "admin", "admin", None, topic, {"job_id": name, "job_meta": {}})
        for name in NAMES_OF_FOLDERS
    ]
    assert {said.text for said in hostile.send(attacks)} == {REFUSED}
    assert (hostile.kit("north") / "local" / "fedminmax.json").exists()
    assert hostile.is_logged("north", topic, "from server", "its job has no number")


NEW_JOB = "00000000-0000-4000-8000-000000000000"


def signed_job(hostile: HostileFederation, folder: Path, signer: Path | None) -> Path:
    """A job's app as the coordinator writes it, signed with the key of a person's kit."""
    app = write_job(folder, hostile.plan) / "app"
    if signer is not None:
        startup = signer / "startup"
        key = load_private_key_file(startup / "client.key")
        sign_folders(str(app), key, str(startup / "client.crt"))
    return app


def brought(hostile: HostileFederation, app: Path) -> str:
    """Let the server bring this job to north, and return what north says."""
    content = zip_directory_to_bytes(str(app), "")
    headers = {"job_id": NEW_JOB, "app_name": "app", "job_meta": {"job_id": NEW_JOB}}
    deploy = Attack(
        *(SERVER, "north", "admin", "admin", {"hex": content.hex()}, "train.deploy", headers)
    )
    (said,) = hostile.send([deploy])
    return said.text


def test_a_site_takes_a_job_of_a_coordinator_as_it_is_and_no_other(
    hostile: HostileFederation, tmp_path: Path
) -> None:
    coordinator = coordinator_kit(hostile)
    member = hostile.federation.kits.people[MEMBER]
    app = signed_job(hostile, tmp_path / "unsigned", None)
    assert "unsigned job rejected" in brought(hostile, app)
    app = signed_job(hostile, tmp_path / "member", member)
    assert "who signed it is not a coordinator" in brought(hostile, app)
    app = write_job(tmp_path / "logging", hostile.plan) / "app"
    (app / "config" / "log_config.json").write_text("{}")
    startup = coordinator / "startup"
    key = load_private_key_file(startup / "client.key")
    sign_folders(str(app), key, str(startup / "client.crt"))
    assert "files that no job of fedminmax has ('config/log_config.json')" in brought(hostile, app)
    app = signed_job(hostile, tmp_path / "changed", coordinator)
    config = app / "config" / "config_fed_client.json"
    config.write_text(config.read_text().replace('"*"', '"sync"'))
    assert "does not pass signature verification" in brought(hostile, app)
    shutil.rmtree(app)
    app = signed_job(hostile, tmp_path / "honest", coordinator)
    assert brought(hostile, app) == "deployed app to north"


def test_a_member_gets_the_list_of_runs_and_nothing_else(hostile: HostileFederation) -> None:
    kit = hostile.federation.kits.people[MEMBER]
    with connected(kit, 60.0, lambda: None) as session:
        assert session.list_jobs()
        known = {name for name in session.api.server_cmd_reg.cmd_map if "." not in name}
        # A command of a new version is closed, as all are; here it is named.
        assert known - {*SERVER_COMMANDS} - CLOSED_COMMANDS == set()
        for name in sorted(CLOSED_COMMANDS):
            said = str(session.api.server_execute(f"{name} client north"))
            assert REFUSED in said
            assert hostile.is_logged(SERVER_KIT, f"refused at server: command '{name}'")
        for name in ("submit_job x", f"abort_job {hostile.job}", f"download_job {hostile.job}"):
            assert "not authorized" in str(session.api.server_execute(name)).lower()


def test_secrets_are_not_in_the_list_of_processes_and_not_in_logs(
    hostile: HostileFederation,
) -> None:
    """Every user can read the words that a process was started with."""
    processes = [
        member
        for process in hostile.federation.processes.values()
        for member in (process, *process.children(recursive=True))
    ]
    given = [process.environ() for process in processes]
    secrets = {
        own[name]
        for own in given
        for name in own
        if name.startswith("NVFLARE") and ("TOKEN" in name or "SIGNATURE" in name)
    }
    # A job's process logs in with what its parent gave it.
    assert secrets
    words = " ".join(word for process in processes for word in process.cmdline())
    logs = "".join(hostile.output(name) for name in (SERVER_KIT, "north", "south", "west"))
    assert not any(secret in words or secret in logs for secret in secrets - {hostile.job})
