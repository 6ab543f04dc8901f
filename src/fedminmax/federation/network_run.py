"""The server's whole work in a job: agree, then the round loop of each run, saved every round.

Called again with the same folder it goes on where it was, so that a lost job is sent once more.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

from fedminmax.core.errors import DivergedError, InputError
from fedminmax.federation.agreement import Agreement, agree
from fedminmax.federation.checkpoint import save_checkpoint
from fedminmax.federation.claim import claimed
from fedminmax.federation.network_log import ROUNDS_FILE, NetworkLog
from fedminmax.federation.network_plan import NetworkPlan
from fedminmax.federation.remote import RemoteFederation, TooFewSitesError
from fedminmax.federation.resumable import restore
from fedminmax.federation.train import Progress, members_of, start_of, train
from fedminmax.federation.transport import Transport

OUTCOME_FILE = "outcome.json"
MEMBERS_FILE = "members.safetensors"


@dataclass(frozen=True)
class Outcome:
    """How a job ended: an error's text or None, the groups, and why some sites took no part."""

    error: str | None
    group_names: tuple[str, ...]
    refused: dict[str, str]


def run_plan(plan: NetworkPlan, transport: Transport, folder: Path) -> Outcome:
    """Do all runs of the plan; how it ended is also written to the folder."""
    with claimed(folder):
        return _run_claimed(plan, transport, folder)


def _run_claimed(plan: NetworkPlan, transport: Transport, folder: Path) -> Outcome:
    (folder / OUTCOME_FILE).unlink(missing_ok=True)
    names: tuple[str, ...] = ()
    refused: dict[str, str] = {}
    error: str | None = None
    try:
        agreement = agree(plan, transport, folder)
        names, refused = agreement.encoding.group_names, dict(agreement.refused)
        for number in range(len(plan.runs)):
            _run(agreement, transport, number, run_folder(folder, plan, number))
    except (InputError, DivergedError, TooFewSitesError) as stopped:
        error = str(stopped)
    except OSError as full:
        error = (
            f"the server cannot save ({full.strerror or full}); make room there and start the run "
            "again: it goes on after its last saved round"
        )
    outcome = Outcome(error, names, refused)
    _write_json(
        folder / OUTCOME_FILE,
        {"error": error, "group_names": names, "refused": refused},
    )
    return outcome


def run_folder(folder: Path, plan: NetworkPlan, number: int) -> Path:
    """Where one of the plan's runs keeps its rounds, checkpoints and result."""
    return folder / f"{number}-{plan.runs[number].method}"


def read_outcome(folder: Path) -> Outcome | None:
    """Read how the job ended; None if it has not."""
    path = folder / OUTCOME_FILE
    if not path.exists():
        return None
    content = json.loads(path.read_text(encoding="utf-8"))
    return Outcome(content["error"], tuple(content["group_names"]), content["refused"])


def read_members(folder: Path) -> Tensor:
    """Read a finished run's models, one per line; several are a mixture."""
    return load_file(folder / MEMBERS_FILE)["members"]


def _run(agreement: Agreement, transport: Transport, number: int, folder: Path) -> None:
    plan, planned = agreement.plan, agreement.plan.runs[number]
    method = planned.build()
    federation = RemoteFederation(agreement, transport, number)
    resume, _ = restore(folder, federation, method)
    log = NetworkLog(folder / ROUNDS_FILE, 0 if resume is None else resume.round)
    progress: Progress[Any] = resume or start_of(
        federation, method, seed=plan.seed, participation=planned.participation
    )
    for done in train(
        federation,
        method,
        rounds=planned.rounds,
        seed=plan.seed,
        participation=planned.participation,
        resume=resume,
    ):
        # The line first: a round without its line would be missing in the results.
        log.add(done, plan.sites, federation.take_notes())
        save_checkpoint(folder, done.progress)
        progress = done.progress
    _write_members(folder / MEMBERS_FILE, members_of(progress, planned.iterate or method.output))


def _write_members(path: Path, members: Tensor) -> None:
    beside = path.with_suffix(".partial")
    save_file({"members": members.cpu().contiguous()}, beside)
    beside.replace(path)


def _write_json(
    path: Path, content: dict[str, Sequence[str] | dict[str, str] | str | None]
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".partial")
    beside.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    beside.replace(path)
