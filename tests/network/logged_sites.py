"""Sites as their server reaches them, and everything that the transport saw of them."""

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from fedminmax.network.site.journal import KEPT_EVENTS, Entry, read_journal
from fedminmax.network.site.site import AnsweringSite
from fedminmax.network.wire.calls import Endpoint
from fedminmax.network.wire.codec import RefusedError
from tests.network.masked_problem import FourSites


class LoggedSites(FourSites):
    """Records the bytes of every message, refusals included, in the order in which they came."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.folder = folder
        self.answering = {name: AnsweringSite(site) for name, site in self.sites.items()}
        self.saw: list[tuple[str, str, bytes]] = []

    def answer(self, site: str, question: str, words: Mapping[str, object]) -> object:
        """One site's answer."""
        if question == "present":
            return b""
        message = self.answering[site].answer(Endpoint(question), words)
        as_bytes = message.encode() if isinstance(message, str) else message
        self.saw.append((site, question, as_bytes))
        if isinstance(message, str):
            raise RefusedError(message)
        return message

    def left(self, site: str) -> list[Entry]:
        """What the site's own log says left it."""
        entries = read_journal(self.folder / f"{site}-kept")
        return [entry for entry in entries if entry.event not in KEPT_EVENTS]

    def seen(self, site: str) -> list[tuple[str, int, str]]:
        """What left the site as the transport saw it: question, bytes, SHA-256."""
        return [
            (question, len(message), sha256(message).hexdigest())
            for name, question, message in self.saw
            if name == site
        ]
