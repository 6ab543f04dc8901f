"""Kits: who can read them, what is in them, and names that want to be more than names."""

import io
import shutil
import stat
import sys
from pathlib import Path
from zipfile import ZipFile, ZipInfo

import pytest
from nvflare.fuel.utils.zip_utils import unzip_all_from_bytes

from fedminmax.cli import participant
from fedminmax.core.errors import InputError
from fedminmax.network.flare.federation_file import read_federation_file
from fedminmax.network.flare.kits import Kits, make_private, provision

OTHERS = stat.S_IRWXG | stat.S_IRWXO


@pytest.fixture
def kits(tmp_path: Path) -> Kits:
    return provision(tmp_path / "made", host="localhost", port=8002, sites=["north", "south"])


def all_kits(kits: Kits) -> list[Path]:
    return [kits.server, *kits.sites.values(), *kits.people.values()]


def test_kits_are_for_their_owners_alone(kits: Kits) -> None:
    for kit in all_kits(kits):
        assert stat.S_IMODE(kit.stat().st_mode) == 0o700
        (key,) = kit.rglob("*.key")
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
    (authority,) = kits.authority.iterdir()
    assert stat.S_IMODE(authority.stat().st_mode) == 0o600


def test_a_kit_that_lost_its_modes_gets_them_back(kits: Kits, tmp_path: Path) -> None:
    """As after a stay in an archive that keeps none."""
    copied = tmp_path / "copied"
    shutil.copytree(kits.sites["north"], copied)
    for path in (copied, *copied.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    assert make_private(copied) == [copied / "startup" / "client.key"]
    assert make_private(copied) == []
    assert not copied.stat().st_mode & OTHERS
    assert not (copied / "startup" / "client.key").stat().st_mode & OTHERS


def test_the_owner_is_told_that_others_could_read_a_key(
    kits: Kits, capsys: pytest.CaptureFixture[str]
) -> None:
    kit = kits.sites["north"]
    (kit / "startup" / "client.key").chmod(0o644)
    participant._close_kit(kit)
    said = capsys.readouterr()
    assert "other users of this machine could read" in said.err + said.out
    participant._close_kit(kit)
    assert "warning" not in "".join(capsys.readouterr())


def test_a_kit_of_another_that_is_open_is_not_used(
    kits: Kits, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit = kits.sites["north"]
    kit.chmod(0o755)

    def not_yours(path: Path, mode: int) -> None:
        raise PermissionError(1, f"no right to give {path} mode {mode:o}")

    monkeypatch.setattr(Path, "chmod", not_yours)
    with pytest.raises(InputError, match=f"have its owner run chmod -R go-rwx {kit}"):
        make_private(kit)


def test_no_kit_has_a_script_that_starts_the_engine_as_it_comes(kits: Kits) -> None:
    for kit in all_kits(kits):
        names = {path.name for path in kit.rglob("*")}
        assert not any(name.endswith((".sh", ".ipynb", ".py")) for name in names)
        assert not any(
            path.stat().st_mode & stat.S_IXUSR for path in kit.rglob("*") if path.is_file()
        )


HOSTS = ("../up", "a/b", "a\\\\b", "<b>host</b>", "[red]host", "")
PEOPLE = ("../../up@place.org", "a/b@place.org", "<b>@place.org", "[red]a@place.org", "a b@c.org")
SITE_NAMES = (
    "../up",
    "a/b",
    ".",
    "..",
    "<b>",
    "[red]",
    "_admin_1",
    "a.b",
    "server",
    "localhost",
    "",
)


@pytest.mark.parametrize(
    ("host", "person", "site"),
    [
        *((host, "ann@lab.org", "north") for host in HOSTS),
        *(("localhost", person, "north") for person in PEOPLE),
        *(("localhost", "ann@lab.org", site) for site in SITE_NAMES),
    ],
)
def test_names_are_names_and_no_paths_or_markup(
    host: str, person: str, site: str, tmp_path: Path
) -> None:
    file = tmp_path / "a" / "b" / "federation.toml"
    file.parent.mkdir(parents=True)
    file.write_text(
        f'sites = ["{site}"]\n[server]\nhost = "{host}"\n[people]\n"{person}" = "coordinator"\n'
    )

    def make() -> None:
        described = read_federation_file(file)
        names = {"host": described.host, "sites": described.sites, "people": described.people}
        provision(file.parent / "kits", port=described.port, **names)  # type: ignore[arg-type]

    with pytest.raises(InputError):
        make()
    assert not any(tmp_path.rglob("*.key"))


@pytest.mark.skipif(sys.platform == "win32", reason="links need a right there")
def test_what_is_fetched_brings_no_links_and_leaves_its_folder_nowhere(tmp_path: Path) -> None:
    """Results and jobs travel as zip files, which the engine unpacks."""
    out = tmp_path / "out"
    out.mkdir()
    link = ZipInfo("link")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    for name in (link, ZipInfo("../up"), ZipInfo("/tmp/up")):  # noqa: S108
        content = io.BytesIO()
        with ZipFile(content, "w") as archive:
            archive.writestr(name, "/etc/passwd")
        with pytest.raises(ValueError, match="unsafe"):
            unzip_all_from_bytes(content.getvalue(), str(out))
    assert not any(out.iterdir())
    assert not any(path.is_symlink() for path in tmp_path.rglob("*"))
