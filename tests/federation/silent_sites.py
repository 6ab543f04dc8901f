"""Sites that do not answer one of the server's questions."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from fedminmax.federation.wire.codec import RefusedError
from tests.federation.network_problem import DirectTransport


class SilentTransport(DirectTransport):
    """Some sites refuse one question."""

    def __init__(self, folder: Path, question: str, silent: Iterable[str]) -> None:
        super().__init__(folder)
        self._question = question
        self._silent = tuple(silent)

    def answer(self, site: str, question: str, words: Mapping[str, object]) -> object:
        if question == self._question and site in self._silent:
            raise RefusedError(f"{site} is not connected")
        return super().answer(site, question, words)
