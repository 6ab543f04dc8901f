"""A publisher on this machine: serves a folder's files over HTTP, and may break off in one."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


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
