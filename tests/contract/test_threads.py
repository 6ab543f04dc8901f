"""Worker threads change the time that a round takes, and nothing else."""

import threading
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from fedminmax.core.losses import brier_loss
from fedminmax.core.models import mlp
from fedminmax.federation.inprocess import InProcessFederation
from fedminmax.federation.train import train
from tests.contract.cases import Case, every_method
from tests.problems import Rows

ROWS, FEATURES = 100, 10


@pytest.fixture(autouse=True)
def _thread_setting() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def holders() -> list[Rows]:
    generator = torch.Generator().manual_seed(0)
    return [
        (
            torch.randn(ROWS, FEATURES, generator=generator),
            torch.randint(2, (ROWS,), generator=generator),
            torch.randint(2, (ROWS,), generator=generator),
        )
        for _ in range(5)
    ]


def run(case: Case, threads: int) -> tuple[Tensor, set[int]]:
    """Return the parameters after two rounds on the plain path, and the threads that worked."""
    workers: set[int] = set()
    # On a busy machine one worker could finish all work before the other begins: they meet once.
    meeting, begun, met = threading.Barrier(threads), threading.Event(), threading.Event()

    def noting(outputs: Tensor, targets: Tensor) -> Tensor:
        workers.add(threading.get_ident())
        if begun.is_set() and not met.is_set():
            meeting.wait(timeout=60)
            met.set()
        return brier_loss(outputs, targets)

    torch.manual_seed(0)
    model = mlp(FEATURES, 2, (220, 220))  # 51 482 parameters x 100 rows: worth a thread
    torch.set_num_threads(threads)
    federation = InProcessFederation(model, noting, holders(), fused=False)
    workers.clear()
    begun.set()
    done = list(train(federation, case.make(50), rounds=2))[-1]
    assert torch.get_num_threads() == threads
    return done.parameters(), workers


@every_method
def test_two_workers_give_the_bits_of_one(case: Case) -> None:
    alone, here = run(case, threads=1)
    shared, workers = run(case, threads=2)
    assert here == {threading.get_ident()}
    assert threading.get_ident() not in workers
    assert len(workers) >= 2
    assert torch.equal(alone, shared)
