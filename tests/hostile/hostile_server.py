"""A server that tells sites what it likes, in front of the honest code of four sites.

It is the honest server's code with two changes: between it and the sites stands whatever an attack
does to a site's payload, and it does not check what sites signed. Everything that leaves a site is
kept, refusals included.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from fedminmax.network.secure.messages import upload_from_bytes
from fedminmax.network.secure.totals import Attempt
from fedminmax.network.server.run import run_plan
from fedminmax.network.site.journal import Event, read_journal
from fedminmax.network.site.sender import Credentials
from fedminmax.network.site.settings import SiteSettings
from fedminmax.network.site.site import AnsweringSite, Site
from fedminmax.network.wire.calls import Endpoint
from fedminmax.network.wire.codec import RefusedError
from fedminmax.network.wire.plan import NetworkPlan
from tests.network.masked_problem import FOUR_SITES
from tests.network.network_problem import DirectTransport
from tests.network.secure.masked_sites import federation_certifier, kit

# What an attack does to the payload that one site gets with one question.
Attack = Callable[[str, str, dict[str, Any]], None]


def honest(_site: str, _question: str, _payload: dict[str, Any]) -> None:
    """Change nothing."""


class AttackedSites(DirectTransport):
    """Four sites with the default policy, in one job; a new object is a new job."""

    def __init__(self, folder: Path, attack: Attack = honest, **policy: Any) -> None:
        super().__init__(folder)
        authority = federation_certifier().authority
        self.folder, self._attack = folder, attack
        self.answering = {
            site: AnsweringSite(
                Site(
                    site,
                    SiteSettings(folder / f"{site}.csv", **policy),
                    folder / f"{site}-kept",
                    FOUR_SITES,
                    Credentials(kit(site), authority),
                )
            )
            for site in FOUR_SITES
        }
        self.left: list[tuple[str, str, bytes | str]] = []

    def answer(self, site: str, question: str, words: Mapping[str, object]) -> object:
        """One site's answer to the payload that the attack makes of this."""
        if question == "present":
            return b""
        payload = dict(words)
        self._attack(site, question, payload)
        message = self.answering[site].answer(Endpoint(question), payload)
        self.left.append((site, question, message))
        if isinstance(message, str):
            raise RefusedError(message)
        return message

    def said(self, question: str) -> set[str]:
        """What sites answered to a question in the clear."""
        return {text for _, asked, text in self.left if asked == question and isinstance(text, str)}

    def logged(self, site: str) -> list[str]:
        """The refusals in a site's own log."""
        entries = read_journal(self.folder / f"{site}-kept")
        return [entry.reason for entry in entries if entry.event is Event.REFUSED]


def run_attack(
    plan: NetworkPlan, sites: AttackedSites, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> str | None:
    """Run the plan with a server that does not look at signatures; return how it failed."""

    def unchecked(attempt: Attempt, message: object, site: str) -> Any:
        return upload_from_bytes(message, attempt._ask, attempt._layout, site)

    monkeypatch.setattr(Attempt, "_checked", unchecked)
    return run_plan(plan, sites, folder).error


def changed_json(payload: dict[str, Any], name: str, change: Callable[[Any], None]) -> None:
    """Change one JSON message of a payload."""
    content = json.loads(payload[name])
    change(content)
    payload[name] = json.dumps(content).encode()
