"""The rules about messages, commands, content and jobs, each by itself."""

import io
import json
from pathlib import Path
from types import SimpleNamespace
from zipfile import ZipFile

import numpy as np
import nvflare
import pytest
from nvflare.apis.shareable import Shareable
from nvflare.apis.utils.decomposers import flare_decomposers
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
from nvflare.fuel.f3.streaming.stream_const import StreamHeaderKey
from nvflare.fuel.utils import fobs
from nvflare.fuel.utils.fobs import fobs as packing
from nvflare.fuel.utils.fobs import lobs
from nvflare.fuel.utils.fobs.datum import Datum
from nvflare.fuel.utils.zip_utils import zip_directory_to_bytes
from nvflare.lighter.utils import load_private_key_file, sign_folders
from nvflare.private.fed.client.admin_commands import AdminCommands
from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors
from nvflare.private.fed.server.server_commands import ServerCommands

from fedminmax.config.planned_runs import PlannedRun
from fedminmax.config.read import read_config
from fedminmax.core.errors import InputError
from fedminmax.network.flare import allow_list, patches, rules
from fedminmax.network.flare.allow_list import RefusalLog, refusal
from fedminmax.network.flare.job_files import job_problem, write_job
from fedminmax.network.flare.kits import COORDINATOR, Kits, provision
from fedminmax.network.flare.patches import (
    COMMANDS_AND_JOBS,
    MESSAGES,
    Patch,
    apply,
    check_engine_version,
    command_problem,
    register_allowed,
)
from fedminmax.network.flare.rules import Place, is_allowed, parse_cell_name
from tests.hostile import engine_handlers
from tests.network.network_problem import plan_of, write_tables

JOB = "0f0e0d0c-0b0a-4908-8706-050403020100"
OTHER = "1f0e0d0c-0b0a-4908-8706-050403020100"
MEMBER = "member@fedminmax.org"


def test_every_command_for_a_site_is_allowed_or_closed() -> None:
    found = {
        topic for own in ClientRequestProcessors.request_processors for topic in own.get_topics()
    }
    allowed = {*rules.SITE_COMMANDS, *rules.SITE_COMMANDS_OF_JOBS}
    assert found == allowed | engine_handlers.SITE_COMMANDS
    assert not allowed & engine_handlers.SITE_COMMANDS


@pytest.mark.parametrize(
    ("commands", "channel", "closed"),
    [
        (AdminCommands.commands, "client_command", engine_handlers.JOB_COMMANDS),
        (ServerCommands.commands, "server_command", engine_handlers.SERVER_JOB_COMMANDS),
    ],
)
def test_every_command_for_a_job_is_allowed_or_closed(
    commands: list[object], channel: str, closed: set[str]
) -> None:
    found = {own.get_command_name() for own in commands}  # type: ignore[attr-defined]
    at = Place.SITE_JOB if channel == "client_command" else Place.SERVER_JOB
    allowed = {rule.topic for rule in rules.RULES if (rule.at, rule.channel) == (at, channel)}
    assert found == allowed | closed
    assert not allowed & closed


@pytest.mark.parametrize(
    "name",
    [None, 7, "", ".", "north.", f".{JOB}", "north.job", f"north.{JOB}.x", f"_admin_x.{JOB}"],
)
def test_what_is_no_participant_has_no_rights(name: object) -> None:
    parsed = parse_cell_name(name)
    assert parsed is None or not any(
        is_allowed(at, parsed, rule.channel, rule.topic)
        for rule in rules.RULES
        for at in [parse_cell_name(other) for other in ("north", "server", f"north.{JOB}")]
        if at is not None
    )


CELLS = [
    *("north", f"north.{JOB}", f"north.{OTHER}", "south", f"south.{JOB}"),
    *("server", f"server.{JOB}", f"server.{OTHER}", "_admin_1"),
]


def test_between_sites_and_between_jobs_nothing_is_allowed() -> None:
    pairs = {
        (at, sender)
        for at in CELLS
        for sender in CELLS
        for channel, topic in {(own.channel, own.topic) for own in rules.RULES} | {rules.GOODBYE}
        if is_allowed(parse_cell_name(at), parse_cell_name(sender), channel, topic)  # type: ignore[arg-type]
    }
    assert pairs
    for at, sender in pairs:
        owners = {name.partition(".")[0] for name in (at, sender)} - {"server", "_admin_1"}
        jobs = {name.partition(".")[2] for name in (at, sender)} - {""}
        assert len(owners) <= 1
        assert len(jobs) <= 1
        assert at != sender
    # People speak to the server, and to nobody else.
    assert {pair for pair in pairs if "_admin_1" in pair} == {
        ("server", "_admin_1"),
        ("_admin_1", "server"),
    }
    # A site's main process hears the server and its own jobs.
    assert {sender for at, sender in pairs if at == "north"} == {
        "server",
        f"north.{JOB}",
        f"north.{OTHER}",
    }


def message(origin: str, destination: str, channel: str, topic: str, **more: object) -> object:
    names = MessageHeaderKey
    headers = {names.ORIGIN: origin, names.DESTINATION: destination, names.MSG_TYPE: "req"}
    return SimpleNamespace(headers={**headers, names.CHANNEL: channel, names.TOPIC: topic, **more})


def why(own: str, peer: str, certified: str | None, sent: object) -> str | None:
    """What the cell ``own`` says to a message over a connection with this name and certificate."""
    expected = {"server": "localhost", f"server.{JOB}": "localhost"}
    cell = SimpleNamespace(
        my_info=SimpleNamespace(fqcn=own),
        identity_resolver=SimpleNamespace(
            resolve=lambda name: expected.get(name, name.partition(".")[0])
        ),
        waiters={"asked": None},
        fobs_ctx={},
    )
    connection = SimpleNamespace(get_conn_properties=lambda: {"peer_cn": certified})
    return refusal(cell, SimpleNamespace(name=peer), connection, sent)


def test_a_message_is_believed_as_far_as_its_certificate_goes() -> None:
    admin = ("admin", "admin")
    honest = message("server", "north", *admin)
    assert why("north", "server", "localhost", honest) is None
    for certified in (None, "", "N/A", "south", "north", "coordinator@fedminmax.org"):
        assert why("north", "server", certified, honest) is not None
    # An honest server does not pass on for others, but one that does is not believed either.
    assert why("north", "server", "localhost", message("south", "north", *admin)) == "not allowed"
    # Own processes are known by the own certificate.
    status = message(f"north.{JOB}", "north", "admin", "train.notify_job_status")
    assert why("north", f"north.{JOB}", "north", status) is None
    assert why("north", f"north.{JOB}", "south", status) is not None
    assert why("north", "server", "localhost", status) == "it speaks for somebody else"
    # At the server a site speaks for itself, and a session is a person's.
    beat = message("north", "server", "task", "heart_beat")
    assert why("server", "north", "north", beat) is None
    assert why("server", "south", "south", beat) == "it speaks for somebody else"
    login = message("_admin_1", "server", "task", "register")
    assert why("server", "_admin_1", "coordinator@fedminmax.org", login) is None
    assert why("server", "_admin_1", "south", login) is not None


def test_replies_and_pieces_are_judged_by_what_they_belong_to() -> None:
    names, streams = MessageHeaderKey, StreamHeaderKey
    reply = {names.MSG_TYPE: "reply", names.REQ_ID: "asked"}
    beat = message("server", "north", "task", "heart_beat", **reply)
    assert why("north", "server", "localhost", beat) is None
    late = message("server", "north", "task", "heart_beat", **reply | {names.REQ_ID: "other"})
    assert why("north", "server", "localhost", late) == ""
    assert why("north", "server", "localhost", message("south", "north", "x", "y", **reply))

    def piece(channel: str, topic: str) -> object:
        inside = {streams.CHANNEL: channel, streams.TOPIC: topic}
        own, to = f"server.{JOB}", f"north.{JOB}"
        return message(own, to, "sm__STREAM", "sm__DATA", **inside)

    at = f"north.{JOB}"
    assert why(at, "server", "localhost", piece("collab", "call")) is None
    assert why(at, "server", "localhost", piece("client_command", "abort")) == "not allowed"
    assert why(at, "server", "localhost", piece("return_only", "server_command:get_task")) is None
    assert why(at, "server", "localhost", piece("return_only", "_net_manager:peers")) is not None
    # A piece without a name, and one of an unknown kind.
    assert why(at, "server", "localhost", message(f"server.{JOB}", at, "sm__STREAM", "sm__DATA"))
    assert why(at, "server", "localhost", message(f"server.{JOB}", at, "sm__STREAM", "sm__NEW"))


def test_a_line_for_each_kind_and_not_for_each_message() -> None:
    lines = RefusalLog()
    assert [lines.is_due("north", "shell") for _ in range(3)] == [True, False, False]
    assert lines.is_due("north", "info")
    # Nor does it help to make up kinds: a disk is not filled.
    many = [lines.is_due(str(number)) for number in range(10 * allow_list.MAX_LINES)]
    assert sum(many) <= allow_list.MAX_LINES
    assert len(lines._last) <= allow_list.MAX_LINES


def test_a_line_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    allow_list.log_refusal("north", "south", "a\nfake line \x1b[31m" + "x" * 500, "kind", "why")
    (line,) = caplog.messages
    assert "\n" not in line
    assert "\x1b" not in line
    assert len(line) < 300


def test_an_engine_that_nobody_looked_into_is_not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    check_engine_version()
    monkeypatch.setattr(nvflare, "__version__", "2.10.0")
    with pytest.raises(
        InputError, match=r"nvflare 2\.10\.0 is installed.*install nvflare 2\.9\.\*"
    ):
        check_engine_version()


def test_an_engine_without_a_name_that_is_replaced_is_not_started() -> None:
    gone = Patch(allow_list, "no_such_name", None, "a door would stay open")
    with pytest.raises(InputError, match=r"has no .*\.no_such_name.* a door would stay open"):
        apply([gone])
    assert not hasattr(allow_list, "no_such_name")
    for patch in (*MESSAGES, *COMMANDS_AND_JOBS):
        assert hasattr(patch.owner, patch.name)


@pytest.mark.parametrize("number", ["local", "../x", "x --set y", "", 7, JOB.upper(), f"{JOB}\n"])
def test_the_number_of_a_job_is_a_number(number: object) -> None:
    for topic in rules.SITE_COMMANDS:
        assert command_problem("server", topic, {"job_id": number}) == "its job has no number"
        assert command_problem("server", topic, {"job_id": JOB}) is None


def test_a_jobs_process_reports_about_its_own_job() -> None:
    topic = "train.notify_job_status"
    assert command_problem(f"north.{JOB}", topic, {"job_id": JOB}) is None
    assert command_problem(f"north.{JOB}", topic, {"job_id": OTHER}) == "it is about another job"
    assert command_problem(f"north.{JOB}", topic, {}) == "it has no job"
    assert command_problem(f"north.{JOB}", "train.deploy", {"job_id": JOB}) == "not allowed"
    assert command_problem("server", topic, {"job_id": JOB}) == "not allowed"


def test_a_closed_command_has_no_processor() -> None:
    """The second line: what is not there cannot be reached by whatever way."""
    agent = SimpleNamespace(processors={})
    for processor in ClientRequestProcessors.request_processors:
        register_allowed(agent, processor)
    assert set(agent.processors) == {*rules.SITE_COMMANDS, *rules.SITE_COMMANDS_OF_JOBS}


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine's way to read content, with our list; as it was after the test."""
    # The engine remembers how to build what it has packed once.
    flare_decomposers.register()
    monkeypatch.setattr(packing, "_decomposers", dict(packing._decomposers))
    monkeypatch.setattr(packing.Packer, "unpack", patches.unpack_allowed)
    monkeypatch.setattr(lobs, "_get_one_section", patches.read_allowed_section)


@pytest.mark.usefixtures("closed")
def test_our_content_passes_and_the_rest_is_refused(tmp_path: Path) -> None:
    ours = Shareable({"model": b"x" * 100, "of": ("north", 3), "large": b"x" * 2**24})
    assert fobs.loads(fobs.dumps(ours)) == ours
    secret = tmp_path / "north.csv"
    secret.write_text("age")
    for other in (
        np.ones(3),
        np.float64(1.0),
        # The engine would read this file into the reply that repeats it.
        {"data": Datum.file_datum(str(secret))},
        Path,
        {1, 2},
    ):
        with pytest.raises((ValueError, TypeError, RuntimeError), match=r"refused|serial"):
            fobs.loads(fobs.dumps(other))


@pytest.mark.usefixtures("closed")
@pytest.mark.parametrize(
    "name",
    ["argparse.Namespace", "nvflare.apis.workspace.Workspace", "os.system", "subprocess.Popen"],
)
def test_a_class_is_not_built_because_a_message_names_it(name: str) -> None:
    builder = "nvflare.fuel.utils.fobs.decomposer.DataClassDecomposer"
    content = {"__fobs_type__": name, "__fobs_data__": {"data": {}}, "__fobs_dc__": builder}
    with pytest.raises(ValueError, match=f"type '{name}' is refused"):
        fobs.loads(fobs.dumps(content))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Kits:
    people = {COORDINATOR: "project_admin", MEMBER: "member"}
    folder = tmp_path_factory.mktemp("kits")
    return provision(folder, host="localhost", port=8002, sites=["north"], people=people)


def app_of(folder: Path, kit: Path | None, **changed: str) -> bytes:
    """A job's app with these files changed, signed with the key of a kit."""
    config = read_config(write_tables(folder))
    app = write_job(folder, plan_of(config, [PlannedRun("fedminmax", {}, 2)])) / "app"
    for name, text in changed.items():
        (app / "config" / f"{name}.json").write_text(text)
    if kit is not None:
        startup = kit / "startup"
        sign_folders(
            str(app), load_private_key_file(startup / "client.key"), str(startup / "client.crt")
        )
    content: bytes = zip_directory_to_bytes(str(app), "")
    return content


def test_a_job_is_ours_whole_and_signed_by_a_coordinator(made: Kits, tmp_path: Path) -> None:
    authority = made.sites["north"] / "startup" / "rootCA.pem"
    coordinator, member = made.people[COORDINATOR], made.people[MEMBER]
    good = app_of(tmp_path, coordinator)
    assert job_problem(JOB, good, authority) is None
    assert job_problem("local", good, authority) == "its number is not a job's"
    assert job_problem(JOB, b"PK", authority) == "it cannot be read (BadZipFile)"
    assert "not a coordinator" in str(job_problem(JOB, app_of(tmp_path, member), authority))
    assert "not signed" in str(job_problem(JOB, app_of(tmp_path, None), authority))
    for name in ("log_config", "comm_config", "resources"):
        problem = job_problem(JOB, app_of(tmp_path, coordinator, **{name: "{}"}), authority)
        assert f"config/{name}.json" in str(problem)
    for name, who in (("config_fed_client", "sites"), ("config_fed_server", "the server")):
        with ZipFile(io.BytesIO(good)) as archive:
            content = json.loads(archive.read(f"config/{name}.json"))
        content["components"].append({"id": "x", "path": "os.system", "args": {}})
        changed = app_of(tmp_path, coordinator, **{name: json.dumps(content)})
        assert f"it asks {who} for other work" in str(job_problem(JOB, changed, authority))


def test_a_job_of_another_federation_is_not_signed(made: Kits, tmp_path: Path) -> None:
    other = provision(tmp_path / "other", host="localhost", port=8002, sites=["north"])
    content = app_of(tmp_path, other.people[COORDINATOR])
    authority = made.sites["north"] / "startup" / "rootCA.pem"
    assert "not signed" in str(job_problem(JOB, content, authority))
