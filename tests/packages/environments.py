"""Environments that hold one wheel and exactly what its extras require, made without a network.

An environment is new and empty. What the wheel requires, and what that requires, is linked into
it, one folder for each distribution, from the environment that runs the tests; nothing else of
that can be seen. Then pip installs the wheel without an index: it fails if a requirement is not
there. pip never touches the links, because they are outside the environment.
"""

import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from importlib.metadata import Distribution, distribution, distributions
from pathlib import Path
from zipfile import ZipFile

from packaging.metadata import parse_email
from packaging.requirements import Requirement

# Neither the tests' own source nor a user's packages, and one thread: the runs are tiny.
VARIABLES = {
    name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP_"))
} | {"PYTHONNOUSERSITE": "1", "OMP_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Environment:
    """A new environment in which the wheel is installed."""

    folder: Path

    def fedminmax(self, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        """Run the installed command."""
        return _run(str(self.folder / "bin" / "fedminmax"), *words, cwd=cwd)

    def python(self, code: str, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        """Run a program that uses the installed package."""
        return _run(str(self.folder / "bin" / "python"), "-c", code, *words, cwd=cwd)


def install(wheel: Path, extras: str, folder: Path) -> Environment:
    """Make an environment with the wheel and these extras, such as "cli,tables"."""
    _must(sys.executable, "-m", "venv", "--without-pip", str(folder))
    environment = Environment(folder)
    add_requirements(environment, wheel, extras)
    wanted = f"{wheel}[{extras}]" if extras else str(wheel)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python")]
    _must(*pip, "install", "--quiet", "--no-index", "--no-compile", wanted)
    return environment


def add_requirements(environment: Environment, wheel: Path, extras: str) -> None:
    """Let an environment see what these extras of the wheel require."""
    links = environment.folder / "links"
    seen = [str(_linked(name, links)) for name in sorted(_required(wheel, extras))]
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = environment.folder / "lib" / version / "site-packages"
    with (packages / "required.pth").open("a") as paths:
        paths.write("\n".join(seen) + "\n")


def _required(wheel: Path, extras: str) -> set[str]:
    """Return the names of all distributions that the wheel needs with these extras."""
    with ZipFile(wheel) as content:
        (name,) = (name for name in content.namelist() if name.endswith(".dist-info/METADATA"))
        metadata, _ = parse_email(content.read(name))
    own = metadata["requires_dist"]
    done: set[tuple[str, frozenset[str]]] = set()
    open_ = _asked(own, frozenset(extras.split(",")))
    while open_:
        requirement = open_.pop()
        key = (_plain(requirement.name), frozenset(requirement.extras))
        if key in done:
            continue
        done.add(key)
        # An extra may ask for another extra of the same package.
        of_us = key[0] == "fedminmax"
        needs = own if of_us else distribution(requirement.name).requires or []
        open_ += _asked(needs, key[1])
    return {name for name, _ in done} - {"fedminmax"}


def _asked(requirements: list[str], extras: frozenset[str]) -> list[Requirement]:
    parsed = [Requirement(text) for text in requirements]
    return [
        one
        for one in parsed
        if one.marker is None
        or any(one.marker.evaluate({"extra": extra}) for extra in extras | {""})
    ]


def _linked(name: str, links: Path) -> Path:
    """Return a folder with links to the files of this distribution alone."""
    folder = links / name
    if folder.exists():
        return folder
    folder.mkdir(parents=True)
    found = distribution(name)
    for path in found.files or []:
        top = path.parts[0]
        if top in ("..", "__pycache__") or top.endswith(".pth"):
            continue
        # Several distributions may share a folder, such as `google`: its files are linked singly.
        shared = _OWNERS[top] > 1
        link = folder / (path if shared else top)
        if not link.is_symlink():
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(str(found.locate_file(path if shared else top)))
    return folder


def _tops(one: Distribution) -> set[str]:
    return {path.parts[0] for path in one.files or []}


_OWNERS = Counter(top for one in distributions() for top in _tops(one))


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _run(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words, cwd=cwd, env=VARIABLES, capture_output=True, text=True, check=False
    )


def _must(*words: str) -> None:
    done = _run(*words, cwd=Path.cwd())
    assert done.returncode == 0, done.stdout + done.stderr
