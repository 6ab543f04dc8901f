"""The recipe between sites that `nvflare provision` made, started with the engine's own scripts.

The numbers are those of `fedminmax train` on the same tables.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from fedminmax.core.errors import InputError
from fedminmax.flare import ALLOWED_CLASSES, FedMinMaxRecipe
from fedminmax.network.flare.local import free_port, has_registered
from tests.docs.blocks import blocks_of
from tests.flower.flower_in_process import SITES, assert_same_run, simulate, write_config

PROJECT = """
api_version: 3
name: hospitals
description: made by the engine's own command
participants:
  - {{name: localhost, type: server, org: lab, fed_learn_port: {port}, admin_port: {port}}}
  - {{name: north, type: client, org: lab}}
  - {{name: south, type: client, org: lab}}
  - {{name: west, type: client, org: lab}}
  - {{name: ann@lab.org, type: admin, org: lab, role: project_admin}}
builders:
  - path: nvflare.lighter.impl.workspace.WorkspaceBuilder
  - path: nvflare.lighter.impl.static_file.StaticFileBuilder
    args: {{config_folder: config, scheme: tcp}}
  - path: nvflare.lighter.impl.cert.CertBuilder
  - path: nvflare.lighter.impl.signature.SignatureBuilder
"""


def provision(folder: Path) -> Path:
    """Make the kits with the engine's command; let them take our job, as docs/flare.md says."""
    project = folder / "project.yml"
    project.write_text(PROJECT.format(port=free_port()), encoding="utf-8")
    nvflare = str(Path(sys.executable).parent / "nvflare")
    command = [nvflare, "provision", "-p", str(project), "-w", str(folder)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    kits = folder / "hospitals" / "prod_00"
    for name in ("localhost", *SITES):
        local = kits / name / "local"
        resources = json.loads((local / "resources.json.default").read_text(encoding="utf-8"))
        resources["class_allow_list"] += ALLOWED_CLASSES
        if name == "localhost":
            # By default in a folder that all federations of a machine share.
            for part in resources["components"]:
                if part["id"] == "job_manager":
                    part["args"]["uri_root"] = str(folder / "jobs")
            store = resources["snapshot_persistor"]["args"]["storage"]["args"]
            store["root_dir"] = str(folder / "snapshots")
        else:
            own = {"data": str(folder / f"{name}.csv"), "sites": SITES, "suppress_below": 5}
            (local / "fedminmax.json").write_text(json.dumps(own), encoding="utf-8")
        (local / "resources.json").write_text(json.dumps(resources), encoding="utf-8")
    return kits


@contextmanager
def started(kits: Path) -> Iterator[None]:
    """Run the scripts of the kits; the block runs once the server has accepted all sites."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    processes = []
    try:
        for name in ("localhost", *SITES):
            with (kits / name / "output.txt").open("wb") as log:
                processes.append(
                    subprocess.Popen(
                        ["/bin/bash", kits / name / "startup" / "sub_start.sh"],
                        stdout=log,
                        stderr=log,
                        env=os.environ | {"PATH": path},
                        start_new_session=True,
                    )
                )
        # A busy machine starts the server later than a session waits for it.
        deadline = time.monotonic() + 120
        while not all(has_registered(kits / name, since=0) for name in SITES):
            assert time.monotonic() < deadline, logs_of(kits)
            time.sleep(0.2)
        yield
    finally:
        for process in processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def logs_of(kits: Path) -> str:
    return "\n".join(
        f"{path}\n{path.read_text(encoding='utf-8', errors='replace')[-3000:]}"
        for path in sorted(kits.glob("*/output.txt"))
    )


@pytest.mark.slow
def test_provisioned_sites_have_the_numbers_of_train(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    text = config.read_text(encoding="utf-8") + "[federation]\nsecure_aggregation = "
    kits = provision(tmp_path)
    (page,) = (block.text for block in blocks_of("docs/flare.md") if block.language == "python")
    page = page.replace("kits/ann", str(kits / "ann"))
    page = page.replace("username=", "login_timeout=60.0, username=")
    with started(kits):
        for masked in ("true", "false"):
            config.write_text(text + masked, encoding="utf-8")
            # The engine's session of a person stays in its process.
            done = subprocess.run(
                [sys.executable, "-c", page.replace("runs/first", masked)],
                cwd=tmp_path,
                capture_output=True,
                text=True,
                timeout=600,
                check=False,
            )
            assert done.returncode == 0, done.stdout + done.stderr + logs_of(kits)
            assert_same_run(tmp_path / masked, simulate(config, tmp_path / f"simulated-{masked}"))


def test_an_exported_job_has_no_code(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    with pytest.raises(InputError, match="does not say whether sums are masked"):
        FedMinMaxRecipe(config, SITES, tmp_path / "run")
    with config.open("a", encoding="utf-8") as file:
        file.write("[federation]\nsecure_aggregation = true\n")
    recipe = FedMinMaxRecipe(config, SITES, tmp_path / "run")
    recipe.export(str(tmp_path / "jobs"))
    (job,) = (tmp_path / "jobs").iterdir()
    assert job.name == recipe.name
    assert {path.suffix for path in job.rglob("*") if path.is_file()} == {".json"}
    again = FedMinMaxRecipe(config, SITES, tmp_path / "run")
    assert again.name == recipe.name
    with pytest.raises(InputError, match="has no finished run"):
        recipe.collect(None)
