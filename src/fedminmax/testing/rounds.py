"""What rounds leave: states that are values, risks, and randomness from the seed alone."""

import threading
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedminmax.core.iterates import STANDARD_ITERATES, Iterate
from fedminmax.core.losses import brier_loss
from fedminmax.core.models import mlp
from fedminmax.methods.card import Weights
from fedminmax.testing.case import (
    Case,
    Method,
    Rows,
    four_sites,
    require,
    require_close,
    require_equal,
    softmax_problem,
    three_sites,
    to_numpy,
    zero_rows,
)
from fedminmax.training.checkpoint import load_checkpoint, pack, save_checkpoint
from fedminmax.training.progress import initial_progress
from fedminmax.training.simulation import Simulation
from fedminmax.training.train import train


def check_nothing_can_be_assigned(case: Case) -> None:
    """Records are frozen: the round, its state, the sums, the method."""
    done = next(train(three_sites().federation(), case.full_batch, rounds=1))
    records: list[Any] = [done, done.progress, done.progress.state, done.total, case.full_batch]
    for record in records:
        for field in fields(record):
            try:
                setattr(record, field.name, None)
            except FrozenInstanceError:
                continue
            what = f"{type(record).__name__}.{field.name}"
            raise AssertionError(f"{case.label}: {what} can be assigned; make the record frozen")


def check_later_rounds_do_not_reach_back(case: Case) -> None:
    """An earlier state is not changed by the rounds after it."""
    federation = three_sites().federation()
    kept = [initial_progress(federation, case.mini_batch)]
    copies = [_copy_of(kept[0])]
    for done in train(federation, case.mini_batch, rounds=6):
        kept.append(done.progress)
        copies.append(_copy_of(done.progress))
    moved = not torch.equal(kept[0].state.parameters, kept[-1].state.parameters)
    require(case, moved, "the model has not moved in six rounds")
    for progress, copied in zip(kept, copies, strict=True):
        _check_same_record(case, progress, copied, "a later round changed an earlier state")


def check_what_a_round_hands_out_is_a_copy(case: Case) -> None:
    """Changing it in place does not affect the run."""
    problem = three_sites()
    untouched = list(train(problem.federation(), case.mini_batch, rounds=4))
    rounds = train(problem.federation(), case.mini_batch, rounds=4)
    for done, meant in zip(rounds, untouched, strict=True):
        require_equal(
            case, done.weights, meant.weights, "weights after others wrote to what they got"
        )
        models = [done.parameters(which) for which in STANDARD_ITERATES]
        for which, parameters in zip(STANDARD_ITERATES, models, strict=True):
            wanted = meant.parameters(which)
            require_equal(case, parameters, wanted, "the model after others wrote to what they got")
        for tensor in (done.weights, done.members, *models, *pack(done.total).values()):
            if isinstance(tensor, Tensor):
                tensor.fill_(7)
        require_equal(case, done.members, meant.members, "the answer after others wrote to it")


def check_asking_twice(case: Case) -> None:
    """A reply is a function of the order: neither buffers nor the order itself may remember."""
    federation = three_sites().federation()
    rounds = train(federation, case.mini_batch, rounds=2)
    progress = next(rounds).progress
    once = next(train(federation, case.mini_batch, rounds=2, resume=progress))
    again = next(train(federation, case.mini_batch, rounds=2, resume=progress))
    require_equal(case, once.total.step, again.total.step, "the same order's step, asked twice")
    require_equal(
        case, once.parameters(), again.parameters(), "the same round's model, trained twice"
    )
    require_equal(
        case, once.parameters(), next(rounds).parameters(), "the round without interruption"
    )


def check_resume(case: Case) -> None:
    """Saving, stopping and going on from the file equals never having stopped, bit for bit."""
    problem, method, rounds = four_sites(), case.mini_batch, 12
    whole = list(train(problem.federation(), method, rounds=rounds, seed=5, participation=0.75))
    for stop in (1, 4, 11):
        with TemporaryDirectory() as folder:
            for done in train(
                problem.federation(), method, rounds=stop, seed=5, participation=0.75
            ):
                save_checkpoint(Path(folder), done.progress)
            again = problem.federation()
            restored = load_checkpoint(Path(folder), initial_progress(again, method))
        if restored is None or restored.complaint is not None:
            raise AssertionError(f"{case.label}: its checkpoint cannot be read")
        require(case, restored.progress.round == stop, "the checkpoint is of another round")
        rest = list(
            train(
                again, method, rounds=rounds, seed=5, participation=0.75, resume=restored.progress
            )
        )
        for done, expected in zip(rest, whole[stop:], strict=True):
            same = done.number == expected.number and done.participants == expected.participants
            require(case, same, "a resumed run has other participants")
            for which in STANDARD_ITERATES:
                models = done.parameters(which), expected.parameters(which)
                require_equal(case, *models, "the model of a resumed run")
        meant = pack(whole[-1].progress)
        _check_same_record(case, rest[-1].progress, meant, "the state of a resumed run differs")


def check_a_longer_run_begins_with_the_shorter_one(case: Case) -> None:
    """How many rounds are to come changes nothing."""
    short = list(train(four_sites().federation(), case.mini_batch, rounds=4))
    long = list(train(four_sites().federation(), case.mini_batch, rounds=9))
    for one, other in zip(short, long[:4], strict=True):
        require_equal(case, one.parameters(), other.parameters(), "the model of a shorter run")


def _copy_of(record: object) -> dict[str, Any]:
    return {
        name: value.clone() if isinstance(value, Tensor) else value
        for name, value in pack(record).items()
    }


def _check_same_record(case: Case, record: object, meant: dict[str, Any], fault: str) -> None:
    found = pack(record)
    require(case, found.keys() == meant.keys(), fault)
    for name, value in meant.items():
        if isinstance(value, Tensor):
            same = found[name]
            require(
                case, isinstance(same, Tensor) and torch.equal(same, value), f"{fault} ({name})"
            )
        else:
            require(case, found[name] == value, f"{fault} ({name})")


# What is minimised


def check_ridge(case: Case) -> None:
    """A ridge is part of what every method minimises.

    Rows of zeros say nothing about a model without intercept: losses have no gradient, and all that
    moves the model is the penalty, which shortens it without turning it.
    """
    start = zero_rows(0.5).initial_parameters
    *_, last = train(zero_rows(0.5), case.full_batch, rounds=2)
    ratios = last.progress.state.parameters / start
    ratio = float(ratios[0])
    require(case, 0.0 <= ratio < 0.999, f"the ridge makes the model {ratio} times as long")
    require_close(case, ratios, ratios[:1].expand(4), "the ridge turns the model: its ratios")


def check_round_risks(case: Case) -> None:
    """The risks of round t are those of theta^{t-1}, evaluated here without torch."""
    problem = three_sites()
    rows = problem.numpy_rows()
    group = np.concatenate([own for _, _, own in rows])
    theta = problem.start
    for done in train(problem.federation(), case.mini_batch, rounds=5):
        losses = np.concatenate([problem.brier_losses(theta, x, y) for x, y, _ in rows])
        expected = torch.tensor([losses[group == a].mean() for a in range(3)])
        fault = f"risks of round {done.number}"
        require_close(case, done.risks.cpu(), expected, fault, rtol=0, atol=1e-13)
        worst = str(int(expected.argmax()))
        require(case, done.worst_group == worst, f"the worst group is {worst}")
        require(case, abs(done.worst_risk - float(expected.max())) < 1e-13, "worst_risk is another")
        theta = to_numpy(done.parameters(Iterate.LAST))


# Randomness


def _run(method: Method, seed: int, participation: float = 1.0) -> Tensor:
    federation = four_sites().federation()
    rounds = train(federation, method, rounds=5, seed=seed, participation=participation)
    return torch.cat([done.parameters(which) for done in rounds for which in STANDARD_ITERATES])


def check_the_same_seed_gives_the_same_bits(case: Case) -> None:
    """Whatever torch's global random state is, which stays as it was."""
    method, federation = case.mini_batch, four_sites().federation()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        first = _run(method, seed=7, participation=0.5)
        torch.manual_seed(2)
        again = _run(method, seed=7, participation=0.5)
        before = torch.get_rng_state()
        list(train(federation, method, rounds=3, participation=0.5))
        after = torch.get_rng_state()
    require_equal(case, after, before, "torch's global random state after a run")
    require_equal(case, again, first, "the models of two runs with the same seed")


def check_who_takes_part_depends_on_the_seed(case: Case) -> None:
    """With half of the sites in each round, the model depends on the seed."""
    runs = [_run(case.full_batch, seed=seed, participation=0.5) for seed in range(3)]
    same = torch.equal(runs[0], runs[1]) and torch.equal(runs[1], runs[2])
    require(case, not same, "three seeds give the same model with half of the sites")


def check_mini_batches_depend_on_the_seed(case: Case) -> None:
    """Other batches, another model."""
    same = torch.equal(_run(case.mini_batch, seed=7), _run(case.mini_batch, seed=8))
    require(case, not same, "two seeds give the same model with batches of 2")


def check_sites_shuffle_differently(case: Case) -> None:
    """With one common shuffle, the mean of two models would be the model of one of them."""
    problem = softmax_problem([[6, 6, 6]], seed=2, classes=2)
    rows = problem.sites[0]
    alone, twins = (
        next(train(problem.federation(sites=own), case.mini_batch, rounds=1))
        for own in ([rows], [rows, rows])
    )
    distance = float((alone.parameters() - twins.parameters()).norm())
    require(case, distance > 1e-6, "sites with the same rows shuffle them alike")


def check_full_batches_do_not_depend_on_the_seed(case: Case) -> None:
    """Without batches and with all sites nothing is random."""
    models = _run(case.full_batch, seed=7), _run(case.full_batch, seed=8)
    require_equal(case, *models, "models of two seeds without batches (or say draws_lots=True)")


def check_the_order_of_sites_does_not_matter(case: Case) -> None:
    """Permuting sites permutes their weights and changes nothing else."""
    problem, order = four_sites(), [2, 0, 3, 1]
    permuted = [problem.sites[number] for number in order]
    plain = list(train(problem.federation(), case.full_batch, rounds=15))
    mixed = list(train(problem.federation(sites=permuted), case.full_batch, rounds=15))
    moved = plain[-1].parameters(Iterate.LAST) - torch.from_numpy(problem.start)
    require(case, float(moved.norm()) > 1e-2, "the model has not moved in 15 rounds")
    for one, other in zip(plain, mixed, strict=True):
        by_site = case.card.weights is Weights.SITES
        weights = one.weights[order] if by_site else one.weights
        for found, expected, what in (
            (other.parameters(Iterate.LAST), one.parameters(Iterate.LAST), "models"),
            (other.risks, one.risks, "risks"),
            (other.weights, weights, "weights"),
        ):
            require_close(
                case,
                found,
                expected,
                f"{what} in another order of sites",
                rtol=0,
                atol=case.tolerance,
            )


# Threads

THREAD_ROWS, THREAD_FEATURES = 100, 10


def check_threads(case: Case) -> None:
    """Worker threads change the time that a round takes, and nothing else."""
    before = torch.get_num_threads()
    try:
        alone, here = _run_with_threads(case, 1)
        shared, workers = _run_with_threads(case, 2)
    finally:
        torch.set_num_threads(before)
    require(case, here == {threading.get_ident()}, "one thread is not this one")
    others = threading.get_ident() not in workers and len(workers) >= 2
    require(case, others, "two threads do not share the work")
    require_equal(case, alone, shared, "the model of two threads and of one")


def _run_with_threads(case: Case, threads: int) -> tuple[Tensor, set[int]]:
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

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = mlp(THREAD_FEATURES, 2, (220, 220))  # 51 482 parameters x 100 rows: worth a thread
    torch.set_num_threads(threads)
    federation = Simulation(model, noting, list(_thread_sites()), fused=False)
    workers.clear()
    begun.set()
    *_, done = train(federation, case.make(50), rounds=2)
    require(case, torch.get_num_threads() == threads, "a run changes torch's number of threads")
    return done.parameters(), workers


def _thread_sites() -> Iterator[Rows]:
    generator = torch.Generator().manual_seed(0)
    for _ in range(5):
        yield (
            torch.randn(THREAD_ROWS, THREAD_FEATURES, generator=generator),
            torch.randint(2, (THREAD_ROWS,), generator=generator),
            torch.randint(2, (THREAD_ROWS,), generator=generator),
        )
