"""Whether the server or the site of a kit is running on this machine, and reaches its server.

A kit runs once: two processes with one certificate would disconnect each other. The check is
light, without the engine, because containers repeat it every few seconds.
"""

import json
import os
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fedminmax.core.errors import InputError
from fedminmax.core.files import held, is_held, write_text

LOCK_FILE = "running.lock"
RUNNING_FILE = "running.txt"
SERVER_FILE = "fed_server.json"
SITE_FILE = "fed_client.json"
SECONDS_TO_CONNECT = 5.0
# A check of another process shares the lock for an instant.
SECONDS_FOR_CHECKS = 0.5


@dataclass(frozen=True)
class Presence:
    """Which process runs a kit, and what keeps it from its server; None if nothing does."""

    process: str | None
    problem: str | None


def presence(kit: Path) -> Presence:
    """Look whether this kit is running, and whether its server answers."""
    process = _running_process(kit)
    return Presence(process, None if process is None else connection_problem(kit))


def is_server_kit(kit: Path) -> bool:
    """Return whether this is the kit of a server."""
    return (kit / "startup" / SERVER_FILE).is_file()


@contextmanager
def only_one(kit: Path) -> Iterator[None]:
    """Lock the kit while the block runs, and note which process holds it."""
    note = kit / RUNNING_FILE
    with held(kit / LOCK_FILE, SECONDS_FOR_CHECKS) as ours:
        if not ours:
            who = _noted(kit) or "another process"
            raise InputError(f"{kit} is in use by {who}; stop that first, or leave it running")
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        write_text(note, f"process {os.getpid()} on {socket.gethostname()}, since {since}\n")
        try:
            yield
        finally:
            note.unlink(missing_ok=True)


def _running_process(kit: Path) -> str | None:
    noted = _noted(kit)
    # A process that was killed leaves its note, but not the lock.
    return noted if noted is not None and _is_locked(kit / LOCK_FILE) else None


def _is_locked(path: Path) -> bool:
    locked = is_held(path)
    if locked is not None:
        return locked
    with held(path) as free:
        return not free


def _noted(kit: Path) -> str | None:
    try:
        return (kit / RUNNING_FILE).read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return None


def tls_context(
    kit: Path, authority: str | Path, certificate: str | Path, key: str | Path
) -> ssl.SSLContext:
    """Return what connects with a kit's certificate; refuse a kit without one."""
    try:
        context = ssl.create_default_context(cafile=authority)
        context.load_cert_chain(certificate, key)
    except OSError as error:
        raise InputError(
            f"{kit} has no certificate and key that fit together; ask for the kit again"
        ) from error
    # Names are the engine's concern: it compares identities after the handshake.
    context.check_hostname = False
    return context


def connection_problem(kit: Path) -> str | None:
    """Try to reach the server with the certificate of this kit; return the problem, or None."""
    startup = kit / "startup"
    owner, settings = ("server", SERVER_FILE) if is_server_kit(kit) else ("client", SITE_FILE)
    content = json.loads((startup / settings).read_text(encoding="utf-8"))
    address = content["servers"][0]["service"]["target"]
    host, port = address.rsplit(":", 1)
    own = startup / f"{owner}.crt", startup / f"{owner}.key"
    try:
        context = tls_context(kit, startup / "rootCA.pem", *own)
        plain = socket.create_connection((host, int(port)), SECONDS_TO_CONNECT)
    except InputError as error:
        return str(error)
    except OSError as error:
        return f"the server at {address} cannot be reached ({error})"
    with plain:
        try:
            with context.wrap_socket(plain) as secure:
                # The verdict on our certificate comes with the first bytes, if any.
                refused = not secure.recv(1)
        except TimeoutError:
            return None
        except (ssl.SSLError, ConnectionError):
            refused = True
    if refused:
        return (
            f"the server at {address} refuses this kit's certificate, or it is not the server of "
            "this kit: ask the coordinator for a new kit"
        )
    return None
