"""A listener that cannot be blocked from outside, in place of NVIDIA FLARE's own.

The engine performs one TLS handshake after the other, without a timeout: a single silent connection
would lock all others out. Here every handshake has its own thread and a timeout, and the number of
pending handshakes is limited.
"""

import logging
import socket
import sys
import threading
from typing import Any

from nvflare.fuel.f3.drivers.driver import ConnectorInfo, Driver
from nvflare.fuel.f3.drivers.tcp_driver import TcpDriver, TcpStreamServer

HANDSHAKE_TIMEOUT = 10.0
# Sites and people never need more at once: the oldest is dropped. The engine cannot serve a
# connection whose file descriptor is above 1,023.
MAX_HANDSHAKES = 300
log = logging.getLogger(__name__)


class Listener(TcpStreamServer):  # type: ignore[misc] # the engine has no types
    """Accepts connections at once; each shakes hands in its own thread, before the engine sees it.

    Args:
        driver: the engine's driver, which is notified of new connections.
        connector: the address, and the certificates.
    """

    # Connections that the system holds until they are accepted.
    request_queue_size = 128

    def __init__(self, driver: Driver, connector: ConnectorInfo) -> None:
        super().__init__(driver, connector)
        if self.ssl_context:
            self.socket.do_handshake_on_connect = False
        self._handshakes: dict[socket.socket, None] = {}
        self._lock = threading.Lock()

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection, in its own thread."""
        if self.ssl_context:
            self._handshake(request)
        super().finish_request(request, client_address)

    def _handshake(self, connection: Any) -> None:
        with self._lock:
            self._handshakes[connection] = None
            surplus = list(self._handshakes)[:-MAX_HANDSHAKES]
        for oldest in surplus:
            self._drop(oldest)
        try:
            connection.settimeout(HANDSHAKE_TIMEOUT)
            connection.do_handshake()
            connection.settimeout(None)
        finally:
            with self._lock:
                self._handshakes.pop(connection, None)

    def _drop(self, connection: Any) -> None:
        with self._lock:
            self._handshakes.pop(connection, None)
        try:
            connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            # Its own thread has ended it.
            return

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """Log why a connection ended: any client can cause this, so it is not our error."""
        log.info("connection of %s refused: %s", client_address, sys.exc_info()[1])


class ListeningDriver(TcpDriver):  # type: ignore[misc]
    """The engine's TCP driver with our listener."""

    def listen(self, connector: ConnectorInfo) -> None:
        """Accept connections until the end."""
        self.connector = connector
        self.server = Listener(self, connector)
        self.server.serve_forever()
