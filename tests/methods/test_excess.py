"""Minimax in excess risk: what groups can reach with models of their own, and the game with it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedminmax.core.errors import InputError
from fedminmax.core.losses import brier_loss, cross_entropy_loss
from fedminmax.methods.look_ahead import FedMinMaxFast, Objective
from fedminmax.methods.shared.excess_server import ExcessState
from fedminmax.methods.shared.own_models import (
    FOLDS,
    MIXES,
    OwnModels,
    OwnSums,
    Plain,
    after_own_sums,
    gains_of,
    start_own_models,
)
from fedminmax.testing import case_of, replies, rounds
from fedminmax.training.checkpoint import train_resumably
from fedminmax.training.simulation import Simulation
from fedminmax.training.train import Round, fit
from tests.methods.test_near_minimax import (
    FEATURES,
    LARGE,
    lowest_mean,
    mixture,
    near,
    proof_of,
    risks_by_hand,
    rows_of,
    simulation,
)
from tests.oracles import lowest_maximum
from tests.problems import Vector

EXCESS = FedMinMaxFast(objective=Objective.EXCESS)


def state_of(done: Round[Any]) -> ExcessState:
    state = done.progress.state
    assert isinstance(state, ExcessState)
    return state


@pytest.mark.parametrize("seed", range(12))
def test_what_is_certified_of_the_excess_brackets_another_solvers_optimum(seed: int) -> None:
    classes, tolerance = seed % 3 > 0, (0.0, 0.005, 0.02)[seed % 5 % 3]
    rows = rows_of(seed, classes=classes)
    risks, game = risks_by_hand(rows, classes=classes), mixture(rows)
    counts = np.bincount(rows[2].numpy())
    shares, large = counts / counts.sum(), counts >= LARGE
    method = FedMinMaxFast(objective=Objective.EXCESS, tolerance=tolerance)
    done = near(rows, method, classes=classes, rounds=80)
    # Small groups have no own risk; they keep their shares in what the adversary chooses from.
    own = shares[large].sum() * state_of(done).own_risks.numpy()[large]

    def excesses(u: Vector) -> tuple[Vector, Vector]:
        values, slopes = risks(u)
        return game @ values - own, game @ slopes

    optimum = lowest_maximum(excesses, np.zeros(FEATURES + 1))
    proof = done.certificate
    assert proof is not None
    assert proof.highest_own is not None
    assert proof.highest_own == pytest.approx(state_of(done).own_risks.numpy()[large].max())
    size = optimum + proof.highest_own
    assert proof.lower <= optimum + 1e-7 * size
    assert optimum - 1e-7 * size <= proof.upper
    assert proof.gap <= 1.001e-4
    # The returned model has this excess.
    flat = done.members[0].numpy()
    u = np.r_[flat[FEATURES : 2 * FEATURES], flat[-1]] if classes else flat
    assert float(excesses(u)[0].max()) == pytest.approx(proof.upper, abs=1e-6 * size)
    if tolerance:
        _, limit, mean, min_mean = proof_of(done)
        assert limit <= optimum + tolerance * size + 1e-7 * size
        assert float(shares @ risks(u)[0]) <= mean * (1 + 1e-9)
        best = lowest_mean(risks, game, shares, limit + own)
        assert min_mean <= best * (1 + 1e-7)
        assert best * (1 - 1e-5) <= mean


def test_own_models_reach_the_minimum_of_their_objective() -> None:
    """Squared errors: the objective t h + (1 - t) q + m/2 |theta|^2 has a closed form."""
    rng = np.random.default_rng(1)
    numbers, ridge, groups = 4, 0.1, 2
    hessian = _definite(rng, numbers)
    plain = Plain(_double(rng.normal(size=numbers)), _double(hessian), ridge, torch.zeros(0))
    own = start_own_models(plain, groups)
    cells = groups * len(MIXES) * FOLDS
    bends = [_definite(rng, numbers) for _ in range(cells)]
    pulls = rng.normal(size=(cells, numbers))
    counts = torch.full((groups, FOLDS), 10.0).double()
    records = 10.0 * (FOLDS - 1)
    while not own.is_done:
        tried = own.tried.numpy()
        losses = [0.5 * x @ b @ x + p @ x for x, b, p in zip(tried, bends, pulls, strict=True)]
        slopes = [b @ x + p for x, b, p in zip(tried, bends, pulls, strict=True)]
        sums = OwnSums(
            records * _double(losses), records * _double(slopes), torch.zeros(cells), counts
        )
        own = after_own_sums(own, sums, plain)
    point = plain.point.numpy()
    for cell, (found, bend, pull) in enumerate(zip(own.best.numpy(), bends, pulls, strict=True)):
        share = MIXES[cell // FOLDS % len(MIXES)]
        away = hessian @ point + ridge * point
        matrix = share * bend + (1 - share) * hessian + ridge * np.eye(numbers)
        right = np.linalg.solve(matrix, (1 - share) * away - share * pull)
        value, least = (_value(x, share, bend, pull, hessian, point, ridge) for x in (found, right))
        start = _value(point, share, bend, pull, hessian, point, ridge)
        assert least <= value <= least + 0.02 * (start - least)


def _value(
    x: Vector, share: float, bend: Vector, pull: Vector, hessian: Vector, point: Vector, m: float
) -> float:
    away = x - point
    own = 0.5 * x @ bend @ x + pull @ x
    mean = 0.5 * away @ hessian @ away - m * point @ away
    return float(share * own + (1 - share) * mean + 0.5 * m * x @ x)


def _definite(rng: np.random.Generator, numbers: int) -> Vector:
    root = rng.normal(size=(numbers, numbers))
    matrix: Vector = np.eye(numbers) + 0.1 * root @ root.T
    return matrix


def _double(values: Any) -> torch.Tensor:
    return torch.from_numpy(np.asarray(values, dtype=np.float64))


def test_chance_is_shrunk_away() -> None:
    """Gains of pure chance: 0.13 standard errors on average for one candidate, here two."""
    rng = np.random.default_rng(0)
    groups, records = 4000, 20.0
    chance = _double(rng.normal(size=(groups, len(MIXES), FOLDS)) * np.sqrt(records))
    none = torch.zeros(0)
    own = OwnModels(
        none,
        none,
        none,
        none,
        -chance.flatten(),
        none,
        torch.zeros(chance.numel()),
        torch.full((groups, FOLDS), records).double(),
    )
    error = 1.0 / np.sqrt(FOLDS * records)
    assert 0.1 * error < float(gains_of(own).mean()) < 0.35 * error
    # A gain of many standard errors stays.
    clear = own.plain + records * 3.0
    assert float(gains_of(_with_plain(own, clear)).mean()) == pytest.approx(3.0, rel=0.05)


def _with_plain(own: OwnModels, plain: torch.Tensor) -> OwnModels:
    from dataclasses import replace

    return replace(own, plain=plain)


def noisy_groups(seed: int, *, sizes: tuple[int, ...], features: int) -> list[Any]:
    """One large group, small ones whose labels are coin tosses with the same columns, two sites."""
    rng = np.random.default_rng(seed)
    group = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    x = rng.normal(size=(len(group), features))
    chance = 1.0 / (1.0 + np.exp(-np.where(group == 1, -1.5, 0.5) * x[:, 0]))
    chance = np.where(group > 1, 0.5, chance)
    y = (rng.random(len(group)) < chance).astype(np.int64)
    x = x * (group <= 1)[:, None] + rng.normal(size=x.shape) * (group > 1)[:, None]
    whole = [torch.from_numpy(part) for part in (x, y, group)]
    return [tuple(part[own::2] for part in whole) for own in range(2)]


@pytest.mark.slow
def test_small_groups_of_pure_noise_do_not_look_improvable() -> None:
    """Thirty columns: a model of 40 such records alone fits them perfectly, and is worth nothing.

    The large group with a pattern of its own is what could gain; there the gain is known.
    """
    sizes, features, gains, in_training = (3000, 1500, 40, 80, 200), 30, [], []
    for seed in range(6):
        model = nn.Linear(features, 2, dtype=torch.float64)
        nn.init.zeros_(model.weight)
        nn.init.zeros_(model.bias)
        sites = noisy_groups(seed, sizes=sizes, features=features)
        federation = Simulation(model, cross_entropy_loss, sites, ridge=1e-3, minimum_group=30)
        state = state_of(fit(federation, EXCESS, rounds=60))
        # The plain model has outputs for noise that it did not learn from: what a coin toss,
        # log 2, is below its risk could really be removed.
        gained = state.plain_risks - state.own_risks
        possible = (state.plain_risks[2:] - np.log(2.0)).clamp(min=0.0)
        gains.append((gained[2:] - possible).tolist())
        in_training.append(float(gained[1]))
    above = np.array(gains)
    assert above.mean() < 0.01
    assert above.max() < 0.08
    assert min(in_training) > 0.1


def test_a_run_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    rows = rows_of(4, classes=True)
    method = FedMinMaxFast(objective=Objective.EXCESS, tolerance=0.005)
    whole = fit(simulation(rows, classes=True, parts=2), method, rounds=40)
    for stop in (2, 4, whole.number - 1):
        federation = simulation(rows, classes=True, parts=2)
        *_, last = train_resumably(tmp_path / str(stop), federation, method, rounds=stop)
        assert last.number == stop
        *_, last = train_resumably(tmp_path / str(stop), federation, method, rounds=40)
        assert torch.equal(last.members, whole.members)
        assert last.certificate == whole.certificate


@pytest.mark.parametrize(
    "check",
    [
        replies.check_fused_equals_plain,
        replies.check_replies_add_up,
        replies.check_the_network_takes_its_replies,
        rounds.check_resume,
        rounds.check_ridge,
        rounds.check_the_same_seed_gives_the_same_bits,
    ],
)
def test_it_keeps_the_contract(check: Any) -> None:
    check(case_of(FedMinMaxFast(objective=Objective.EXCESS, optimality_gap=0.0), tolerance=1e-7))


def test_the_frontier_is_that_of_mean_and_excess() -> None:
    rows = rows_of(2, classes=True)
    method = FedMinMaxFast(objective=Objective.EXCESS, frontier=True)
    done = fit(simulation(rows, classes=True), method, rounds=80)
    state, game = state_of(done), state_of(done).game
    points = game.found.points  # type: ignore[union-attr]
    risks, _ = risks_by_hand(rows, classes=True)(np.zeros(FEATURES + 1))
    assert len(points[0].risks) == len(risks)
    worst = [point.worst for point in points]
    assert worst == sorted(worst, reverse=True)
    for point in points:
        excess = max(np.array(point.risks) - state.own_risks.numpy())
        assert point.worst == pytest.approx(excess, abs=1e-9)
        keep = point.keep_share
        assert keep * point.mean + (1 - keep) * point.worst <= point.certificate.upper + 1e-9
        assert point.certificate.gap <= 1e-3


@pytest.mark.parametrize(
    ("model", "method", "words"),
    [
        (nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), EXCESS, "second derivatives"),
        (nn.Linear(3, 2), FedMinMaxFast(objective=Objective.EXCESS, curvature=False), "second"),
        (nn.Linear(3, 2), FedMinMaxFast(0.1, objective=Objective.EXCESS), "min_weight"),
    ],
)
def test_what_cannot_be_played_is_refused_before_the_first_round(
    model: nn.Module, method: FedMinMaxFast, words: str
) -> None:
    x, y, group = rows_of(0, classes=True)
    federation = Simulation(model, brier_loss, [(x.float(), y, group)])
    with pytest.raises(InputError, match=words) as refused:
        fit(federation, method, rounds=3)
    assert "\n" not in str(refused.value)
