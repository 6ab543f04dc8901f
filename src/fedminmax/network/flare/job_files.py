"""The files of a job, and the check of them at the server and at every site: ours, or none.

A plan becomes a job of three JSON files that name installed classes, and no code. The engine would
take any others as well: a file of the right name in a job configures what is logged by what,
connections and more, with whatever can be imported. So a participant takes a job that has these
files, with this content but for the plan, signed with the key of somebody whose certificate says
coordinator. The role is read from the certificate, which the federation's authority signed, and not
from what the server says of it.
"""

import io
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

from fedminmax.core.files import write_json
from fedminmax.network.flare.engine import (
    NVFLARE_SIG_FILE,
    NVFLARE_SUBMITTER_CRT_FILE,
    AppDeployer,
    verify_folder_signature_and_get_signers,
)
from fedminmax.network.flare.federation_file import AUTHORITY_CERTIFICATE, ROLES
from fedminmax.network.flare.rules import JOB_NUMBER
from fedminmax.network.wire.plan import NetworkPlan, plan_to_bytes

SERVER_THREADS = 100
# One works, one waits for it if the server gave up, and others reply to presence checks.
SITE_THREADS = 4
# Many sites starting on one busy machine are slow.
DEPLOY_TIMEOUT = 600
APP = "app"
SERVER_CONFIG = "config/config_fed_server.json"
SITE_CONFIG = "config/config_fed_client.json"
# The engine signs each folder.
SIGNATURES = (NVFLARE_SIG_FILE, NVFLARE_SUBMITTER_CRT_FILE)
# A plan is some kilobytes.
MAX_JOB_BYTES = 2**24
_engine_deploy = AppDeployer.deploy


def write_job(folder: Path, plan: NetworkPlan) -> Path:
    """Write the job's folder, in place of an earlier one, and return it."""
    job = folder / plan.run
    shutil.rmtree(job, ignore_errors=True)
    (job / APP / "config").mkdir(parents=True)
    write_json(
        job / "meta.json",
        {
            "name": plan.run,
            "resource_spec": {},
            "min_clients": plan.minimum_sites,
            "deploy_map": {APP: ["@ALL"]},
        },
    )
    write_json(job / APP / SERVER_CONFIG, _server(plan_to_bytes(plan).decode()))
    write_json(job / APP / SITE_CONFIG, _site())
    return job


def _server(plan: str) -> dict[str, Any]:
    controller = {
        "id": "controller",
        "path": "nvflare.collab.runtime.controller.CollabController",
        "args": {
            "server_obj_id": "_server",
            "collab_obj_ids": [],
            "max_call_threads": SERVER_THREADS,
            "sync_task_timeout": DEPLOY_TIMEOUT,
        },
    }
    server = {
        "id": "_server",
        "path": "fedminmax.network.flare.server.FlareServer",
        "args": {"plan": plan},
    }
    return {"format_version": 2, "workflows": [controller], "components": [server]}


def _site() -> dict[str, Any]:
    executor = {
        "path": "nvflare.collab.runtime.executor.CollabExecutor",
        "args": {
            "client_obj_id": "_client",
            "collab_obj_ids": [],
            "max_call_threads": SITE_THREADS,
        },
    }
    site = {"id": "_client", "path": "fedminmax.network.flare.site.FlareSite", "args": {}}
    return {
        "format_version": 2,
        "executors": [{"tasks": ["*"], "executor": executor}],
        "components": [site],
    }


def deploy_ours(
    deployer: AppDeployer,
    workspace: Any,
    job_id: str,
    job_meta: Any,
    app_name: str,
    app_data: bytes,
    fl_ctx: Any,
) -> str | None:
    """Do what the engine's own does, with a job of ours; return why another is refused."""
    authority = Path(workspace.get_file_path_in_startup(AUTHORITY_CERTIFICATE))
    problem = job_problem(job_id, app_data, authority)
    if problem is not None:
        return f"this job is refused: {problem}"
    refused: str | None = _engine_deploy(
        deployer, workspace, job_id, job_meta, app_name, app_data, fl_ctx
    )
    return refused


def job_problem(job_id: object, app: object, authority: Path) -> str | None:
    """Return why a job, as a zip file, is not one of ours; None if it is."""
    if not isinstance(job_id, str) or JOB_NUMBER.fullmatch(job_id) is None:
        return "its number is not a job's"
    if not isinstance(app, bytes) or len(app) > MAX_JOB_BYTES:
        return "it is not of the form that fedminmax writes"
    try:
        with ZipFile(io.BytesIO(app)) as archive:
            return _content_problem(archive, authority)
    except (BadZipFile, ValueError, KeyError, TypeError, LookupError) as error:
        return f"it cannot be read ({type(error).__name__})"


def _content_problem(archive: ZipFile, authority: Path) -> str | None:
    entries = [entry for entry in archive.infolist() if not entry.is_dir()]
    names = [entry.filename for entry in entries]
    signed = {f"{folder}{name}" for folder in ("", "config/") for name in SIGNATURES}
    others = sorted(set(names) - signed - {SERVER_CONFIG, SITE_CONFIG})
    if others:
        return f"it has files that no job of fedminmax has ({ascii(others[-1])[:100]})"
    if len(names) != len(set(names)) or sum(entry.file_size for entry in entries) > MAX_JOB_BYTES:
        return "it is not of the form that fedminmax writes"
    if json.loads(archive.read(SITE_CONFIG)) != _site():
        return "it asks sites for other work than fedminmax does"
    server = json.loads(archive.read(SERVER_CONFIG))
    plan = server["components"][0]["args"]["plan"]
    if not isinstance(plan, str) or server != _server(plan):
        return "it asks the server for other work than fedminmax does"
    with tempfile.TemporaryDirectory() as folder:
        archive.extractall(folder)
        verified, signers = verify_folder_signature_and_get_signers(folder, str(authority))
    if not verified or not signers:
        return "it is not signed by anybody of this federation"
    if any(role != ROLES["coordinator"] for _, _, role in signers):
        return "who signed it is not a coordinator"
    return None
