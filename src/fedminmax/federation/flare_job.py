"""A plan as a job of NVIDIA FLARE: three JSON files that name installed classes, and no code."""

import json
import shutil
from pathlib import Path

from fedminmax.federation.network_plan import NetworkPlan, plan_to_bytes

THREADS_AT_THE_SERVER = 100
# One works, one waits for it if the server lost patience, and others say that the site is there.
THREADS_AT_A_SITE = 4
# Many sites that start on one busy machine take their time.
SECONDS_TO_MEET = 600


def write_job(folder: Path, plan: NetworkPlan) -> Path:
    """Write the job's folder, in place of an earlier one, and return it."""
    job = folder / plan.run
    shutil.rmtree(job, ignore_errors=True)
    config = job / "app" / "config"
    config.mkdir(parents=True)
    _write(
        job / "meta.json",
        {
            "name": plan.run,
            "resource_spec": {},
            "min_clients": plan.minimum_sites,
            "deploy_map": {"app": ["@ALL"]},
        },
    )
    _write(config / "config_fed_server.json", _server(plan))
    _write(config / "config_fed_client.json", _site())
    return job


def _server(plan: NetworkPlan) -> dict[str, object]:
    controller = {
        "id": "controller",
        "path": "nvflare.collab.runtime.controller.CollabController",
        "args": {
            "server_obj_id": "_server",
            "collab_obj_ids": [],
            "max_call_threads": THREADS_AT_THE_SERVER,
            "sync_task_timeout": SECONDS_TO_MEET,
        },
    }
    server = {
        "id": "_server",
        "path": "fedminmax.federation.flare_server.FlareServer",
        "args": {"plan": plan_to_bytes(plan).decode()},
    }
    return {"format_version": 2, "workflows": [controller], "components": [server]}


def _site() -> dict[str, object]:
    executor = {
        "path": "nvflare.collab.runtime.executor.CollabExecutor",
        "args": {
            "client_obj_id": "_client",
            "collab_obj_ids": [],
            "max_call_threads": THREADS_AT_A_SITE,
        },
    }
    site = {"id": "_client", "path": "fedminmax.federation.flare_site.FlareSite", "args": {}}
    return {
        "format_version": 2,
        "executors": [{"tasks": ["*"], "executor": executor}],
        "components": [site],
    }


def _write(path: Path, content: dict[str, object]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
