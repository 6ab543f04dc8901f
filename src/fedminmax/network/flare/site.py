"""The site's half of a job on NVIDIA FLARE: its published questions, answered by ``AnsweringSite``.

The engine would send the text of an exception, with its traceback, to the server: none may leave
here.
"""

import logging
from pathlib import Path

import torch
from nvflare.collab import collab

from fedminmax.network.flare.allow_list import is_installed
from fedminmax.network.flare.federation_file import AUTHORITY_CERTIFICATE, is_ours, read_roster
from fedminmax.network.secure.session import read_authority, read_identity
from fedminmax.network.site.journal import KEPT_FOLDER, Journal
from fedminmax.network.site.sender import Credentials
from fedminmax.network.site.settings import SETTINGS_FILE, read_site_settings
from fedminmax.network.site.site import FAILED, AnsweringSite, Site, refuse
from fedminmax.network.wire.calls import ARGUMENTS, Endpoint

LOG = logging.getLogger("fedminmax.site")
OPEN_DOORS = "its engine was not started by fedminmax; start it with 'fedminmax site start'"
UNKNOWN = "the server asks something that this site does not answer"


class FlareSite:
    """Answers bytes, or the reason for a refusal as text."""

    def __init__(self) -> None:
        self._site: AnsweringSite | None = None

    @collab.publish
    def present(self) -> bytes:
        """Reply that this site is connected, also while it works."""
        return b""

    @collab.publish
    def call(self, endpoint: object, payload: object) -> bytes | str:
        """Answer any other question of the server."""
        kit = Path(collab.workspace.get_root_dir())
        journal = Journal(kit / KEPT_FOLDER)
        # What came may be of any type, whatever the engine's signature says.
        if not isinstance(endpoint, str) or endpoint not in ARGUMENTS:
            return refuse(journal, Endpoint.PRESENT, UNKNOWN)
        asked = Endpoint(endpoint)
        if asked is Endpoint.PREPARE:
            # The engine's own threads and other jobs share the machine.
            torch.set_num_threads(1)
            # Where NVIDIA FLARE has provisioned the site, its doors are its administrators' choice.
            if is_ours(kit) and not is_installed():
                return refuse(journal, asked, OPEN_DOORS)
            try:
                # One for the whole job: it remembers which plan it has taken.
                self._site = self._site or _site_of(kit, collab.site_name)
            except Exception:
                LOG.exception("the kit cannot be read")
                return refuse(journal, asked, FAILED)
        if self._site is None:
            return refuse(journal, asked, "this site was asked before it could prepare")
        return self._site.answer(asked, payload)


def _site_of(kit: Path, name: str) -> AnsweringSite:
    own = read_site_settings(Path(collab.workspace.get_site_config_dir()) / SETTINGS_FILE)
    roster, credentials = read_roster(kit), _credentials(kit, name)
    return AnsweringSite(Site(name, own, kit / KEPT_FOLDER, roster, credentials))


def _credentials(kit: Path, site: str) -> Credentials:
    """Read the key that the kit's own certificate is for, and the federation's authority."""
    startup = kit / "startup"
    identity = read_identity(site, startup / "client.key", startup / "client.crt")
    return Credentials(identity, read_authority(startup / AUTHORITY_CERTIFICATE))
