"""How a coordinator logs in at a server of NVIDIA FLARE, and leaves it.

The engine has no end of waiting for a server that freezes; what can be done from outside is here.
"""

import io
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

from nvflare.fuel.flare_api.api_spec import (
    AuthenticationError,
    AuthorizationError,
    InternalError,
    JobNotFound,
    NoConnection,
    NoReply,
)
from nvflare.fuel.flare_api.flare_api import Session

from fedminmax.core.errors import InputError
from fedminmax.federation.flare_streams import lighten_streams
from fedminmax.federation.server_disk import disk_is_full, full_disk_in

SECONDS_PER_LOGIN = 5.0
SECONDS_BETWEEN_LOGINS = 0.5
SECONDS_BETWEEN_CLOSINGS = 1.0
LONGEST_REASON = 300
# What a server that is there, but cannot do its work, ends a call with.
FAILURES = (InternalError, NoReply, JobNotFound)


@contextmanager
def connected(kit: Path, seconds: float, alive: Callable[[], None]) -> Iterator[Session]:
    """Log in with a person's kit; ``alive`` raises if waiting is of no more use."""
    lighten_streams()
    session = _log_in(kit, seconds, alive)
    try:
        yield session
    except AuthorizationError as error:
        raise InputError(
            f"{kit.name} may not do this in the federation; ask somebody with the role coordinator"
        ) from error
    except FAILURES as error:
        raise InputError(_failure(error)) from error
    finally:
        _close(session)


def _log_in(kit: Path, seconds: float, alive: Callable[[], None]) -> Session:
    # A server that is away is our message to the user, not the engine's.
    logging.getLogger("nvflare").setLevel(logging.CRITICAL)
    deadline = time.monotonic() + seconds
    while True:
        alive()
        try:
            # The engine prints that it connects.
            with redirect_stdout(io.StringIO()):
                return _try_once(kit)
        except AuthenticationError as error:
            raise InputError(
                f"the server does not accept {kit}; is it a person's kit of this federation?"
            ) from error
        except (NoConnection, *FAILURES) as error:
            if time.monotonic() > deadline:
                # A server that answers, but with a failure of its own, is running.
                asked = "is it running?"
                if isinstance(error, FAILURES):
                    asked = f"it failed ({_in_one_line(error)}): look into its log and its disk"
                raise InputError(
                    f"the server does not answer within {seconds:g} seconds; {asked}"
                ) from error
        time.sleep(SECONDS_BETWEEN_LOGINS)


def _failure(error: Exception) -> str:
    """Return what a call that the server failed at is told of."""
    words = _in_one_line(error)
    full = full_disk_in(words)
    if full is not None:
        return disk_is_full(full)
    return (
        f"the server failed ({words}); look into its log and its disk, and call the command again: "
        "whatever was saved is kept"
    )


def _in_one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:LONGEST_REASON]


def _try_once(kit: Path) -> Session:
    session = Session(kit.name, str(kit))
    _shake_hands(session, _certified(session, kit))
    try:
        session.try_connect(SECONDS_PER_LOGIN)
    except BaseException:
        _close(session)
        raise
    return session


def _certified(session: Session, kit: Path) -> ssl.SSLContext:
    api = session.api
    try:
        context = ssl.create_default_context(cafile=api.ca_cert)
        context.load_cert_chain(api.client_cert, api.client_key)
    except OSError as error:
        raise InputError(
            f"{kit} has no certificate and key that fit together; ask for the kit again"
        ) from error
    # Names are the engine's concern: it compares identities after the handshake.
    context.check_hostname = False
    return context


def _shake_hands(session: Session, context: ssl.SSLContext) -> None:
    """Try whether the server answers: the engine would wait for a frozen one until it thaws.

    One that freezes between this and the engine's own handshake is still waited for.
    """
    address = (session.api.host, int(session.api.port))
    try:
        with (
            socket.create_connection(address, SECONDS_PER_LOGIN) as plain,
            context.wrap_socket(plain),
        ):
            return
    except OSError as error:
        raise NoConnection(f"no handshake with {address[0]}:{address[1]}") from error


def _close(session: Session) -> None:
    """End the session.

    The engine closes its connections and waits for their ends. One that comes about in between it
    overlooks, and would wait for ever: such connections are closed here as long as it waits.
    """
    closed = threading.Event()
    threading.Thread(target=_close_latecomers, args=(session, closed), daemon=True).start()
    try:
        session.close()
    finally:
        closed.set()


def _close_latecomers(session: Session, closed: threading.Event) -> None:
    while not closed.wait(SECONDS_BETWEEN_CLOSINGS):
        if session.api.cell is None:
            continue
        manager = session.api.cell.core_cell.communicator.conn_manager
        for connector in list(manager.connectors.values()):
            if connector.stopped.is_set():
                connector.driver.shutdown()
