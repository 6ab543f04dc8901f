"""Work at once: every share is done, in order, with one core each, and nothing is left behind.

Chunks and workers from the weight of a row, counted by hand.
"""

import threading

import pytest
import torch

from fedminmax.core.examples import Examples
from fedminmax.core.losses import brier_loss
from fedminmax.core.models import cnn, mlp
from fedminmax.core.task import Task
from fedminmax.core.workers import (
    ACTIVATION_BYTES_ON_CPU,
    choose_rows_per_chunk,
    multiplications_per_row,
    run_in_parallel,
)


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


def rows(*shape: int) -> Examples:
    labels = torch.zeros(5, dtype=torch.int64)
    return Examples(torch.zeros(5, *shape), labels, labels)


def test_multiplications_of_a_fully_connected_network() -> None:
    task = Task(mlp(3, 2, (7, 5)), brier_loss)
    assert multiplications_per_row(task, rows(3)) == 3 * 7 + 7 * 5 + 5 * 2


def test_multiplications_of_the_papers_cnn() -> None:
    """Each output pixel of a 3x3 convolution takes nine multiplications per pair of channels."""
    task = Task(cnn((1, 28, 28), 10, (16, 32)), brier_loss)
    expected = 28 * 28 * 9 * 16 + 14 * 14 * 9 * 16 * 32 + 7 * 7 * 32 * 10
    assert multiplications_per_row(task, rows(1, 28, 28)) == expected


def test_a_chunk_of_the_papers_cnn_fits_its_room() -> None:
    """At least both convolutions' outputs are kept for the backward pass."""
    task = Task(cnn((1, 28, 28), 10, (16, 32)), brier_loss)
    least = 4 * (28 * 28 * 16 + 14 * 14 * 32)
    chunk = choose_rows_per_chunk(task, rows(1, 28, 28))
    assert 20 < chunk <= ACTIVATION_BYTES_ON_CPU // least


def test_light_rows_come_in_large_chunks() -> None:
    assert choose_rows_per_chunk(Task(mlp(1, 2, ()), brier_loss), rows(1)) > 10_000
