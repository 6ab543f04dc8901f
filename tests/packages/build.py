"""Build the source distribution and wheels from a copy of the source, as a release does."""

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Built:
    """The source distribution, the wheel that was built from it, and one from the checkout."""

    source: Path
    wheel: Path
    direct_wheel: Path


def build_all(folder: Path) -> Built:
    """Build everything."""
    copy = _copy(folder)
    _build(copy, folder / "released")
    (source,) = (folder / "released").glob("*.tar.gz")
    (wheel,) = (folder / "released").glob("*.whl")
    return Built(source, wheel, _direct(copy, folder))


def build_wheel(folder: Path) -> Path:
    """Build a wheel alone."""
    return _direct(_copy(folder), folder)


def _copy(folder: Path) -> Path:
    """Copy the source: what earlier builds left in the checkout must not get in."""
    copy = folder / "checkout"
    shutil.copytree(
        ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
    )
    for path in ROOT.iterdir():
        if path.is_file() and path.name != ".git":
            shutil.copy(path, copy)
    return copy


def _direct(copy: Path, folder: Path) -> Path:
    _build(copy, folder / "direct", "--wheel")
    (wheel,) = (folder / "direct").glob("*.whl")
    return wheel


def _build(copy: Path, out: Path, *options: str) -> None:
    """Build without a network: the build requirements are those of this environment."""
    words = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), *options]
    done = subprocess.run([*words, str(copy)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
