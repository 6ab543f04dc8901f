"""Sites that do not answer one of the server's questions."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from fedminmax.network.wire.codec import RefusedError
from tests.network.network_problem import DirectTransport


class SilentTransport(DirectTransport):
    """Some sites refuse one endpoint."""

    def __init__(self, folder: Path, endpoint: str, silent: Iterable[str]) -> None:
        super().__init__(folder)
        self._endpoint = endpoint
        self._silent = tuple(silent)

    def answer(self, site: str, endpoint: str, payload: Mapping[str, object]) -> object:
        if endpoint == self._endpoint and site in self._silent:
            raise RefusedError(f"{site} is not connected")
        return super().answer(site, endpoint, payload)
