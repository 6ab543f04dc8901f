"""Downloads over real HTTP: broken off, resumed, damaged, refused; nothing half under its name."""

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from fedminmax.data import fashion_mnist as module
from fedminmax.data.fashion_mnist import (
    FILES,
    PUBLISHED_MD5,
    Fetched,
    RemoteFile,
    download,
    download_fashion_mnist,
)
from tests.complaints import complaint_of

CONTENT = np.random.default_rng(0).bytes(700_000)
MD5 = hashlib.md5(CONTENT, usedforsecurity=False).hexdigest()


@dataclass
class Publisher:
    """What the server gives, how it misbehaves, and which ranges it was asked for."""

    content: bytes = CONTENT
    knows_ranges: bool = True
    breaks_after: int | None = None
    asked: list[str] = field(default_factory=list)
    url: str = ""


@contextmanager
def serving(publisher: Publisher) -> Iterator[RemoteFile]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = self.headers.get("Range", "")
            publisher.asked.append(asked)
            start = int(asked.removeprefix("bytes=").removesuffix("-") or 0)
            if publisher.knows_ranges and start >= len(publisher.content):
                self.send_error(416)
                return
            use_range = publisher.knows_ranges and start > 0
            body = publisher.content[start if use_range else 0 :]
            self.send_response(206 if use_range else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: publisher.breaks_after])

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Keep the tests' output clean."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    publisher.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield RemoteFile(f"{publisher.url}/file.gz", MD5)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def fetch(remote: RemoteFile, path: Path) -> list[Fetched]:
    return list(download(remote, path))


def test_a_file_arrives_whole_with_its_progress(tmp_path: Path) -> None:
    with serving(Publisher()) as remote:
        steps = fetch(remote, tmp_path / "new" / "file.gz")
    assert (tmp_path / "new" / "file.gz").read_bytes() == CONTENT
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["file.gz"]
    assert steps[-1] == Fetched("file.gz", len(CONTENT), len(CONTENT))
    assert [step.done for step in steps] == sorted({step.done for step in steps})


def test_a_broken_download_is_completed_and_not_repeated(tmp_path: Path) -> None:
    publisher = Publisher(breaks_after=300_000)
    path = tmp_path / "file.gz"
    with serving(publisher) as remote:
        assert "300000 of 700000" in complaint_of(lambda: fetch(remote, path))
        assert not path.exists()
        publisher.breaks_after = None
        fetch(remote, path)
    assert path.read_bytes() == CONTENT
    assert publisher.asked == ["bytes=0-", "bytes=300000-"]


def test_leaving_the_loop_keeps_what_arrived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the process had been killed between two pieces."""
    monkeypatch.setattr(module, "CHUNK_BYTES", 1000)
    path = tmp_path / "file.gz"
    with serving(Publisher()) as remote:
        pieces = download(remote, path)
        for _ in range(5):
            next(pieces)
        pieces.close()
        assert not path.exists()
        assert 0 < (tmp_path / "file.gz.partial").stat().st_size < len(CONTENT)
        fetch(remote, path)
    assert path.read_bytes() == CONTENT


def test_a_server_without_ranges_is_asked_for_everything_again(tmp_path: Path) -> None:
    (tmp_path / "file.gz.partial").write_bytes(CONTENT[:1000])
    with serving(Publisher(knows_ranges=False)) as remote:
        fetch(remote, tmp_path / "file.gz")
    assert (tmp_path / "file.gz").read_bytes() == CONTENT


def test_a_download_that_only_lacked_its_name_gets_it(tmp_path: Path) -> None:
    (tmp_path / "file.gz.partial").write_bytes(CONTENT)
    with serving(Publisher()) as remote:
        assert fetch(remote, tmp_path / "file.gz") == []
    assert (tmp_path / "file.gz").read_bytes() == CONTENT


def test_a_wrong_file_is_refused_and_removed(tmp_path: Path) -> None:
    with serving(Publisher(content=CONTENT[:-1] + b"?")) as remote:
        assert f"instead of {MD5}" in complaint_of(lambda: fetch(remote, tmp_path / "file.gz"))
    assert list(tmp_path.iterdir()) == []


def test_no_server_is_a_one_line_complaint(tmp_path: Path) -> None:
    with serving(Publisher()) as remote:
        pass
    complaint = complaint_of(lambda: fetch(remote, tmp_path / "file.gz"))
    assert complaint.startswith(f"cannot download {remote.url}")
    assert "refused" in complaint


def test_only_missing_files_are_fetched_from_the_publisher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in FILES:
        monkeypatch.setitem(PUBLISHED_MD5, file.name, MD5)
    (tmp_path / f"{FILES[0].name}.gz").write_bytes(b"there")
    publisher = Publisher()
    with serving(publisher):
        names = {step.name for step in download_fashion_mnist(tmp_path, publisher.url)}
    assert names == {f"{file.name}.gz" for file in FILES[1:]}
    assert len(publisher.asked) == 3
