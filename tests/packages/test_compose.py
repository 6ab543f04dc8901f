"""The example with containers, command by command from its page, as processes on loopback."""

import re
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fedminmax.network.flare.federation_file import read_federation_file
from fedminmax.network.flare.local import free_port
from tests.packages.build import ROOT, build_wheel
from tests.packages.containers import (
    PATIENCE,
    Containers,
    commands_of,
    read_image,
    read_services,
)
from tests.packages.environments import install

EXAMPLE = ROOT / "examples" / "compose"
PARTICIPANTS = ["server", "north", "south", "west"]


@pytest.fixture
def containers(tmp_path: Path) -> Iterator[Containers]:
    """A copy of the example whose server has a free port of this machine."""
    folder = tmp_path / "compose"
    shutil.copytree(
        EXAMPLE, folder, ignore=shutil.ignore_patterns("kits", "runs", "tables", ".env")
    )
    described = folder / "federation.toml"
    text = described.read_text().replace('"server"', '"localhost"')
    described.write_text(text.replace("8002", str(free_port())))
    image = read_image()
    environment = install(build_wheel(tmp_path), image.extras, tmp_path / "environment")
    found = Containers(folder, environment, image, read_services(folder))
    try:
        yield found
    finally:
        found.stop()


def healthy(containers: Containers) -> list[bool]:
    with ThreadPoolExecutor(4) as workers:
        return list(workers.map(containers.is_healthy, PARTICIPANTS))


@pytest.mark.slow
def test_from_nothing_to_the_report(containers: Containers) -> None:
    folder = containers.folder
    seen = []
    for program, *words in commands_of(folder / "README.md"):
        if program == "mkdir":
            (folder / words[-1]).mkdir()
        elif program == "docker":
            assert words.pop(0) == "compose"
            containers.compose(words)
        else:
            assert program == "echo"
        if words[0] == "up":
            deadline = time.monotonic() + PATIENCE
            while not all(healthy(containers)):
                assert time.monotonic() < deadline
            seen.append("healthy")
        elif words[0] == "down" or "check" in words:
            assert healthy(containers) == [False] * 4
            seen.append("unhealthy")
    assert seen == ["unhealthy"] * 3 + ["healthy", "unhealthy"]
    page = (folder / "report.html").read_text()
    assert "female" in page
    lines = (folder / "runs" / "compose" / "rounds.jsonl").read_text().splitlines()
    assert all('"took_part": ["north", "south", "west"]' in line for line in lines)


def test_nobody_is_root_and_everybody_sees_one_kit() -> None:
    assert read_image().user.split(":")[0] not in ("0", "root")
    services = read_services(EXAMPLE)
    for name, service in services.items():
        assert service["user"].startswith("${FEDMINMAX_USER:?"), name
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        assert "ports" not in service
    kits = {
        name: [volume.split(":")[0] for volume in services[name]["volumes"] if "kits" in volume]
        for name in (*PARTICIPANTS, "coordinator")
    }
    assert kits == {
        "server": ["./kits/server"],
        **{site: [f"./kits/sites/{site}"] for site in PARTICIPANTS[1:]},
        "coordinator": ["./kits/people/ann@example.org"],
    }
    described = read_federation_file(EXAMPLE / "federation.toml")
    assert list(described.sites) == PARTICIPANTS[1:]
    assert described.host == services["server"]["hostname"]


def test_the_image_is_built_from_what_the_build_context_holds() -> None:
    """Everything is left out but what .dockerignore names, and that is what is copied."""
    rules = (ROOT / ".dockerignore").read_text().splitlines()
    context = {rule.removeprefix("!") for rule in rules if rule.startswith("!")}
    assert "*" in rules
    dockerfile = (ROOT / "Dockerfile").read_text()
    copies = re.findall(r"^COPY (?!--)(.*) \S+$", dockerfile, re.MULTILINE)
    assert {name for line in copies for name in line.split()} == context
    assert all((ROOT / name).exists() for name in context)
