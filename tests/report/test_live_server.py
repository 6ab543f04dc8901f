"""The page of `fedminmax watch`: only for this machine, and only with its own address."""

import http.client
import io
import sys
import time
from argparse import Namespace
from collections.abc import Generator, Iterator
from contextlib import closing
from urllib.parse import urlsplit

import pytest

from fedminmax.cli import watch as watch_command
from fedminmax.live.watch import LiveModel, LiveRun, Stage
from fedminmax.report.live_page import Drawings, render_live, up_to_date
from fedminmax.report.live_server import LiveServer, serve_live
from fedminmax.training.round_record import RoundRecord
from tests.complaints import complaint_of

CERTIFICATE = {"upper": 0.5, "lower": 0.4925, "penalty": 0.01, "ridge": 1e-4}
HOSTILE = '<img src=x onerror="x()">'


def record(number: int, **changed: object) -> RoundRecord:
    entry = {
        "round": number,
        "seconds": float(number),
        "risks": [0.5 - 0.01 * number, 0.25],
        "weights": [0.6, 0.4],
        "weights_over": "groups",
        "participants": [0, 1],
        "gradient_evaluations": number,
        "certificate": None,
        "validation_risks": [],
    }
    return RoundRecord.from_json(entry | changed)


def live_run(**changed: object) -> LiveRun:
    rounds = (record(1), record(2), record(3, certificate=CERTIFICATE))
    model = LiveModel("FedMinMax", rounds, planned=10, stage=Stage.RUNNING)
    known = {
        "groups": (HOSTILE, "men"),
        "sites": ("north", "south"),
        "models": (model,),
    } | changed
    return LiveRun("runs/a & b", Stage.RUNNING, "Trained.", **known)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    def source() -> Generator[LiveRun]:
        while True:
            yield live_run()

    with serve_live(0, source()) as running:
        yield running


def ask(server: LiveServer, path: str, method: str = "GET", **headers: str) -> tuple[int, str, str]:
    address = urlsplit(server.address)
    with closing(http.client.HTTPConnection(address.netloc, timeout=60)) as connection:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, headers=names)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), answer.headers.get("ETag", "")


def test_it_listens_on_this_machine_alone(server: LiveServer) -> None:
    assert server.server_address[0] == "127.0.0.1"


@pytest.mark.parametrize(
    "host", ["example.org", "example.org:80", "127.0.0.1.example.org", "[::2]", "", "localhost.:1"]
)
def test_a_site_that_points_its_name_at_this_machine_gets_nothing(
    host: str, server: LiveServer
) -> None:
    status, text, _ = ask(server, server.root, Host=host)
    assert status == 421
    assert "Trained" not in text


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:8080", "LOCALHOST", "[::1]:9"])
def test_names_of_this_machine_are_answered(host: str, server: LiveServer) -> None:
    assert ask(server, f"{server.root}watch.js", Host=host)[0] == 200


def test_nobody_finds_it_without_its_address(server: LiveServer) -> None:
    assert len(server.root) > 20
    for path in ("/", "/watch.js", f"{server.root}../", f"{server.root}page.py", server.root[:-2]):
        status, text, _ = ask(server, path)
        assert status == 404
        assert "Trained" not in text


def test_it_only_reads(server: LiveServer) -> None:
    for method in ("POST", "PUT", "DELETE"):
        assert ask(server, server.root, method)[0] == 501


def test_an_unchanged_page_is_not_sent_again(server: LiveServer) -> None:
    status, text, tag = ask(server, server.root)
    assert status == 200
    assert "Trained." in text
    assert ask(server, server.root, If_None_Match=tag) == (304, "", tag)
    assert ask(server, server.root, If_None_Match='"other"')[0] == 200


def test_a_port_that_is_taken_is_a_mistake_in_one_line(server: LiveServer) -> None:
    def again() -> None:
        def source() -> Generator[LiveRun]:
            yield live_run()

        with serve_live(int(server.server_address[1]), source()):
            pass

    assert "give another, or 0" in complaint_of(again)


def test_the_address_is_printed_while_another_thread_has_the_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The engine's login redirects what is printed, and it happens in the looks at the run."""
    elsewhere = io.StringIO()

    def source(_: Namespace) -> Generator[LiveRun]:
        monkeypatch.setattr(sys, "stdout", elsewhere)
        while True:
            yield live_run()

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(watch_command, "live_source", source)
    monkeypatch.setattr(time, "sleep", interrupt)
    watch_command.watch(Namespace(port=0, open=False))
    monkeypatch.undo()
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith("Watching at http://127.0.0.1:")
    assert last == "Stopped watching; the run is not affected."
    assert elsewhere.getvalue() == ""


def test_names_are_words_and_not_markup() -> None:
    live = live_run()
    text = render_live(live, up_to_date(Drawings(), live), "1.0")
    assert "<img" not in text
    assert "runs/a &amp; b" in text


def test_curves_are_not_drawn_again_at_once() -> None:
    first, second = live_run(), live_run(small_groups=("x",))
    drawings = up_to_date(Drawings(), first)
    assert up_to_date(drawings, first) is drawings
    assert up_to_date(drawings, second) is drawings
