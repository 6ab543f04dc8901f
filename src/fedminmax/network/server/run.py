"""The server's whole work in a job: agree, then the round loop of each run, with checkpoints.

Called again with the same folder it resumes, so a lost job can simply be submitted again. The
folder is locked, because a job that was lost may still be ending when the next one begins.

A run that cannot save stops. Its outcome must still be written, by us and by NVIDIA FLARE, whose
own files (logs, results, the state of each job) are on the same disk. So a run reserves some space,
and frees it before it writes its outcome. The messages about a full disk are here, too.
"""

import errno
import logging
import math
import os
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor

from fedminmax.core.certificate import Certificate
from fedminmax.core.errors import DivergedError, InputError
from fedminmax.core.files import JsonLog, held
from fedminmax.methods.method import lets_sites_keep
from fedminmax.network.server.agree import agree
from fedminmax.network.server.agreement import Agreement
from fedminmax.network.server.log import NOTICE_FILE, read_last_rounds, run_folder, with_notes
from fedminmax.network.server.masked_sites import MaskedSites, Sites
from fedminmax.network.server.measure import measure, read_tensors, write_measured, write_tensors
from fedminmax.network.server.remote import RemoteFederation, TooFewSitesError
from fedminmax.network.server.sites import PlainSites
from fedminmax.network.wire.calls import Transport
from fedminmax.network.wire.codec import read_record, write_record
from fedminmax.network.wire.plan import NetworkPlan
from fedminmax.training.certify import (
    IncompleteError,
    certify,
    check_certifiable,
    check_single_answer,
)
from fedminmax.training.checkpoint import checkpoint_paths, resume_run
from fedminmax.training.progress import AnswerFacts, RunAnswer, run_answer
from fedminmax.training.round_record import ROUNDS_FILE, RoundRecord

RESERVE_FILE = "reserve"
RESERVE_BYTES = 4 * 2**20
# Space for what the engine writes at the end of a job besides the results: logs and job state.
ENGINE_BYTES = 2**20
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
MAX_REASON = 200
CLAIM_FILE = "claim"
SECONDS_TO_WAIT = 120.0


@contextmanager
def reserve_space(folder: Path) -> Iterator[None]:
    """Hold some room on the folder's disk while the block runs; refuse to begin without it."""
    path = folder / RESERVE_FILE
    try:
        # Not zeros: some file systems do not allocate space for them.
        path.write_bytes(os.urandom(RESERVE_BYTES))
        yield
    finally:
        path.unlink(missing_ok=True)


def check_space_for_copy(folder: Path) -> None:
    """Refuse to go on if the folder's disk has no room for all of it once more."""
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    if shutil.disk_usage(folder).free < size + ENGINE_BYTES:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def cannot_save(error: OSError) -> str:
    """Return the message for a coordinator if the server could not write a file."""
    reason = error.strerror or str(error)[:MAX_REASON]
    if error.errno in DISK_FULL:
        return disk_is_full(reason)
    return (
        f"the server cannot save ({reason}); fix its folder there and resume the run: everything "
        "saved is kept, and it continues after its last saved round"
    )


def disk_is_full(reason: str) -> str:
    """Return the message for a coordinator if the disk is full."""
    return (
        f"the server cannot save: its disk is full ({reason}); free space there and resume the "
        "run: everything saved is kept, and it continues after its last saved round"
    )


def find_disk_full(message: str) -> str | None:
    """Return the system's text for a full disk, if the message contains it."""
    return next((os.strerror(code) for code in DISK_FULL if os.strerror(code) in message), None)


@contextmanager
def run_lock(folder: Path, seconds: float = SECONDS_TO_WAIT) -> Iterator[None]:
    """Hold the folder while the block runs, or refuse it."""
    with held(folder / CLAIM_FILE, seconds) as ours:
        if not ours:
            raise InputError(
                f"another job writes to {folder}; stop it, or give this run another name"
            )
        yield


OUTCOME_FILE = "outcome.json"
MEMBERS_FILE = "members.safetensors"
ANSWER_FILE = "answer.json"
PROOF_FILE = "proof.json"
# What is in MEMBERS_FILE.
MODELS = ("members", "alternative", "points")
ADVICE = "resume the run, which brings it again"
# Checkpoints may take this share of the time; for a large model they are every few seconds.
SAVING_SHARE = 0.04


@dataclass(frozen=True)
class Outcome:
    """How a job ended: an error's text or None, the groups, and who took no part and why.

    ``unmeasured`` are the sites that reported nothing about held-out rows, ``small_groups`` the
    groups that are too small for minimax training.
    """

    error: str | None
    group_names: tuple[str, ...] = ()
    refused: dict[str, str] = field(default_factory=dict)
    unmeasured: dict[str, str] = field(default_factory=dict)
    small_groups: tuple[str, ...] = ()


@dataclass(frozen=True)
class ProofResult:
    """What was proved about a run's model after its rounds, or why nothing was."""

    certificate: Certificate | None
    reason: str | None = None


def run_plan(plan: NetworkPlan, transport: Transport, folder: Path) -> Outcome:
    """Do all runs of the plan; how it ended is also written to the folder, if it can be."""
    try:
        with run_lock(folder):
            outcome = _ended(plan, transport, folder)
            write_outcome(folder, outcome)
    except OSError as failed:
        outcome = Outcome(cannot_save(failed))
    return outcome


def _ended(plan: NetworkPlan, transport: Transport, folder: Path) -> Outcome:
    (folder / OUTCOME_FILE).unlink(missing_ok=True)
    try:
        with reserve_space(folder):
            return _run_all(plan, transport, folder)
    except (InputError, DivergedError, TooFewSitesError) as stopped:
        return Outcome(str(stopped))
    except OSError as failed:
        return Outcome(cannot_save(failed))
    except (ArithmeticError, ValueError, TypeError, LookupError, RuntimeError) as unexpected:
        # A repeated job would end in the same way, so the error is reported instead.
        logging.getLogger("fedminmax.server").exception("the run ended")
        return Outcome(
            f"the server stopped at an error that it did not expect ({type(unexpected).__name__}: "
            f"{str(unexpected)[:MAX_REASON]}); its log has more, and everything before is "
            "saved"
        )


def publish_results(folder: Path, outcome: Outcome, results: Path) -> Outcome:
    """Copy a finished run to where its coordinator fetches it; return its outcome.

    Of a run that failed these are its rounds and the reason. The engine makes a copy, too: without
    room for both, the reason alone is left.
    """
    wanted = "*" if outcome.error is None else f"*/{ROUNDS_FILE}"
    _, previous = checkpoint_paths(folder)
    try:
        for path in sorted(folder.rglob(wanted)):
            if path.is_file() and path.name not in (CLAIM_FILE, previous.name):
                copied = results / path.relative_to(folder)
                copied.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copied)
        write_outcome(results, outcome)
        check_space_for_copy(results)
    except OSError as failed:
        shutil.rmtree(results, ignore_errors=True)
        if outcome.error is None:
            outcome = Outcome(cannot_save(failed))
        write_outcome(results, outcome)
    return outcome


def _run_all(plan: NetworkPlan, transport: Transport, folder: Path) -> Outcome:
    sites: Sites = PlainSites(plan, transport)
    if plan.secure_aggregation is not None:
        sites = MaskedSites(plan, plan.secure_aggregation, transport, folder)
    agreement = agree(plan, sites, folder)
    if plan.certify:
        check_certifiable(agreement.census)
        first = agreement.plan.runs[0]
        check_single_answer(first.build(), first.rounds)
    folders = [run_folder(folder, plan, number) for number in range(len(plan.runs))]
    for number, own in enumerate(folders):
        _run(agreement, sites, number, own)
        if plan.certify and number == 0:
            _prove(agreement, sites, own)
    models = [model for folder in folders for model in read_answer(folder).measured]
    measured, silent = measure(agreement, sites, models)
    write_measured(folder, measured)
    encoding = agreement.encoding
    refused = dict(agreement.refused)
    return Outcome(None, encoding.group_names, refused, silent, encoding.small_group_names)


def read_outcome(folder: Path) -> Outcome | None:
    """Read how the job ended; None if it has not."""
    return read_record(folder / OUTCOME_FILE, Outcome, ADVICE)


def read_members(folder: Path) -> Tensor:
    """Read a finished run's models, one per line; several are a mixture."""
    (members,) = read_tensors(folder / MEMBERS_FILE, ("members",))
    return members


def read_answer(folder: Path) -> RunAnswer:
    """Read what a finished run returns."""
    facts = read_record(folder / ANSWER_FILE, AnswerFacts, ADVICE)
    if facts is None:
        raise InputError(f"{folder / ANSWER_FILE} is missing; {ADVICE}")
    return RunAnswer(facts, *read_tensors(folder / MEMBERS_FILE, MODELS))


def read_proof(folder: Path) -> ProofResult | None:
    """Read what was proved after a finished run; None if it was not requested."""
    return read_record(folder / PROOF_FILE, ProofResult, ADVICE)


def _prove(agreement: Agreement, sites: Sites, folder: Path) -> None:
    """Prove of the first run's answer what its own rounds have not proved."""
    rounds = read_last_rounds(folder / ROUNDS_FILE)
    proved = rounds[-1].certificate if rounds else None
    if proved is not None and proved.is_of_groups:
        return
    notice = folder.parent / NOTICE_FILE
    federation = RemoteFederation(agreement, sites, 0, notice, proves=True)
    try:
        result = ProofResult(certify(federation, read_members(folder)[0]))
    except IncompleteError as incomplete:
        away = "; ".join(federation.take_notes().refused.values())
        result = ProofResult(None, f"{incomplete} ({away})")
    write_record(folder / PROOF_FILE, result)


def _run(agreement: Agreement, sites: Sites, number: int, folder: Path) -> None:
    plan, planned = agreement.plan, agreement.plan.runs[number]
    method = planned.build()
    federation = RemoteFederation(agreement, sites, number, folder.parent / NOTICE_FILE)
    # Sites take the masks off a round for one set of sites alone, so that no round should be asked
    # again without need. What sites keep to themselves they keep for a few rounds only.
    save_always = plan.secure_aggregation is not None or lets_sites_keep(method)
    training = resume_run(
        folder,
        federation,
        method,
        rounds=planned.rounds,
        seed=plan.seed,
        participation=planned.participation,
        patience=planned.patience,
        needs_patience=planned.needs_patience,
        saving_share=math.inf if save_always else SAVING_SHARE,
        unit=agreement.encoding.risk_unit,
    )
    log = JsonLog(folder / ROUNDS_FILE, RoundRecord)
    with closing(training):
        for last in training:
            if last.done is not None and last.record is not None:
                log.add(with_notes(last.record, last.done, plan, federation.take_notes()))
    if last.progress is not None:
        rows = federation.validation_rows.tolist()
        answer = run_answer(last.progress, planned.iterate or method.output, rows)
        models = {name: getattr(answer, name).cpu().contiguous() for name in MODELS}
        write_record(folder / ANSWER_FILE, answer.facts)
        write_tensors(folder / MEMBERS_FILE, models)


def write_outcome(folder: Path, outcome: Outcome) -> None:
    """Write how the job ended."""
    write_record(folder / OUTCOME_FILE, outcome)
