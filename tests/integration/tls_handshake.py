"""A server's verdict on a certificate, asked for without the engine."""

import socket
import ssl
from pathlib import Path

SECONDS = 5.0


def speaks_tls(port: int, kit: Path, server: Path) -> bool:
    """Whether the server of this kit goes on talking to the owner of another kit's certificate."""
    context = ssl.create_default_context(cafile=server / "startup" / "rootCA.pem")
    context.load_cert_chain(kit / "startup" / "client.crt", kit / "startup" / "client.key")
    context.check_hostname = False
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as plain:
        try:
            with context.wrap_socket(plain) as secure:
                # The verdict on our certificate comes with the first bytes, if any.
                return bool(secure.recv(1))
        except TimeoutError:
            return True
        except (ssl.SSLError, ConnectionError):
            return False
