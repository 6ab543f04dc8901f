"""The contestants by name, so that a fresh process can build any of them."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from benchmarks.cnn_passes import Layout, plain_cnn_pass
from benchmarks.hand_rounds import IMAGE_STRATEGIES, STRATEGIES, hand_written_round
from benchmarks.hand_written import LocalPlan, views_of
from benchmarks.plain_pytorch import CHUNK_SIZES, plain_pass
from benchmarks.timing import Contestant
from benchmarks.workload import (
    SEED,
    Workload,
    make_federation,
    make_image_workload,
    make_workload,
)
from fedminmax.core.iterates import Iterate
from fedminmax.methods.afl import AFL
from fedminmax.methods.fedavg import FedAvg
from fedminmax.methods.fedminmax import FedMinMax
from fedminmax.methods.look_ahead import FedMinMaxFast
from fedminmax.methods.method import AnyMethod, StateT
from fedminmax.methods.qfedavg import QFedAvg
from fedminmax.training.train import train

SITES = (1, 40, 1000)
LIBRARY = "fedminmax"
ONE_STEP = ("FedMinMax", "AFL")
# Returns sums by group from the same pass; only its server's step differs.
ONE_PASS = (*ONE_STEP, "FedMinMaxFast")
LOCAL = ("FedAvg", "q-FedAvg")
# The fastest of benchmarks/cnn_layouts.py.
IMAGE_LAYOUTS = {
    str(layout): layout
    for layout in (
        Layout(125, channels_last=True, workers=torch.get_num_threads()),
        Layout(250, channels_last=True, workers=torch.get_num_threads()),
    )
}


@dataclass(frozen=True)
class Entry:
    """One contestant by its description; ``way`` is LIBRARY, a strategy, a chunk size or layout."""

    method: str
    way: str
    rows: int
    sites: int
    plan: LocalPlan
    images: bool = False


def plain_entries(entry: Entry) -> dict[str, Entry]:
    """Return the centralized pass with each chunk size, or the best layouts for images."""
    if entry.images:
        return {name: replace(entry, method="plain", way=name, sites=1) for name in IMAGE_LAYOUTS}
    sizes = [size for size in CHUNK_SIZES if size <= entry.rows] or [entry.rows]
    return {
        f"chunks of {size}": replace(entry, method="plain", way=str(size), sites=1)
        for size in sizes
    }


def one_step_entries(entry: Entry, counts: tuple[int, ...] = SITES) -> dict[str, Entry]:
    """Return the library's rounds of one pass with few and many sites."""
    return {
        f"{method}, {sites} sites": replace(entry, method=method, sites=sites)
        for method in ONE_PASS
        for sites in counts
        if sites <= entry.rows
    }


def local_entries(entry: Entry) -> dict[str, Entry]:
    """Return the library's and the hand-written rounds of one locally training method."""
    ways = IMAGE_STRATEGIES if entry.images else STRATEGIES
    return {way: replace(entry, way=way) for way in (LIBRARY, *ways)}


def build(entry: Entry) -> Contestant:
    """Prepare the contestant to run."""
    make = make_image_workload if entry.images else make_workload
    return build_on(make(entry.rows, entry.sites), entry)


def build_on(work: Workload, entry: Entry) -> Contestant:
    """Prepare the contestant to run on this work."""
    plan = entry.plan
    if entry.method == "plain" and entry.images:
        return plain_cnn_pass(work, IMAGE_LAYOUTS[entry.way])
    if entry.method == "plain":
        return plain_pass(work, int(entry.way))
    if entry.method in LOCAL and entry.way != LIBRARY:
        return hand_written_round(entry.way, work, plan)
    return Contestant(_library(entry.method, work, plan))


def _library(method: str, work: Workload, plan: LocalPlan) -> Callable[[], Tensor]:
    rate, epochs, batch = plan.learning_rate, plan.epochs, plan.batch_size
    if method == "FedMinMax":
        return _library_rounds(work, FedMinMax(learning_rate=rate))
    if method == "FedMinMaxFast":
        return _library_rounds(work, FedMinMaxFast())
    if method == "AFL":
        return _library_rounds(work, AFL(learning_rate=rate))
    if plan.q is None:
        return _library_rounds(work, FedAvg(learning_rate=rate, epochs=epochs, batch_size=batch))
    return _library_rounds(
        work, QFedAvg(q=plan.q, learning_rate=rate, epochs=epochs, batch_size=batch)
    )


def _library_rounds(work: Workload, method: AnyMethod[StateT]) -> Callable[[], Tensor]:
    rounds = train(make_federation(work), method, rounds=10**9, seed=SEED)
    return lambda: next(rounds).parameters(Iterate.LAST)


def check_same_work(entry: Entry) -> None:
    """Stop unless all contestants reach the same parameters, in float64 on a small model."""
    plan = replace(entry.plan, epochs=3, batch_size=7)
    if entry.images:
        work = make_image_workload(120, 6, channels=(3, 4), dtype=torch.float64)
    else:
        work = make_workload(104, 6, hidden=(16, 12), dtype=torch.float64)
    small = replace(entry, rows=work.rows, sites=work.sites, plan=plan)
    start = torch.cat([p.detach().reshape(-1) for p in work.model.parameters()])
    for name, plain in plain_entries(small).items():
        gradient = _run(build_on(work, plain), times=1)
        for method in ONE_STEP:
            moved = _run(build_on(work, replace(small, method=method, way=LIBRARY)), times=1)
            _check_close(f"{method}, {name}", moved, start - plan.learning_rate * gradient)
    for method in LOCAL:
        of_method = local_entries(replace(small, method=method, plan=plan_of(method, plan)))
        expected = _run(build_on(work, of_method.pop(LIBRARY)), times=2)
        for way, other in of_method.items():
            views = views_of(_run(build_on(work, other), times=2), work.model)
            _check_close(f"{method}, {way}", torch.cat([v.reshape(-1) for v in views]), expected)


def plan_of(method: str, plan: LocalPlan) -> LocalPlan:
    """Return the plan with q = 5 for q-FedAvg, without q for FedAvg."""
    return replace(plan, q=5.0 if method == "q-FedAvg" else None)


def _run(contestant: Contestant, times: int) -> Tensor:
    results = [contestant.run() for _ in range(times)]
    contestant.close()
    assert isinstance(results[-1], Tensor)
    return results[-1]


def _check_close(name: str, got: Tensor, expected: Tensor) -> None:
    worst = float((got - expected).abs().max())
    if not worst < 1e-10:
        raise SystemExit(f"{name}: parameters differ by {worst:.2g} in float64; not the same work")
