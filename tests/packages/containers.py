"""The example's containers as processes of this machine, as close as that goes without an engine.

Commands, healthchecks, mounts and variables come from compose.yaml and the Dockerfile. A mounted
folder is replaced by its place on this machine, in every word; variables are those of the image
alone. The installed package is the one that the image installs. Users, capabilities and the
read-only root are not tried.
"""

import json
import os
import re
import shlex
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import yaml

from tests.packages.build import ROOT
from tests.packages.environments import Environment

INSTALLED = "/opt/fedminmax"
# Seconds: a busy machine is no reason to fail.
PATIENCE = 600


@dataclass(frozen=True)
class Image:
    """What the Dockerfile says: which extras it installs, and how its last stage runs."""

    extras: str
    entrypoint: list[str]
    folder: str
    user: str
    variables: dict[str, str]


def read_image() -> Image:
    """Read the Dockerfile."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line.split(" ", 1) for line in text.splitlines() if line and line[0] != "#"]
    last = max(place for place, (word, *_) in enumerate(lines) if word == "FROM")
    stage = {line[0]: line[1] for line in lines[last:]}
    (extras,) = re.findall(r"'\.\[([\w,]+)\]'", text)
    variables = dict(word.split("=", 1) for word in shlex.split(stage["ENV"]))
    entrypoint = json.loads(stage["ENTRYPOINT"])
    return Image(extras, entrypoint, stage["WORKDIR"], stage["USER"], variables)


@dataclass
class Containers:
    """A compose file whose services run here; ``running`` are those that are up."""

    folder: Path
    environment: Environment
    image: Image
    services: dict[str, Any]
    running: dict[str, psutil.Popen] = field(default_factory=dict)

    def compose(self, words: list[str]) -> None:
        """Do what `docker compose` does with these words, as far as the example uses it."""
        action, *rest = words
        if action == "run":
            self._run(rest)
        elif action == "up":
            for service in self._always():
                self.running[service] = self._start(service, self.services[service]["command"])
        elif action == "down":
            self.stop()
        else:
            assert action == "build", words

    def is_healthy(self, service: str) -> bool:
        """Run a service's healthcheck in its container."""
        kind, *words = self.services[service]["healthcheck"]["test"]
        assert kind == "CMD"
        code: int = self._start(service, words, entrypoint=[]).wait(PATIENCE)
        return code == 0

    def stop(self) -> None:
        """Send every container's first process what an engine sends, and wait for it."""
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            process.wait(PATIENCE)
        self.running.clear()

    def _always(self) -> list[str]:
        return [name for name, service in self.services.items() if "profiles" not in service]

    def _run(self, words: list[str]) -> None:
        entrypoint = None
        while words[0].startswith("--"):
            option = words.pop(0)
            if option == "--entrypoint":
                entrypoint = [words.pop(0)]
        service, *own = words
        own = own or self.services[service]["command"]
        process = self._start(service, own, entrypoint=entrypoint)
        out, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, out

    def _start(
        self, service: str, words: list[str], entrypoint: list[str] | None = None
    ) -> psutil.Popen:
        mounts = self._mounts(service)
        before = self.image.entrypoint if entrypoint is None else entrypoint
        program, *rest = [_translated(word, mounts) for word in [*before, *words]]
        installed = str(self.environment.folder)
        variables = {
            name: value.replace(INSTALLED, installed).replace("$PATH", os.defpath)
            for name, value in self.image.variables.items()
        }
        return psutil.Popen(
            [str(self.environment.folder / "bin" / program), *rest],
            cwd=_translated(self.image.folder, mounts, self.folder),
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if service not in self._always() else subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def _mounts(self, service: str) -> dict[str, Path]:
        """Return the place on this machine of every mounted path; all of them must exist."""
        found = {}
        for entry in self.services[service]["volumes"]:
            here, inside = entry.split(":")[:2]
            found[inside] = self.folder / here
            assert found[inside].exists(), entry
        return found


def _translated(word: str, mounts: dict[str, Path], default: object = None) -> str:
    for inside, here in mounts.items():
        if word == inside or word.startswith(f"{inside}/"):
            return f"{here}{word.removeprefix(inside)}"
    return word if default is None else str(default)


def read_services(folder: Path) -> dict[str, Any]:
    """Read the services of the example's compose file."""
    services: dict[str, Any] = yaml.safe_load((folder / "compose.yaml").read_text())["services"]
    return services


def commands_of(page: Path) -> list[list[str]]:
    """Return the words of every command on the example's page, in order."""
    blocks = re.findall(r"```sh\n(.*?)```", page.read_text(), re.DOTALL)
    return [shlex.split(line) for block in blocks for line in block.splitlines()]
