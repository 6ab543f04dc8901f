"""Start-up kits of NVIDIA FLARE: certificates for everyone, and strict rules at every participant.

Every kit allows four classes, two of ours and two of the engine's, and no code that travels with a
job; nobody may run shell commands at a site, and a site's log stays with the site. The server
listens on the address given. A site's kit has a README for its administrator: what to do, what
leaves the site, what does not.
"""

import io
import json
import os
import stat
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cryptography.x509 import CertificateSigningRequest

from fedminmax.core.errors import InputError
from fedminmax.core.files import write_json, write_text
from fedminmax.network.flare.engine import (
    Provisioner,
    prepare_builders,
    prepare_project,
)
from fedminmax.network.flare.federation_file import certify_requests, write_rosters
from fedminmax.network.site.settings import SETTINGS_FILE, SiteSettings, site_settings_text

PROJECT = "fedminmax"
OTHERS = stat.S_IRWXG | stat.S_IRWXO
COORDINATOR = "coordinator@fedminmax.org"
ONE_PERSON = {COORDINATOR: "project_admin"}
NO_REQUESTS: Mapping[str, CertificateSigningRequest] = MappingProxyType({})
ALLOWED_CLASSES = (
    "fedminmax.network.flare.server.FlareServer",
    "fedminmax.network.flare.site.FlareSite",
    "nvflare.collab.runtime.controller.CollabController",
    "nvflare.collab.runtime.executor.CollabExecutor",
)
RIGHTS = ("submit_job", "clone_job", "manage_job", "download_job", "view", "operate", "app_command")
FORBIDDEN = ("shell_commands", "byoc", "server-predeployed-flwr")
BUILDERS = (
    {"path": "nvflare.lighter.impl.workspace.WorkspaceBuilder"},
    {
        "path": "nvflare.lighter.impl.static_file.StaticFileBuilder",
        "args": {"config_folder": "config", "scheme": "tcp"},
    },
    {"path": "nvflare.lighter.impl.cert.CertBuilder"},
    {"path": "nvflare.lighter.impl.signature.SignatureBuilder"},
)
# With these the engine would be started as it comes, with its doors open.
ENGINE_SCRIPTS = ("startup/*.sh", "startup/*.ipynb", "startup/readme.txt", "readme.txt")
KEY_INSIDE = """\
This folder is yours alone: it holds the private key of `{site}`. Keep it on the machine that
holds your table, readable for you only, and give it to nobody, not even to the coordinator."""
KEY_OUTSIDE = """\
This folder has no private key. Copy the `{site}.key` that `fedminmax site request {site}` made at
your site to `startup/client.key` here. Then keep the folder on the machine that holds your table,
readable for you only, and give the key to nobody, not even to the coordinator."""
SEEN_IN_TOTALS = """\
Such sums are not rows, and yours are masked: the server learns only totals over more than two
thirds of all sites, unless fedminmax.toml says `secure_aggregation = false`; `site check` says
which it is. Totals also tell something: a group that only your site has is in them as it is."""
SEEN_SEPARATELY = """\
Such sums are not rows, but the server's operator sees yours separately, and can learn from
them: from a group of one row, for example, its values."""
README = """# {site}: taking part in a federation

{key}

1. Install the version of fedminmax that the coordinator names, with the extras `cli` and `flare`:
   `pip install './fedminmax-VERSION-py3-none-any.whl[cli,flare]'`
2. Look at what would leave your site, before anything is sent:
   `fedminmax site check --kit . --data YOUR_TABLE.csv --suppress-below 20`
   (fedminmax.toml in this folder says which columns are read, and how; if it is not here, the
   coordinator sends it to you)
3. Take part: `fedminmax site start --kit .` - end it with Ctrl-C at any time.
4. See what left: `fedminmax site log --kit .`

## What leaves your site
- Before the first round: how many rows each group and class has, how often each listed category
  occurs, and the sum and the sum of squares of each number column. For an additive model or a
  network also how many values are in each cell of a grid, and sums over all rows by bin, by
  category and by two of these, from which smoothing is chosen. If the learning rate was left open,
  also sums over each group's rows from which a safe one is found.
- In each round, of the method and of its baseline: the sum of losses and the number of rows by
  group, and what the method needs to change the model: one vector as long as the model, or with
  `fedminmax-fast` one for each group and, for an additive or linear model, weighted sums of
  products of every two columns. `site check` lists it for your table.
- After training: by group, the number of held-out rows, the sums of their scores and of products
  of these scores; of two classes, counts of rows by score; of an additive model, by group and by
  bin or category of every column, the number of training rows and sums of their slopes and second
  derivatives.

{seen} Groups with fewer rows than
`--suppress-below` are not disclosed: your site then takes no part, or, with `--small-groups merge`,
puts them into one group. This policy is noted in local/fedminmax.json.

## What does not
No row, no name or path of a table, no log. No code comes to your site: it runs what you installed.

## Network
Your machine connects to {host}:{port} (mutual TLS) and listens to nobody from outside.

## Leaving
End the process and delete this folder. Rounds that you took part in cannot be undone.

More, with what the server could infer: docs/sites.md and docs/threat_model.md of fedminmax.
"""


@dataclass(frozen=True)
class Kits:
    """Where the kits of all participants are, and the key that certified them."""

    server: Path
    people: Mapping[str, Path]
    sites: Mapping[str, Path]
    authority: Path


def provision(
    folder: Path,
    *,
    host: str,
    port: int,
    sites: Sequence[str],
    people: Mapping[str, str] = ONE_PERSON,
    requests: Mapping[str, CertificateSigningRequest] = NO_REQUESTS,
) -> Kits:
    """Make kits for a server at this address, these sites and these people with their roles.

    Kits of sites that sent a request hold a certificate for it, and no key.
    """
    participants: list[dict[str, object]] = [
        {"name": host, "type": "server", "fed_learn_port": port, "admin_port": port},
    ]
    participants += [{"name": site, "type": "client"} for site in sites]
    participants += [
        {"name": person, "type": "admin", "role": role} for person, role in people.items()
    ]
    described = {
        "api_version": 3,
        "name": PROJECT,
        "participants": [entry | {"org": PROJECT} for entry in participants],
        "builders": [dict(builder) for builder in BUILDERS],
    }
    # Keys are in there before they get their modes.
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        # The engine prints progress; the result is in the kits.
        with redirect_stdout(io.StringIO()):
            project = prepare_project(described)
            Provisioner(str(folder), prepare_builders(described)).provision(project)
    except ValueError as error:
        raise InputError(f"the engine refuses this federation: {error}") from error
    made = folder / PROJECT / "prod_00"
    kits = Kits(
        made / host,
        {person: made / person for person in people},
        {site: made / site for site in sites},
        folder / PROJECT / "state",
    )
    # This key admits further sites: only the coordinator may have it.
    for path in kits.authority.rglob("*"):
        path.chmod(0o600)
    for kit in (kits.server, *kits.sites.values(), *kits.people.values()):
        make_private(kit)
        for pattern in ENGINE_SCRIPTS:
            for path in kit.glob(pattern):
                path.unlink()
    for kit in (kits.server, *kits.sites.values()):
        write_json(kit / "local" / "authorization.json", _authorization())
    for kit in kits.sites.values():
        write_json(kit / "local" / "resources.json", _site_resources(kit))
    write_rosters(kits.authority, sites, kits.sites.values())
    if requests:
        certify_requests(kits.authority, kits.sites, requests)
    return kits


def make_private(kit: Path) -> list[Path]:
    """Let nobody but the owner look into a kit; return the keys that others could read.

    Copying, or an archive, may have lost the modes that a kit was made with.
    """
    if os.name != "posix":
        return []
    keys = sorted(kit.glob("startup/*.key"))
    exposed = [key for key in keys if key.stat().st_mode & OTHERS]
    try:
        for path in (kit, kit / "startup", *keys):
            mode = stat.S_IMODE(path.stat().st_mode)
            if mode & OTHERS:
                path.chmod(mode & ~OTHERS)
    except PermissionError as error:
        raise InputError(
            f"other users of this machine can look into {kit}, which is not yours; have its owner "
            f"run chmod -R go-rwx {kit}"
        ) from error
    return exposed


def write_server_settings(kit: Path) -> None:
    """Let the server of this kit keep its files in the kit, wherever that is now."""
    write_json(kit / "local" / "resources.json", _server_resources(kit.absolute()))


def site_name(kit: Path) -> str:
    """Return whose kit this is."""
    path = kit / "startup" / "fed_client.json"
    if not path.is_file():
        raise InputError(f"{kit} is not a site's kit; give the folder that the coordinator sent")
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["client"]["fqsn"])
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path} is damaged; copy the kit again, or ask the coordinator for it"
        ) from error


def write_site_settings(kit: Path, settings: SiteSettings) -> None:
    """Write a site's own settings into its kit."""
    write_text(kit / "local" / SETTINGS_FILE, site_settings_text(settings))


def _authorization() -> dict[str, object]:
    """Everything but code and shell for the coordinator; members may look."""
    member = dict.fromkeys(("view", "app_command"), "any")
    coordinator = dict.fromkeys(RIGHTS, "any") | dict.fromkeys(FORBIDDEN, "none")
    return {
        "format_version": "1.0",
        "permissions": {"project_admin": coordinator, "member": member},
    }


def _server_resources(kit: Path) -> dict[str, Any]:
    resources = _resources(kit)
    storage = resources["snapshot_persistor"]["args"]["storage"]["args"]
    storage["root_dir"] = str(kit / "snapshots")
    for component in resources["components"]:
        if component["id"] == "job_manager":
            component["args"]["uri_root"] = str(kit / "jobs")
    return resources


def _site_resources(kit: Path) -> dict[str, Any]:
    resources = _resources(kit)
    resources["allow_log_streaming"] = False
    resources["components"] = [
        component for component in resources["components"] if component["id"] != "site_log_streamer"
    ]
    return resources


def _resources(kit: Path) -> dict[str, Any]:
    content = (kit / "local" / "resources.json.default").read_text(encoding="utf-8")
    resources: dict[str, Any] = json.loads(content)
    return resources | {"class_allow_list": list(ALLOWED_CLASSES)}


def site_readme(site: str, host: str, port: int, *, has_key: bool, masked: bool) -> str:
    """Return the text for one site, whose kit may be without its key."""
    key = (KEY_INSIDE if has_key else KEY_OUTSIDE).format(site=site)
    seen = SEEN_IN_TOTALS if masked else SEEN_SEPARATELY
    return README.format(site=site, host=host, port=port, key=key, seen=seen)
