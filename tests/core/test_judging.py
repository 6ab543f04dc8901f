"""Every kind of objective chooses by itself: worst group, worst site, mean, tilted, powers."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedminmax.core.losses import brier_loss
from fedminmax.core.messages import Reveals
from fedminmax.core.validation import (
    ALL_ROWS,
    MEAN,
    ONE_SITE,
    SMALL_GROUPS,
    WORST_GROUP,
    WORST_SITE,
    Judge,
    LossSums,
    Players,
    sum_losses,
)
from fedminmax.methods.afl import AFL
from fedminmax.methods.card import judge_of
from fedminmax.methods.catalogue import CARDS
from fedminmax.methods.fedavg import FedAvg
from fedminmax.methods.fedminmax import FedMinMax
from fedminmax.methods.look_ahead import AFLFast
from fedminmax.methods.qfedavg import QFedAvg
from fedminmax.methods.term import TERM, GroupTERM
from fedminmax.training.simulation import Simulation
from fedminmax.training.train import Round, train
from tests.problems import Vector

# Of 3,000 rows, the third group has 100 and the third site 250.
GROUP = np.repeat([0, 1, 2], [2000, 900, 100])
SITE = np.tile([0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 2], 250)
EVERYBODY = torch.tensor([True, True, True])


def sums_of(losses: Vector) -> LossSums:
    values, group, site = (torch.from_numpy(own) for own in (losses, GROUP, SITE))
    own = sum_losses(values, group, 3)
    by_site = sum_losses(values, site, 3)
    return LossSums(own.loss, own.squares, own.count, by_site.as_columns)


LOSSES = np.random.default_rng(0).exponential(size=3000) * np.where(SITE == 2, 1.5, 1.0)
LOSSES[GROUP == 1] *= 1.2
ROWS = sums_of(LOSSES).count
SHARES = np.bincount(SITE) / 3000
BY_SITE = np.array([LOSSES[own == SITE].mean() for own in range(3)])
# The third group, with under 200 rows and no others to be pooled with, does not count alone.
BY_GROUP = np.array([LOSSES[own == GROUP].mean() for own in range(2)])


@pytest.mark.parametrize(
    ("judge", "expected", "whose"),
    [
        (WORST_GROUP, BY_GROUP.max(), 1),
        (WORST_SITE, BY_SITE.max(), ONE_SITE),
        (MEAN, LOSSES.mean(), ALL_ROWS),
        (
            Judge(Players.GROUPS, keep_share=0.25),
            0.75 * BY_GROUP.max() + 0.25 * LOSSES.mean(),
            1,
        ),
        (
            Judge(Players.SITES, keep_share=0.25),
            0.75 * BY_SITE.max() + 0.25 * LOSSES.mean(),
            ONE_SITE,
        ),
        (
            Judge(Players.SITES, tilt=2.0),
            math.log((SHARES * np.exp(2.0 * BY_SITE)).sum()) / 2.0,
            ALL_ROWS,
        ),
        (
            Judge(Players.GROUPS, tilt=2.0),
            math.log((np.array([2000, 900]) / 2900 * np.exp(2.0 * BY_GROUP)).sum()) / 2.0,
            ALL_ROWS,
        ),
        (Judge(Players.SITES, power=5.0), (SHARES * BY_SITE**6).sum() ** (1 / 6), ALL_ROWS),
        (Judge(Players.SITES, power=0.0), LOSSES.mean(), ALL_ROWS),
        (Judge(Players.SITES, tilt=0.0), LOSSES.mean(), ALL_ROWS),
    ],
)
def test_each_objective_by_hand(judge: Judge, expected: float, whose: int) -> None:
    found = judge.measure(sums_of(LOSSES), ROWS, EVERYBODY, 7)
    assert (found.round, found.group) == (7, whose)
    assert found.risk == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    "judge",
    [MEAN, Judge(Players.SITES, tilt=2.0), Judge(Players.SITES, power=3.0), WORST_SITE],
)
def test_the_standard_error_is_that_of_tables_drawn_again(judge: Judge) -> None:
    rng = np.random.default_rng(1)
    scale = np.where(SITE == 2, 2.5, 1.0)

    def drawn() -> LossSums:
        return sums_of(rng.exponential(size=3000) * scale)

    found = [judge.measure(drawn(), ROWS, EVERYBODY, 1) for _ in range(400)]
    spread = float(np.std([own.risk for own in found]))
    assert np.mean([own.standard_error for own in found]) == pytest.approx(spread, rel=0.12)


def test_groups_under_200_rows_are_pooled() -> None:
    """One or two confident errors among 64 rows must not choose the round."""
    group = torch.from_numpy(np.repeat([0, 1, 2], [1000, 150, 120]))
    losses = torch.full((1270,), 0.3, dtype=torch.float64)
    losses[1000:1002] = 40.0
    sums = sum_losses(losses, group, 3)
    found = WORST_GROUP.measure(sums, sums.count, EVERYBODY, 1)
    assert found.group == SMALL_GROUPS
    assert found.risk == pytest.approx((80.0 + 0.3 * 268) / 270)


def test_without_single_sites_losses_the_mean_judges() -> None:
    whole = sums_of(LOSSES)
    masked = LossSums(whole.loss, whole.squares, whole.count)
    found = Judge(Players.SITES, power=5.0).measure(masked, ROWS, EVERYBODY, 1)
    assert found.risk == pytest.approx(LOSSES.mean())


def test_a_round_without_some_sites_is_no_candidate_for_the_worst_of_them() -> None:
    present = SITE < 2
    group, site = (torch.from_numpy(own[present]) for own in (GROUP, SITE))
    losses = torch.from_numpy(LOSSES[present])
    own, by_site = sum_losses(losses, group, 3), sum_losses(losses, site, 3)
    part = LossSums(own.loss, own.squares, own.count, by_site.as_columns)
    assert not WORST_SITE.measure(part, ROWS, EVERYBODY, 1).is_measured


def test_methods_judge_by_what_they_minimise() -> None:
    assert judge_of(FedMinMax()) == WORST_GROUP
    assert judge_of(FedMinMax(adversary_rate=0.0)) == MEAN
    assert judge_of(AFL()) == judge_of(AFLFast()) == WORST_SITE
    assert judge_of(FedAvg()) == MEAN
    assert judge_of(TERM(0.5)) == Judge(Players.SITES, tilt=0.5)
    assert judge_of(GroupTERM(3.0)) == Judge(Players.GROUPS, tilt=3.0)
    assert judge_of(QFedAvg(5.0)) == Judge(Players.SITES, power=5.0)
    minimax = {True: {WORST_GROUP, WORST_SITE}, False: {MEAN}}
    for card in CARDS.values():
        own = judge_of(card.build({}))
        is_own = hasattr(card.build({}), "judge")
        assert is_own or own in minimax[card.minimax]


@pytest.mark.parametrize("reveals", [Reveals.OWN_VECTOR, Reveals.SUMS])
def test_runs_choose_the_round_by_their_own_objective(reveals: Reveals) -> None:
    """The chosen round's risk is the lowest, up to ties, of what its method minimises."""
    rng = np.random.default_rng(3)

    def rows(count: int, own: int) -> tuple[torch.Tensor, ...]:
        x = rng.normal(size=(count, 3))
        y = ((x[:, own] + rng.normal(size=count)) > 0).astype(np.int64)
        group = rng.integers(0, 2, count)
        return tuple(map(torch.from_numpy, (x, y, group)))

    training, validation = ([rows(count, own) for own in range(3)] for count in (60, 300))
    torch.manual_seed(0)
    federation = Simulation(
        nn.Linear(3, 2).double(), brier_loss, training, validation=validation, reveals=reveals
    )
    methods: list[Any] = [FedAvg(0.5, epochs=1, batch_size=None), FedMinMax(0.5, 0.5)]
    if reveals is Reveals.OWN_VECTOR:
        methods.append(AFL(0.5, 0.5))
    for method in methods:
        rounds: list[Round[Any]] = list(train(federation, method, rounds=12))
        models = [own.progress.state.parameters for own in rounds]
        models.insert(0, federation.initial_parameters)
        chosen = rounds[-1].chosen
        assert chosen is not None

        def objective(model: torch.Tensor, method: object = method) -> float:
            with torch.no_grad():
                net = federation.model(model)
                losses = [brier_loss(net(x), y) for x, y, _ in validation]
            if isinstance(method, AFL):
                return max(float(own.mean()) for own in losses)
            every, group = torch.cat(losses), torch.cat([own[2] for own in validation])
            if isinstance(method, FedAvg):
                return float(every.mean())
            return max(float(every[group == number].mean()) for number in (0, 1))

        found = [objective(model) for model in models]
        assert chosen.risk == pytest.approx(found[chosen.round], rel=1e-9)
        assert chosen.risk <= min(found) + 0.2 * chosen.standard_error
