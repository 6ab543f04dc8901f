"""The site's half of a job on NVIDIA FLARE: its published questions, answered by ``Site``.

The engine would send the text of an exception, with its traceback, to the server. A message about
a table may quote a row, so only refusals of what the server asked for go out with their reason;
everything else stays in the site's own log.
"""

import logging
import threading
from collections.abc import Callable
from pathlib import Path

import torch
from nvflare.collab import collab

from fedminmax.federation.flare.roster import AUTHORITY_CERTIFICATE, read_roster
from fedminmax.federation.flare.streams import reduce_stream_overhead
from fedminmax.federation.secure.identity import read_authority, read_identity
from fedminmax.federation.site.masking import Credentials
from fedminmax.federation.site.settings import SETTINGS_FILE, read_site_settings
from fedminmax.federation.site.site import Site
from fedminmax.federation.wire.codec import RefusedError

KEPT_FOLDER = "fedminmax_kept"


class FlareSite:
    """Answers bytes, or the reason for a refusal as text."""

    def __init__(self) -> None:
        reduce_stream_overhead()
        self._site: Site | None = None
        self._log = logging.getLogger("fedminmax.site")
        # An order that the server gave up on may still be running when the next one arrives.
        self._work = threading.Lock()

    @collab.publish
    def present(self) -> bytes:
        """Reply that this site is connected, also while it works."""
        return b""

    @collab.publish
    def prepare(self, plan: bytes) -> bytes | str:
        """Read the table and return its summary."""
        settings = Path(collab.workspace.get_site_config_dir()) / SETTINGS_FILE
        kept = Path(collab.workspace.get_root_dir()) / KEPT_FOLDER
        # The engine's own threads and other jobs share the machine.
        torch.set_num_threads(1)

        def begin() -> bytes:
            kit, name = Path(collab.workspace.get_root_dir()), collab.site_name
            own = read_site_settings(settings)
            self._site = Site(name, own, kept, read_roster(kit), _credentials(kit, name))
            return self._site.prepare(plan)

        return self._guarded(begin)

    @collab.publish
    def encode(self, encoding: bytes) -> bytes | str:
        """Encode the rows and return the counts by group."""
        return self._guarded(lambda: self._present().encode(encoding))

    @collab.publish
    def curvature(self, directions: bytes, secure: bytes | None = None) -> bytes | str:
        """Help to find a safe learning rate."""
        return self._guarded(lambda: self._present().curvature(directions, secure))

    @collab.publish
    def take_rate(self, rate: bytes) -> bytes | str:
        """Take the learning rate that the plan left open."""
        return self._guarded(lambda: self._present().take_rate(rate))

    @collab.publish
    def answer(self, run: int, order: bytes, secure: bytes | None = None) -> bytes | str:
        """Do one round's work."""
        return self._guarded(lambda: self._present().answer(run, order, secure))

    @collab.publish
    def validate(self, run: int, order: bytes, secure: bytes | None = None) -> bytes | str:
        """Measure a run's last model on validation rows."""
        return self._guarded(lambda: self._present().validate(run, order, secure))

    @collab.publish
    def certify(self, run: int, order: bytes, secure: bytes | None = None) -> bytes | str:
        """Return sums for a proof of how good a run's model is."""
        return self._guarded(lambda: self._present().certify(run, order, secure))

    @collab.publish
    def measure(self, models: bytes, secure: bytes | None = None) -> bytes | str:
        """Measure the trained models on held-out rows."""
        return self._guarded(lambda: self._present().measure(models, secure))

    @collab.publish
    def keys(self) -> bytes | str:
        """Return this job's keys for masks."""
        return self._guarded(lambda: self._present().keys())

    @collab.publish
    def set_roster(self, roster: bytes) -> bytes | str:
        """Take all sites' keys for masks."""
        return self._guarded(lambda: self._present().set_roster(roster))

    @collab.publish
    def summarise(self, secure: bytes) -> bytes | str:
        """Return the masked summary of the table."""
        return self._guarded(lambda: self._present().summarise(secure))

    @collab.publish
    def count_rows(self, secure: bytes) -> bytes | str:
        """Return the masked counts by group."""
        return self._guarded(lambda: self._present().count_rows(secure))

    @collab.publish
    def unmask(self, message: bytes) -> bytes | str:
        """Help to take the masks off a total."""
        return self._guarded(lambda: self._present().unmask(message))

    def _present(self) -> Site:
        if self._site is None:
            raise RefusedError("this site was asked before it could prepare")
        return self._site

    def _guarded(self, work: Callable[[], bytes]) -> bytes | str:
        try:
            with self._work:
                return work()
        except RefusedError as error:
            self._log.warning("refused: %s", error)
            return str(error)
        except Exception:  # noqa: BLE001 - no traceback may leave the site
            self._log.exception("the work failed")
            return "its work failed; the reason is in this site's log"


def _credentials(kit: Path, site: str) -> Credentials:
    """Read the key that the kit's own certificate is for, and the federation's authority."""
    startup = kit / "startup"
    identity = read_identity(site, startup / "client.key", startup / "client.crt")
    return Credentials(identity, read_authority(startup / AUTHORITY_CERTIFICATE))
