"""What the coordinator fetched stays until replaced; who is there is who was heard of.

The description of a federation names its mistakes; a person's kit knows the sites.
"""

from pathlib import Path

import pytest
from nvflare.apis.fl_exception import FLCommunicationError
from nvflare.fuel.flare_api.api_spec import (
    ClientInfo,
    InternalError,
    NoConnection,
    ServerInfo,
    SystemInfo,
)

from fedminmax.network.flare import session as flare_login
from fedminmax.network.flare.federation_file import (
    SITES_FILE,
    read_federation_file,
    read_sites_of,
    write_sites_of,
)
from fedminmax.network.flare.server import RESULTS_FOLDER
from fedminmax.network.flare.session import (
    connected,
    fetch_results,
    has_idle_site,
    jobs_at_sites,
    wait_for_sites,
)
from tests.cli.kits import DESCRIBED
from tests.complaints import complaint_of


class MadeUpSession:
    """As much of a connection as fetching needs; a job leaves these files."""

    def __init__(self, left: dict[str, str] | None) -> None:
        self._left = left

    def download_job_result(self, job: str, destination: str) -> str:
        location = Path(destination) / job
        location.mkdir()
        if self._left is not None:
            results = location / "workspace" / RESULTS_FOLDER
            results.mkdir(parents=True)
            for name, text in self._left.items():
                (results / name).write_text(text)
        return str(location)


class LostSession:
    """A connection that ends in the middle."""

    def download_job_result(self, job: str, destination: str) -> str:
        (Path(destination) / job).mkdir()
        raise ConnectionError


def test_results_take_the_place_of_earlier_ones(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    assert fetch_results(MadeUpSession({"a": "1", "b": "1"}), "job-1", folder)
    assert fetch_results(MadeUpSession({"a": "2"}), "job-2", folder)
    assert {path.name: path.read_text() for path in folder.iterdir()} == {"a": "2"}
    assert list(tmp_path.iterdir()) == [folder]


def test_a_job_that_left_nothing_takes_nothing_away(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    assert not fetch_results(MadeUpSession(None), "job-0", folder)
    assert not folder.exists()
    assert fetch_results(MadeUpSession({"a": "1"}), "job-1", folder)
    assert not fetch_results(MadeUpSession(None), "job-2", folder)
    with pytest.raises(ConnectionError):
        fetch_results(LostSession(), "job-3", folder)
    assert {path.name: path.read_text() for path in folder.iterdir()} == {"a": "1"}


class ListingSession:
    """A server that lists sites by when it heard of them; a site that is gone blocks a command."""

    def __init__(self, heard: dict[str, float], living: dict[str, str]) -> None:
        self._heard = heard
        self._living = living

    def get_system_info(self) -> SystemInfo:
        clients = [ClientInfo(name, time) for name, time in self._heard.items()]
        return SystemInfo(ServerInfo("started", 0.0), clients, [])

    def get_client_job_status(self, names: list[str]) -> list[dict[str, str]]:
        if not set(names) <= self._living.keys():
            raise NoConnection("no answer within 5 seconds")
        return [{"client_name": name, "status": self._living[name]} for name in names]


def test_a_site_that_was_not_heard_of_is_not_there() -> None:
    living = {"north": "running", "west": "no_jobs"}
    session = ListingSession({"north": 1000.0, "west": 991.0, "south": 900.0}, living)
    assert jobs_at_sites(session, ["north", "south", "west", "east"]) == living
    assert has_idle_site(session, ["north", "south", "west"])
    assert not has_idle_site(session, ["north", "south"])
    assert wait_for_sites(session, ["north", "south"], 0.0, lambda: None) == ["south"]


def test_a_site_that_has_just_gone_does_not_end_the_connection() -> None:
    session = ListingSession({"north": 1000.0, "south": 995.0}, {"north": "no_jobs"})
    assert not has_idle_site(session, ["north", "south"])


def test_a_server_that_fails_is_told_of_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a full disk, for example, it answers any question like this."""
    full = InternalError("error: OSError: [Errno 28] No space left\non device")

    class FailingSession:
        def close(self) -> None:
            pass

    def ask() -> None:
        with connected(tmp_path, 0.0, lambda: None):
            raise full

    def log_in(_: Path) -> None:
        raise full

    with monkeypatch.context() as patched:
        patched.setattr(flare_login, "_try_once", lambda _: FailingSession())
        complaint = complaint_of(ask)
    assert complaint.startswith(
        "the server cannot save: its disk is full (No space left on device)"
    )
    monkeypatch.setattr(flare_login, "_try_once", log_in)
    assert "No space left on device): look into its log" in complaint_of(ask)


def test_a_server_that_is_slow_to_prove_itself_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that has just been started again, on a busy machine."""
    tries: list[Path] = []

    class SlowSession:
        def close(self) -> None:
            pass

    def once(kit: Path) -> SlowSession:
        tries.append(kit)
        if len(tries) == 1:
            raise FLCommunicationError("failed to challenge server: timeout")
        return SlowSession()

    monkeypatch.setattr(flare_login, "_try_once", once)
    with connected(tmp_path, 10.0, lambda: None):
        assert len(tries) == 2


def test_sites_come_back_in_their_order(tmp_path: Path) -> None:
    write_sites_of(tmp_path, ["west", "north", "a-1"])
    assert read_sites_of(tmp_path) == ("west", "north", "a-1")


@pytest.mark.parametrize("name", [".", "nowhere"])
def test_another_folder_is_no_persons_kit(name: str, tmp_path: Path) -> None:
    assert "is not a person's kit" in complaint_of(lambda: read_sites_of(tmp_path / name))


@pytest.mark.parametrize("content", ["", "{", "3", "null"])
def test_a_damaged_list_is_a_mistake_in_one_line(content: str, tmp_path: Path) -> None:
    (tmp_path / SITES_FILE).write_text(content)
    assert SITES_FILE in complaint_of(lambda: read_sites_of(tmp_path))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("port = 18444", "hots = 'a'", "[server] 'hots' is unknown; did you mean 'host'?"),
        ("[server]", "sitez = []\n[server]", "'sitez' is unknown; did you mean 'sites'?"),
        ("[server]", "x = 1\n[server]", "'x' is unknown; there is 'server', 'sites', 'people'"),
        ("sites =", "# sites =", "sites is missing; add it"),
        ('["north", "south"]', "3", "sites is 3; give a list in brackets"),
        ("[server]\nport = 18444", "server = 3", "section [server] is 3; give a section"),
    ],
)
def test_a_mistake_names_its_key(old: str, new: str, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "federation.toml"
    path.write_text(DESCRIBED.replace(old, new))
    assert complaint_of(lambda: read_federation_file(path)).startswith(f"{path}: {expected}")


def test_another_encoding_than_utf8_is_named(tmp_path: Path) -> None:
    path = tmp_path / "federation.toml"
    path.write_bytes(f"# Zürich\n{DESCRIBED}".encode("latin-1"))
    assert f"{path} is not in UTF-8" in complaint_of(lambda: read_federation_file(path))
