"""Work on several cores at once: one thread per worker, and one core's worth of torch in each.

Threads inside an operation wait for each other at its end; workers with a share of the rows each
do so once per pass.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

ResultT = TypeVar("ResultT")


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let torch have so many threads: one for work that is done before a second one wakes up."""
    threads_before = torch.get_num_threads()
    if threads_before == count:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(threads_before)


@contextmanager
def pool_of_workers(workers: int) -> Iterator[ThreadPoolExecutor]:
    """Give a pool of single-core threads; meanwhile this thread, too, is one core's worth."""
    threads_before = torch.get_num_threads()
    torch.set_num_threads(1)
    pool = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,))
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)
        # Also undoes the workers' setting, which became the default of threads yet to come.
        torch.set_num_threads(threads_before)


def work_at_once(workers: int, work: Callable[[int], ResultT]) -> list[ResultT]:
    """Return ``[work(0), ..., work(workers - 1)]``, all computed at the same time."""
    if workers == 1:
        return [work(0)]
    with pool_of_workers(workers) as pool:
        return list(pool.map(work, range(workers)))
