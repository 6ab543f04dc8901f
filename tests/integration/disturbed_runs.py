"""Runs of real processes that something happens to: what to hold still, and what must be left."""

from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import torch

from fedminmax.core.errors import InputError
from fedminmax.core.messages import Sums
from fedminmax.network.flare.local import LocalFederation
from fedminmax.network.server.log import LiveRound, run_folder
from fedminmax.network.server.run import read_members
from fedminmax.network.wire.plan import NetworkPlan
from fedminmax.training.checkpoint import restore
from fedminmax.training.round_record import ROUNDS_FILE, RoundRecord, read_rounds
from tests.network.network_problem import simulated_federation
from tests.training.disturbed_simulation import Arrives, disturbed_members


def jobs_of(federation: LocalFederation, *participants: str) -> list[psutil.Process]:
    """The processes of the running job at these participants."""
    return [
        job for name in participants for job in federation.processes[name].children(recursive=True)
    ]


def kept_run(federation: LocalFederation, plan: NetworkPlan) -> Path:
    """Where the server keeps the plan's only run."""
    return run_folder(federation.results(plan), plan, 0)


def stopped_run(
    federation: LocalFederation, plan: NetworkPlan, number: int, disturb: Callable[[], None]
) -> str:
    """Start a run, disturb it when this round is done, and return why it stopped."""
    disturbed = False
    try:
        for event in federation.run(plan):
            late = isinstance(event, LiveRound) and event.round.round >= number
            if late and not disturbed:
                disturbed = True
                disturb()
    except InputError as error:
        return str(error)
    pytest.fail("the run did not stop")


def saved_round(federation: LocalFederation, plan: NetworkPlan, folder: Path) -> int:
    """The round that the server's newest checkpoint has; it must be readable."""
    simulated = simulated_federation(folder, plan, fused=False)
    progress, complaint = restore(kept_run(federation, plan), simulated, plan.runs[0].build())
    assert progress is not None
    assert complaint is None
    return progress.round


def finished_rounds(
    federation: LocalFederation, plan: NetworkPlan, folder: Path, arrives: Arrives | None = None
) -> list[RoundRecord]:
    """All rounds of a finished run, whose model is, to the bit, the simulation's of what arrived.

    By default that is the replies of those who took part, as they were.
    """
    rounds = read_rounds(kept_run(federation, plan) / ROUNDS_FILE)
    assert [entry.round for entry in rounds] == list(range(1, plan.runs[0].rounds + 1))

    def of_those_who_took_part(number: int, site: str, reply: Sums) -> Sums | None:
        return reply if site in rounds[number - 1].sites.took_part else None

    expected = disturbed_members(folder, plan, arrives or of_those_who_took_part)
    assert torch.equal(read_members(kept_run(federation, plan)), expected)
    return rounds
