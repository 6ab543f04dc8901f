"""A small web server for the page of `fedminmax watch`, for this machine alone.

It listens on the loopback address, answers only if the request names this machine (a web site whose
name was pointed at this machine does not, so it cannot read the page), and only below a path that
nobody else knows: other people who use this machine cannot guess it. The page may load nothing from
elsewhere, and no other page may show it.
"""

import secrets
import sys
import threading
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from hmac import compare_digest
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any

from fedminmax import __version__
from fedminmax.core.errors import InputError
from fedminmax.live.watch import LiveRun
from fedminmax.report.live_page import Drawings, render_live, up_to_date

LOOPBACK = "127.0.0.1"
OUR_NAMES = ("127.0.0.1", "localhost", "[::1]")
SECONDS_BETWEEN_LOOKS = 1.0
SECONDS_TO_END = 10.0
# Styles of single elements are allowed: curves have them. Scripts are not, but for our own file.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
STYLES, SCRIPT = ("report.css", "watch.css"), "watch.js"


@dataclass(frozen=True)
class Answer:
    """What a request gets; ``tag`` changes with the content."""

    kind: str
    content: bytes
    tag: str


@dataclass
class Shown:
    """What the page shows: the last look at the run, and the figures, which several may want."""

    live: LiveRun
    looks: int = 0
    drawings: Drawings = field(default_factory=Drawings)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def update(self, live: LiveRun) -> None:
        """Show another state of the run, if it is another."""
        if live != self.live:
            self.live, self.looks = live, self.looks + 1

    def page(self) -> Answer:
        """Return the page as it is now; drawing is for one request at a time."""
        with self.lock:
            live, looks = self.live, self.looks
            self.drawings = up_to_date(self.drawings, live)
            content = render_live(live, self.drawings, __version__).encode()
            # Whether the figures lag behind is part of the state.
            tag = f'"{looks}-{self.drawings.of is live}"'
        return Answer("text/html; charset=utf-8", content, tag)


class LiveServer(ThreadingHTTPServer):
    """Answers requests below its own secret path; ``address`` is for the user's browser."""

    daemon_threads = True

    def __init__(self, port: int, shown: Shown) -> None:
        self.shown = shown
        self.root = f"/{secrets.token_urlsafe(16)}/"
        super().__init__((LOOPBACK, port), Handler)

    @property
    def address(self) -> str:
        """Where the page is."""
        return f"http://{LOOPBACK}:{self.server_address[1]}{self.root}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a browser that went away in the middle of an answer."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def find(self, path: str) -> Answer | None:
        """Return what is at this path; None if nothing is."""
        if not compare_digest(path[: len(self.root)].encode(), self.root.encode()):
            return None
        name = path[len(self.root) :]
        if not name:
            return self.shown.page()
        folder = files("fedminmax.report").joinpath("templates")
        if name == "watch.css":
            style = "\n".join(folder.joinpath(one).read_text("utf-8") for one in STYLES)
            return Answer("text/css; charset=utf-8", style.encode(), '"style"')
        if name == SCRIPT:
            script = folder.joinpath(SCRIPT).read_bytes()
            return Answer("text/javascript; charset=utf-8", script, '"script"')
        return None


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: LiveServer
    server_version = "fedminmax"
    sys_version = ""
    protocol_version = "HTTP/1.1"
    # Seconds: a connection that says nothing is closed.
    timeout = 30

    def do_GET(self) -> None:
        """Answer a request for a page or a file of it."""
        self._answer(with_content=True)

    def do_HEAD(self) -> None:
        """Answer a request for the headers alone."""
        self._answer(with_content=False)

    def _answer(self, *, with_content: bool) -> None:
        if not is_our_name(self.headers.get("Host", "")):
            self.send_error(HTTPStatus.MISDIRECTED_REQUEST, "this page is for this machine alone")
            return
        answer = self.server.find(self.path)
        if answer is None:
            self.send_error(HTTPStatus.NOT_FOUND, "use the address that fedminmax watch printed")
            return
        is_known = self.headers.get("If-None-Match") == answer.tag
        self.send_response(HTTPStatus.NOT_MODIFIED if is_known else HTTPStatus.OK)
        self.send_header("ETag", answer.tag)
        if not is_known:
            self.send_header("Content-Type", answer.kind)
            self.send_header("Content-Length", str(len(answer.content)))
        self.end_headers()
        if with_content and not is_known:
            self.wfile.write(answer.content)

    def end_headers(self) -> None:
        """Add what every answer has."""
        for name, value in HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        """Stay quiet: the terminal shows the address and nothing else."""


def is_our_name(host: str) -> bool:
    """Return whether a request's Host is a name of this machine, with any port.

    >>> is_our_name("127.0.0.1:8000"), is_our_name("[::1]"), is_our_name("example.org:8000")
    (True, True, False)
    """
    name, colon, port = host.rpartition(":")
    if not colon or not port.isdecimal():
        name = host
    return name.lower() in OUR_NAMES


@contextmanager
def serve_live(port: int, source: Generator[LiveRun]) -> Iterator[LiveServer]:
    """Serve the page of a run while the block runs; look at the run every second."""
    shown = Shown(next(source))
    try:
        server = LiveServer(port, shown)
    except OSError as error:
        source.close()
        raise InputError(
            f"--port {port} cannot be used ({error.strerror}); give another, or 0 for a free one"
        ) from error
    ended = threading.Event()
    threads = [
        threading.Thread(target=_look, args=(source, shown, ended), daemon=True),
        threading.Thread(target=server.serve_forever, daemon=True),
    ]
    with server:
        for thread in threads:
            thread.start()
        try:
            yield server
        finally:
            ended.set()
            server.shutdown()
            for thread in threads:
                thread.join(SECONDS_TO_END)


def _look(source: Generator[LiveRun], shown: Shown, ended: threading.Event) -> None:
    with closing(source):
        try:
            for live in source:
                shown.update(live)
                if ended.wait(SECONDS_BETWEEN_LOOKS):
                    return
        except Exception as error:
            # The page must not show an old state as if it were the present one.
            problem = f"Nothing is read any more ({type(error).__name__}: {error}); start again."
            shown.update(replace(shown.live, notices=(problem,)))
            raise
