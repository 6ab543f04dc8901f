"""The site's half of a job on NVIDIA FLARE: its published questions, answered by ``AnsweringSite``.

The engine would send the text of an exception, with its traceback, to the server: none may leave
here.
"""

import logging
from pathlib import Path

import torch
from nvflare.collab import collab

from fedminmax.network.flare.allow_list import is_installed
from fedminmax.network.flare.roster import AUTHORITY_CERTIFICATE, read_roster
from fedminmax.network.secure.identity import read_authority, read_identity
from fedminmax.network.site.answering import FAILED, AnsweringSite, refuse
from fedminmax.network.site.ledger import KEPT_FOLDER, Ledger
from fedminmax.network.site.masking import Credentials
from fedminmax.network.site.requests import Endpoint, Request
from fedminmax.network.site.settings import SETTINGS_FILE, read_site_settings
from fedminmax.network.site.site import Site

LOG = logging.getLogger("fedminmax.site")
OPEN_DOORS = "its engine was not started by fedminmax; start it with 'fedminmax site start'"


class FlareSite:
    """Answers bytes, or the reason for a refusal as text."""

    def __init__(self) -> None:
        self._site: AnsweringSite | None = None

    @collab.publish
    def present(self) -> bytes:
        """Reply that this site is connected, also while it works."""
        return b""

    @collab.publish
    def prepare(self, plan: bytes) -> bytes | str:
        """Read the table and return its summary."""
        # The engine's own threads and other jobs share the machine.
        torch.set_num_threads(1)
        kit = Path(collab.workspace.get_root_dir())
        if not is_installed():
            return refuse(Ledger(kit / KEPT_FOLDER), Request(Endpoint.PREPARE), OPEN_DOORS)
        try:
            # One for the whole job: it remembers which plan it has taken.
            self._site = self._site or _site_of(kit, collab.site_name)
        except Exception:
            LOG.exception("the kit cannot be read")
            return refuse(Ledger(kit / KEPT_FOLDER), Request(Endpoint.PREPARE), FAILED)
        return self._site.answer(Endpoint.PREPARE, {"plan": plan})

    @collab.publish
    def encode(self, encoding: bytes, sizes: bytes = b"") -> bytes | str:
        """Encode the rows and return the counts by group."""
        return self._answer(Endpoint.ENCODE, encoding=encoding, sizes=sizes)

    @collab.publish
    def curvature(self, directions: bytes, secure: bytes | None = None) -> bytes | str:
        """Help to find a safe learning rate."""
        return self._answer(Endpoint.CURVATURE, directions=directions, secure=secure)

    @collab.publish
    def take_rate(self, rate: bytes) -> bytes | str:
        """Take the learning rate that the plan left open."""
        return self._answer(Endpoint.TAKE_RATE, rate=rate)

    @collab.publish
    def answer(self, run: int, order: bytes, secure: bytes | None = None) -> bytes | str:
        """Do one round's work."""
        return self._answer(Endpoint.ANSWER, run=run, order=order, secure=secure)

    @collab.publish
    def validate(self, run: int, order: bytes, secure: bytes | None = None) -> bytes | str:
        """Measure a run's last model on validation rows."""
        return self._answer(Endpoint.VALIDATE, run=run, order=order, secure=secure)

    @collab.publish
    def certify(self, run: int, order: bytes, secure: bytes | None = None) -> bytes | str:
        """Return sums for a proof of how good a run's model is."""
        return self._answer(Endpoint.CERTIFY, run=run, order=order, secure=secure)

    @collab.publish
    def measure(self, models: bytes, secure: bytes | None = None) -> bytes | str:
        """Measure the trained models on held-out rows."""
        return self._answer(Endpoint.MEASURE, models=models, secure=secure)

    @collab.publish
    def keys(self) -> bytes | str:
        """Return this job's keys for masks."""
        return self._answer(Endpoint.KEYS)

    @collab.publish
    def set_roster(self, roster: bytes) -> bytes | str:
        """Take all sites' keys for masks."""
        return self._answer(Endpoint.SET_ROSTER, roster=roster)

    @collab.publish
    def summarise(self, secure: bytes) -> bytes | str:
        """Return the masked summary of the table."""
        return self._answer(Endpoint.SUMMARISE, secure=secure)

    @collab.publish
    def count_rows(self, secure: bytes) -> bytes | str:
        """Return the masked counts by group."""
        return self._answer(Endpoint.COUNT_ROWS, secure=secure)

    @collab.publish
    def unmask(self, message: bytes) -> bytes | str:
        """Help to take the masks off a total."""
        return self._answer(Endpoint.UNMASK, message=message)

    @collab.publish
    def trace(self, message: bytes) -> bytes | str:
        """Help to find out who masked wrongly."""
        return self._answer(Endpoint.TRACE, message=message)

    def _answer(self, question: Endpoint, **payload: object) -> bytes | str:
        if self._site is None:
            kept = Path(collab.workspace.get_root_dir()) / KEPT_FOLDER
            reason = "this site was asked before it could prepare"
            return refuse(Ledger(kept), Request(question), reason)
        return self._site.answer(question, payload)


def _site_of(kit: Path, name: str) -> AnsweringSite:
    own = read_site_settings(Path(collab.workspace.get_site_config_dir()) / SETTINGS_FILE)
    roster, credentials = read_roster(kit), _credentials(kit, name)
    return AnsweringSite(Site(name, own, kit / KEPT_FOLDER, roster, credentials))


def _credentials(kit: Path, site: str) -> Credentials:
    """Read the key that the kit's own certificate is for, and the federation's authority."""
    startup = kit / "startup"
    identity = read_identity(site, startup / "client.key", startup / "client.crt")
    return Credentials(identity, read_authority(startup / AUTHORITY_CERTIFICATE))
