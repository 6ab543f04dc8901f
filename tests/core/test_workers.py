"""Work at once: every share is done, in order, with one core each, and nothing is left behind."""

import threading

import pytest
import torch

from fedminmax.core.workers import run_in_parallel


def test_results_come_in_the_order_of_the_workers() -> None:
    together = threading.Barrier(3, timeout=10)

    def work(worker: int) -> tuple[int, int]:
        together.wait()  # passes only if all three run at the same time
        return worker, torch.get_num_threads()

    assert run_in_parallel(3, work) == [(0, 1), (1, 1), (2, 1)]


def test_the_number_of_threads_is_put_back_also_after_a_failure() -> None:
    before = torch.get_num_threads()

    def fail(worker: int) -> None:
        raise ValueError(f"worker {worker}")

    with pytest.raises(ValueError, match="worker 0"):
        run_in_parallel(2, fail)
    assert torch.get_num_threads() == before
    seen: list[int] = []
    thread = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert seen == [before]


def test_a_single_worker_is_this_thread() -> None:
    assert run_in_parallel(1, lambda _: threading.get_ident()) == [threading.get_ident()]
