"""What `site start` says: that it takes part only when the server knows it, and who was first."""

import json
import os
import socket
from argparse import Namespace
from pathlib import Path

import pytest

from fedminmax.cli import participant
from fedminmax.cli.participant import Registration
from fedminmax.core.files import held
from fedminmax.network.flare.local import OUTPUT_FILE, REGISTERED
from fedminmax.network.flare.presence import (
    LOCK_FILE,
    RUNNING_FILE,
    connection_problem,
    only_one,
)
from fedminmax.network.site.settings import SETTINGS_FILE, SiteSettings, site_settings_text
from tests.cli.command import call, complaint_here


@pytest.fixture
def kit(tmp_path: Path) -> Path:
    """As much of a site's kit as these tests need; nobody listens where its server should be."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        target = f"127.0.0.1:{probe.getsockname()[1]}"
    for folder in ("startup", "local"):
        (tmp_path / folder).mkdir()
    client = {"servers": [{"service": {"target": target}}], "client": {"fqsn": "north"}}
    (tmp_path / "startup" / "fed_client.json").write_text(json.dumps(client))
    (tmp_path / "local" / SETTINGS_FILE).write_text(
        site_settings_text(SiteSettings(tmp_path / "table.csv"))
    )
    return tmp_path


def test_a_kit_that_is_in_use_is_refused_and_the_first_is_named(
    kit: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (kit / RUNNING_FILE).write_text("process 17 on hospital, since 2026-01-02 03:04:05\n")
    with held(kit / LOCK_FILE) as ours:
        assert ours
        complaint = complaint_here(capsys, "site", "start", "--kit", kit)
    assert complaint == (
        f"{kit} is in use by process 17 on hospital, since 2026-01-02 03:04:05; stop that first, "
        "or leave it running"
    )


def test_who_holds_a_kit_is_noted_while_it_runs(kit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr(participant, "check_own_key", lambda *_: None)
    monkeypatch.setattr(
        participant, "_run", lambda *_: seen.append((kit / RUNNING_FILE).read_text())
    )
    participant.run_site(Namespace(kit=kit))
    assert f"process {os.getpid()} on " in seen[0]
    assert not (kit / RUNNING_FILE).exists()


def test_a_site_takes_part_when_the_server_knows_it(
    kit: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    output = kit / OUTPUT_FILE
    # Of an earlier start.
    output.write_bytes(REGISTERED + b": north\n")
    troubles = iter(["the server cannot be reached", "the server cannot be reached", None])
    monkeypatch.setattr(participant, "connection_problem", lambda _: next(troubles))
    monkeypatch.setattr(participant, "RETRY_SECONDS", -1.0)
    registration = Registration(kit, "site north takes part")
    for _ in range(3):
        registration.check()
    with output.open("ab") as file:
        file.write(REGISTERED + b": north\n")
    for _ in range(2):
        registration.check()
    assert capsys.readouterr().err.splitlines() == [
        "fedminmax: the server cannot be reached; trying again",
        f"fedminmax: {participant.WAITING}; trying again",
        "fedminmax: site north takes part",
    ]


def test_a_kit_without_a_key_is_told_of(kit: Path) -> None:
    assert connection_problem(kit) == (
        f"{kit} has no certificate and key that fit together; ask for the kit again"
    )


def status(kit: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    with pytest.raises(SystemExit) as end:
        call("site", "status", "--kit", kit)
    return int(end.value.code or 0), capsys.readouterr().out


def test_a_site_is_healthy_only_while_it_runs(
    kit: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A note without a lock is that of a process that was killed."""
    assert status(kit, capsys) == (1, f"{kit}: not running\n")
    (kit / RUNNING_FILE).write_text("process 17 on hospital, since 2026-01-02 03:04:05\n")
    assert status(kit, capsys) == (1, f"{kit}: not running\n")
    with only_one(kit):
        code, line = status(kit, capsys)
    assert code == 1
    assert f"{kit}: runs as process {os.getpid()} on " in line
    assert "but" in line
    assert "no certificate and key that fit together" in line


def test_the_status_of_something_else_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert complaint_here(capsys, "site", "status", "--kit", tmp_path) == (
        f"{tmp_path} is not a site's kit; give the folder that the coordinator sent"
    )
