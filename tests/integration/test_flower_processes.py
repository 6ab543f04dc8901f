"""The example for Flower with the commands of docs/flower.md, in Flower's own processes.

The numbers are those of `fedminmax train` on the same records.
"""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import numpy as np
import polars as pl
import pytest
from examples.flower.hospitals.task import make_rows

from fedminmax.network.flare.local import free_port
from fedminmax.network.site.journal import KEPT_FOLDER
from tests.docs.blocks import blocks_of, lines_of
from tests.flower.flower_in_process import assert_same_run, simulate

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower"
SITES = ("site-1", "site-2", "site-3")
pytestmark = pytest.mark.slow


class Flower:
    """A copy of the example, Flower's own folder, and its processes."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.app = folder / "app"
        shutil.copytree(EXAMPLE, self.app, ignore=shutil.ignore_patterns("runs", ".flwr"))
        (folder / "flwr").mkdir()
        connection = f'address = "127.0.0.1:{self.port}"\ninsecure = true\n'
        text = f'[superlink]\ndefault = "hospitals"\n[superlink.hospitals]\n{connection}'
        (folder / "flwr" / "config.toml").write_text(text, encoding="utf-8")
        self.environment = os.environ | {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "FLWR_HOME": str(folder / "flwr"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
        }

    def configure(self, before: str, after: str) -> Path:
        """Change the example's configuration; return its path."""
        path = self.app / "hospitals" / "fedminmax.toml"
        text = path.read_text(encoding="utf-8")
        assert before in text
        path.write_text(text.replace(before, after), encoding="utf-8")
        return path

    @contextmanager
    def process(self, *command: str) -> Iterator[None]:
        """Run one of Flower's long-running commands, with its children, while the block runs."""
        name = f"{command[0]}-{time.monotonic_ns()}.log"
        with (self.folder / name).open("wb") as log:
            process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=self.environment,
                start_new_session=True,
            )
        try:
            yield
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(30)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def command(self, start: str, **words: object) -> list[str]:
        """Return a command of the page, with other words."""
        lines = [line for block in blocks_of("docs/flower.md") for line in lines_of(block.text)]
        (line,) = (line for line in lines if line.startswith(start))
        changes = {"8000": self.port, "/srv/runs/first": self.folder / "run", **words}
        for before, after in changes.items():
            line = line.replace(before, str(after))
        return shlex.split(line)

    @contextmanager
    def superlink(self, *options: str) -> Iterator[None]:
        """Run a SuperLink until the block ends."""
        with self.process(*self.command("flower-superlink"), *options):
            until = time.monotonic() + 60
            while True:
                try:
                    with urlopen(f"http://127.0.0.1:{self.port}/health"):
                        break
                except (URLError, ConnectionError):
                    assert time.monotonic() < until, self.logs()
                    time.sleep(0.2)
            yield

    def run(self, *command: str) -> Path:
        """Call `flwr run`; return the run folder."""
        done = subprocess.run(
            command,
            cwd=self.app,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        out = self.folder / "run"
        assert (out / "results.json").exists(), done.stdout + done.stderr + self.logs()
        return out

    def logs(self) -> str:
        """What the processes wrote."""
        paths = sorted(self.folder.glob("*.log"))
        return "\n".join(path.read_text(encoding="utf-8", errors="replace") for path in paths)


def write_tables(folder: Path) -> None:
    """Write the records of the example's simulation as tables."""
    for number, site in enumerate(SITES):
        rows = make_rows(number)
        x = np.asarray(rows.x)
        columns = {"age": x[:, 0], "pressure": x[:, 1], "sex": rows.group, "ill": rows.y}
        pl.DataFrame(columns).write_csv(folder / f"{site}.csv")


def test_the_simulation_engine_has_the_numbers_of_train(tmp_path: Path) -> None:
    flower = Flower(tmp_path)
    config = flower.app / "hospitals" / "fedminmax.toml"
    write_tables(config.parent)
    with flower.superlink("--simulation"):
        simulation = flower.command("flwr run . --stream --federation-config")
        run = flower.run(*simulation, "--run-config", f'out="{tmp_path / "run"}"')
    assert_same_run(run, simulate(config, tmp_path / "simulated"))


def test_the_deployment_engine_has_the_numbers_of_train(tmp_path: Path) -> None:
    flower = Flower(tmp_path)
    config = flower.configure(
        'name = "fedminmax-fast"', 'name = "fedminmax-fast"\nrounds = 2\nbaseline = "none"'
    )
    write_tables(config.parent)
    with flower.superlink(), ExitStack() as nodes:
        for site in SITES:
            table, kept = config.parent / f"{site}.csv", tmp_path / site
            words = {'data="north.csv"': f'data="{table}"', 'folder="north"': f'folder="{kept}"'}
            changes = {**words, 'site="north"': f'site="{site}"', "9094": free_port()}
            nodes.enter_context(flower.process(*flower.command("flower-supernode", **changes)))
        sites = ",".join(SITES)
        run = flower.run(*flower.command("flwr run . hospitals", **{"north,south,west": sites}))
        assert all((tmp_path / site / KEPT_FOLDER).is_dir() for site in SITES)
    assert_same_run(run, simulate(config, tmp_path / "simulated"))
