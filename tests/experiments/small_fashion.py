"""An excerpt of FashionMNIST that comes with the tests, in the place of the published files.

Its names and its format are the same; the product knows files by their digests, so these take the
published ones' place.

A publisher on this machine: serves a folder's files over HTTP, and may break off in one.
"""

import gzip
import hashlib
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from experiments.paper import fashion_mnist
from experiments.paper.__main__ import main
from experiments.paper.fashion_mnist import IdxFile
from tests.cli.command import ONE_THREAD, Done, done_by

EXCERPT = Path(__file__).parent / "fashion_excerpt"
TRAIN_ROWS, TEST_ROWS = 600, 300
RECORDS = ("TRAIN_IMAGES", "TRAIN_LABELS", "TEST_IMAGES", "TEST_LABELS")
ROOT = Path(__file__).parents[2]
# A process in another folder finds the experiments by this.
PATHS = [str(ROOT), *filter(None, [ONE_THREAD.get("PYTHONPATH")])]
FROM_CLONE = ONE_THREAD | {"PYTHONPATH": os.pathsep.join(PATHS)}
SMALL = [
    *["--quick", "--rows", "200", "--rounds", "60", "--local-rounds", "2", "--fast-rounds", "3"],
    *["--sites", "4", "--epochs", "2", "--batch-size", "20", "--model", "mlp"],
    *["--learning-rate", "0.1"],
]


def use_excerpt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands and functions of this process find and accept the excerpt."""
    files = tuple(_excerpt_of(file) for file in fashion_mnist.FILES)
    for name, file in zip(RECORDS, files, strict=True):
        monkeypatch.setattr(fashion_mnist, name, file)
    monkeypatch.setattr(fashion_mnist, "FILES", files)
    monkeypatch.setenv("FEDMINMAX_DATA", str(EXCERPT))


def _excerpt_of(file: IdxFile) -> IdxFile:
    content = gzip.decompress((EXCERPT / f"{file.name}.gz").read_bytes())
    # The first size is the number of rows.
    shape = (int(np.frombuffer(content, ">u4", count=1, offset=4)[0]), *file.shape[1:])
    return IdxFile(file.name, shape, hashlib.sha256(content).hexdigest())


@dataclass
class Publisher:
    """What is served; the file of this name ends after so many bytes."""

    folder: Path
    broken_name: str | None = None
    breaks_after: int = 0


@contextmanager
def published(publisher: Publisher) -> Iterator[str]:
    """Serve until the block ends; yield the address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.rsplit("/", 1)[-1]
            body = (publisher.folder / name).read_bytes()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            broken = name == publisher.broken_name
            self.wfile.write(body[: publisher.breaks_after] if broken else body)

        def log_request(self, *_: object) -> None:
            """Keep the tests' output clean."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def paper(*words: str, cwd: Path) -> Done:
    """Run `python -m experiments.paper` with these words, in this process."""
    return done_by(main, *words, cwd=cwd)


def command(*words: str) -> list[str]:
    """The command's words for a process with the environment above."""
    return [sys.executable, "-m", "experiments.paper", *words]
