"""`site status`, and `federation status` of a server's kit: does it run here, and reach its server?

Exit code 0 says yes to both, 1 says no: healthchecks of containers read nothing else.
"""

import json
import sys
from pathlib import Path

from fedminmax.core.errors import InputError
from fedminmax.network.flare.presence import SITE_FILE, is_server_kit, presence

UNHEALTHY = 1


def show_kit_status(kit: Path, *, as_json: bool) -> None:
    """Print one line about the participant of a kit; exit with code 1 if something is wrong."""
    if not is_server_kit(kit) and not (kit / "startup" / SITE_FILE).is_file():
        raise InputError(f"{kit} is not a site's kit; give the folder that the coordinator sent")
    found = presence(kit)
    healthy = found.process is not None and found.problem is None
    if as_json:
        print(json.dumps({"healthy": healthy, "process": found.process, "problem": found.problem}))
    elif found.process is None:
        print(f"{kit}: not running")
    elif found.problem is not None:
        print(f"{kit}: runs as {found.process}, but {found.problem}")
    else:
        print(f"{kit}: runs as {found.process}, and its server accepts its certificate")
    if not healthy:
        sys.stdout.flush()
        sys.exit(UNHEALTHY)
