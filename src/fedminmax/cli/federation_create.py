"""`fedminmax federation create`: a folder to hand over to everyone."""

import shutil
import tempfile
from pathlib import Path

from fedminmax.cli.output_files import check_parents
from fedminmax.core.counted import counted
from fedminmax.core.errors import InputError
from fedminmax.data.tables.config import read_config
from fedminmax.federation.federation_file import read_federation_file, write_sites_of
from fedminmax.federation.flare_kits import provision
from fedminmax.federation.site_readme import site_readme

AGREED_FILE = "fedminmax.toml"


def create_federation(file: Path, folder: Path, config: Path | None) -> None:
    """Make the kits beside and move them into place; each site gets the agreed configuration."""
    described = read_federation_file(file)
    if config is not None:
        read_config(config)
    if folder.exists():
        raise InputError(f"{folder} exists; give another folder with --out: keys are made once")
    check_parents(folder, "--out")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".kits-") as temporary:
        beside = Path(temporary) / "kits"
        beside.mkdir(mode=0o700)
        made = Path(temporary) / "made"
        kits = provision(made, described.host, described.port, described.sites, described.people)
        kits.server.rename(beside / "server")
        for room, owners in (("sites", kits.sites), ("people", kits.people)):
            (beside / room).mkdir()
            for name, kit in owners.items():
                kit.rename(beside / room / name)
        for person in described.people:
            write_sites_of(beside / "people" / person, described.sites)
        # With this key further sites can be admitted: it is the coordinator's alone.
        authority = beside / "authority"
        kits.authority.rename(authority)
        for path in authority.rglob("*"):
            path.chmod(0o600)
        for site in described.sites:
            text = site_readme(site, described.host, described.port)
            (beside / "sites" / site / "README.md").write_text(text, encoding="utf-8")
            if config is not None:
                shutil.copyfile(config, beside / "sites" / site / AGREED_FILE)
        beside.rename(folder)
    print(
        f"{folder}: kits for the server, {counted(len(described.sites), 'site')} and "
        f"{counted(len(described.people), 'person', 'people')}; hand each folder over in private"
    )
