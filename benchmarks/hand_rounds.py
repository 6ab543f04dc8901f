"""The hand-written rounds: one worker, two threads, or two processes share the sites."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection

import torch
from torch import Tensor, multiprocessing

from benchmarks.hand_written import (
    AutogradWorker,
    ExplicitWorker,
    LocalPlan,
    MakeWorker,
    Total,
    empty_total,
    flatten,
    serve,
)
from benchmarks.timing import Contestant, peak_bytes
from benchmarks.workload import Workload

STRATEGIES = (
    "autograd, one by one",
    "autograd, two threads",
    "explicit, one by one",
    "explicit, two threads",
    "explicit, two processes",
)

# For a convolution, autograd already calls the explicit gradients.
IMAGE_STRATEGIES = (
    "autograd, one core",
    "autograd, one by one",
    "autograd, two threads",
    "autograd, two processes",
)


def hand_written_round(strategy: str, work: Workload, plan: LocalPlan) -> Contestant:
    """Build the contestant of this name; each ``run`` is the next round and returns theta."""
    gradients, workers = strategy.split(", ")
    make: MakeWorker = AutogradWorker if gradients == "autograd" else ExplicitWorker
    if workers in ("one by one", "one core"):
        return _one_by_one(make, work, plan, alone=workers == "one core")
    if workers == "two threads":
        return _two_threads(make, work, plan)
    return _two_processes(make, work, plan)


def _halves(sites: int) -> tuple[range, range]:
    return range(sites // 2), range(sites // 2, sites)


def _descend(theta: Tensor, totals: Sequence[Total]) -> Tensor:
    scale = sum(total.scale for total in totals)
    for total in totals:
        theta.sub_(total.step, alpha=1.0 / scale)
    return theta


def _one_by_one(make: MakeWorker, work: Workload, plan: LocalPlan, *, alone: bool) -> Contestant:
    worker = make(work.model, plan.batch_size)
    total, theta, rounds = empty_total(work.model), flatten(work.model), iter(range(1, 10**9))

    def run() -> Tensor:
        if alone:
            torch.set_num_threads(1)
        serve(worker, total, work, plan, theta, next(rounds), range(work.sites))
        return _descend(theta, [total])

    return Contestant(run)


def _two_threads(make: MakeWorker, work: Workload, plan: LocalPlan) -> Contestant:
    workers = [make(work.model, plan.batch_size) for _ in range(2)]
    totals = [empty_total(work.model) for _ in range(2)]
    theta, rounds = flatten(work.model), iter(range(1, 10**9))
    pool = ThreadPoolExecutor(2)

    def half(number: int, round_number: int, sites: range) -> None:
        torch.set_num_threads(1)
        serve(workers[number], totals[number], work, plan, theta, round_number, sites)

    def run() -> Tensor:
        round_number = next(rounds)
        futures = [
            pool.submit(half, number, round_number, sites)
            for number, sites in enumerate(_halves(work.sites))
        ]
        for future in futures:
            future.result()
        return _descend(theta, totals)

    def close() -> int:
        pool.shutdown()
        return 0

    return Contestant(run, close)


def _process(
    make: MakeWorker,
    work: Workload,
    plan: LocalPlan,
    theta: Tensor,
    step: Tensor,
    sites: range,
    orders: Connection,
) -> None:
    """A helper process: a round number in, the scale out; 0 stops it and returns its memory."""
    before = peak_bytes()
    torch.set_num_threads(1)
    worker, total = make(work.model, plan.batch_size), Total(step)
    while round_number := int(orders.recv()):
        serve(worker, total, work, plan, theta, round_number, sites)
        orders.send(total.scale)
    orders.send(peak_bytes() - before)


def _two_processes(make: MakeWorker, work: Workload, plan: LocalPlan) -> Contestant:
    # torch moves every tensor that it sends into shared memory.
    context = multiprocessing.get_context("spawn")
    theta = flatten(work.model)
    totals = [empty_total(work.model) for _ in range(2)]
    rounds = iter(range(1, 10**9))
    pipes: list[Connection] = []
    children = []
    for total, sites in zip(totals, _halves(work.sites), strict=True):
        here, there = context.Pipe()
        arguments = (make, work, plan, theta, total.step, sites, there)
        child = context.Process(target=_process, args=arguments, daemon=True)
        child.start()
        there.close()
        pipes.append(here)
        children.append(child)

    def run() -> Tensor:
        round_number = next(rounds)
        for pipe in pipes:
            pipe.send(round_number)
        for pipe, total in zip(pipes, totals, strict=True):
            total.scale = float(pipe.recv())
        return _descend(theta, totals)

    def close() -> int:
        for pipe in pipes:
            pipe.send(0)
        taken = sum(int(pipe.recv()) for pipe in pipes)
        for child in children:
            child.join()
        return taken

    return Contestant(run, close)
