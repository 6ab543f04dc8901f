"""Effects that may only go up or down: oracles are SLSQP and scikit-learn's isotonic regression."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.isotonic import IsotonicRegression
from torch import Tensor

from fedminmax import Simulation, fit, train
from fedminmax.core.additive.model import AdditiveModel, Block, fixed_roughness, roughness
from fedminmax.core.errors import InputError
from fedminmax.core.examples import Examples
from fedminmax.losses import cross_entropy_loss, squared_error_loss
from fedminmax.methods import AFLFast, FedAvg, FedAvgFast, FedMinMax, FedMinMaxFast
from fedminmax.methods.shared.second_order_state import SecondOrderState
from fedminmax.methods.shared.servers import PlayersState
from fedminmax.training.additive_class import choose_class, class_structure
from fedminmax.training.certify import certify
from fedminmax.training.checkpoint import train_resumably
from fedminmax.training.train import Round
from tests.oracles import lowest_maximum
from tests.problems import Vector

RIDGE = 1e-5
# The last of the first block's codes is that of missing values.
BINS = 9
BLOCKS = (
    Block(BINS + 1, ordered=BINS, smoothing=3.0),
    Block(4, smoothing=20.0),
    Block(2, smoothing=5.0),
)


def rows_of(outputs: int, seed: int, count: int = 600) -> Examples:
    """Three groups whose first effects go up and down, each in its own way."""
    generator = torch.Generator().manual_seed(seed)
    group = torch.multinomial(
        torch.tensor([0.5, 0.3, 0.2]), count, replacement=True, generator=generator
    )
    codes = torch.stack([torch.randint(b.size, (count,), generator=generator) for b in BLOCKS], 1)
    x = codes[:, 0].double() / 4 - 1
    score = torch.sin(3 * x + group + seed) + 0.6 * (codes[:, 1] == 2) - 0.4 * codes[:, 2] * group
    noise = torch.randn(count, generator=generator).double()
    if outputs == 1:
        return Examples(codes.short(), score + noise, group)
    return Examples(codes.short(), (score + noise > 0.3).long(), group)


def blocks_with(*rising: int) -> tuple[Block, ...]:
    return (
        tuple(replace(b, rising=own) for b, own in zip(BLOCKS, rising, strict=False))
        + BLOCKS[len(rising) :]
    )


def federation(
    rows: Examples, outputs: int, blocks: Sequence[Block], parts: int = 1, ridge: float = RIDGE
) -> Simulation:
    model = AdditiveModel(outputs, blocks, records=len(rows), ridge=ridge)
    loss = squared_error_loss if outputs == 1 else cross_entropy_loss
    sites = [
        (rows.x[part::parts], rows.y[part::parts], rows.group[part::parts]) for part in range(parts)
    ]
    return Simulation(model, loss, sites, ridge=ridge)


def trained(fed: Simulation, method: Any, rounds: int = 60) -> tuple[Round[Any], Tensor]:
    """Return the last round, and the effect of every code on the score."""
    last = fit(fed, method, rounds=rounds)
    model = last.model()
    assert isinstance(model, AdditiveModel)
    effects = model.effects.detach()
    return last, effects[-1] - effects[0] if len(effects) == 2 else effects[0]


def by_hand(rows: Examples, outputs: int, blocks: Sequence[Block], players: Tensor) -> Any:
    """Return the players' penalised risks and their slopes, as functions of score effects."""
    indicators = torch.cat(
        [
            torch.nn.functional.one_hot(rows.x[:, number].long(), block.size)
            for number, block in enumerate(blocks)
        ]
        + [torch.ones(len(rows), 1)],
        dim=1,
    ).double()
    penalty = RIDGE * torch.eye(indicators.shape[1]).double()
    start = 0
    for block in blocks:
        span = slice(start, start + block.size)
        fixed = fixed_roughness(block).diag()
        penalty[span, span] += (block.smoothing * roughness(block) + fixed) / len(rows)
        start += block.size
    # Two outputs have half of the score each, with opposite signs.
    penalty = penalty / outputs

    def functions(point: Vector) -> tuple[Vector, Vector]:
        theta = torch.tensor(point, requires_grad=True)
        scores = indicators @ theta
        losses = (
            (scores - rows.y).square()
            if outputs == 1
            else torch.nn.functional.softplus(torch.where(rows.y > 0, -scores, scores))
        )
        values, slopes = [], []
        for player in players:
            risk = losses @ player / player.sum() + 0.5 * theta @ penalty @ theta
            (slope,) = torch.autograd.grad(risk, theta, retain_graph=True)
            values.append(float(risk.detach()))
            slopes.append(slope.numpy())
        return np.array(values), np.array(slopes)

    return functions


def steps(blocks: Sequence[Block]) -> Vector:
    """Return the differences of neighbouring effects that must not be negative."""
    rows, start = [], 0
    columns = sum(block.size for block in blocks) + 1
    for block in blocks:
        for code in range(abs(block.rising) - 1):
            row = np.zeros(columns)
            row[start + code : start + code + 2] = np.sign(block.rising) * np.array([-1.0, 1.0])
            rows.append(row)
        start += block.size
    return np.array(rows)


def server_of(last: Round[Any]) -> SecondOrderState:
    state = last.progress.state
    server = state.server if isinstance(state, PlayersState) else state
    assert isinstance(server, SecondOrderState)
    return server


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("rising", [(BINS,), (-BINS,), (BINS, 0, -2)])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_certificate_brackets_the_optimum_of_another_solver(
    outputs: int, rising: tuple[int, ...], seed: int
) -> None:
    rows, blocks = rows_of(outputs, seed), blocks_with(*rising)
    fed = federation(rows, outputs, blocks)
    last, scores = trained(fed, FedMinMaxFast(optimality_gap=1e-7))
    players = torch.nn.functional.one_hot(rows.group, 3).T.double()
    zeros = np.zeros(len(scores) + 1)
    optimum = lowest_maximum(by_hand(rows, outputs, blocks, players), zeros, steps(blocks))
    proved = server_of(last).certificate
    assert proved is not None
    assert proved.lower <= optimum * (1 + 1e-9)
    assert optimum <= proved.upper * (1 + 1e-6)
    assert proved.gap <= 1e-6
    assert (steps(blocks)[:, :-1] @ scores.numpy()).min() >= 0.0
    # Otherwise nothing was tested.
    _, free = trained(federation(rows, outputs, BLOCKS), FedMinMaxFast(optimality_gap=1e-7))
    assert (steps(blocks)[:, :-1] @ free.numpy()).min() < -1e-3


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("rising", [(BINS,), (-BINS, 0, 2)])
def test_the_lowest_mean_within_a_tolerance_is_another_solvers(
    outputs: int, rising: tuple[int, ...]
) -> None:
    """The maximum of m and all m + B (r_a - c) is lowest there, if B is above the multiplier."""
    rows, blocks = rows_of(outputs, 0), blocks_with(*rising)
    last, scores = trained(federation(rows, outputs, blocks), FedMinMaxFast(tolerance=0.003))
    proved = last.certificate
    assert proved is not None
    assert proved.limit is not None
    assert proved.mean is not None
    assert proved.min_mean is not None
    risks = by_hand(rows, outputs, blocks, torch.nn.functional.one_hot(rows.group, 3).T.double())
    shares = np.bincount(rows.group.numpy()) / len(rows)
    keep_share = server_of(last).allowed.keep_share
    times, limit = 2.0 / keep_share, np.full(3, proved.limit)

    def penalised(point: Vector) -> tuple[Vector, Vector]:
        values, slopes = risks(point)
        mean, slope = shares @ values, shares @ slopes
        above = mean + times * (values - limit)
        return np.r_[mean, above], np.vstack([slope, slope + times * slopes])

    optimum = lowest_maximum(penalised, np.zeros(len(scores) + 1), steps(blocks))
    assert 0.0 < keep_share < 1.0
    assert proved.min_mean <= optimum * (1 + 1e-8)
    assert optimum <= proved.mean * (1 + 1e-6)
    assert proved.upper <= proved.limit
    assert proved.gap <= 1e-4
    assert (steps(blocks)[:, :-1] @ scores.numpy()).min() >= 0.0


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("keep_share", [0.0, 0.3])
def test_players_are_groups_sites_or_everybody(outputs: int, keep_share: float) -> None:
    rows, blocks = rows_of(outputs, 4), blocks_with(BINS)
    fed = federation(rows, outputs, blocks, parts=3)
    groups = torch.nn.functional.one_hot(rows.group, 3).T.double()
    sites = torch.nn.functional.one_hot(torch.arange(len(rows)) % 3, 3).T.double()
    everybody = torch.ones(1, len(rows)).double()
    for method, players in (
        (FedMinMaxFast(optimality_gap=1e-8, keep_share=keep_share), groups),
        (AFLFast(optimality_gap=1e-8, keep_share=keep_share), sites),
        (FedAvgFast(optimality_gap=1e-8), everybody),
    ):
        last, scores = trained(fed, method)
        shares = players / players.sum(dim=1, keepdim=True)
        if len(players) > 1:
            shares = (1 - keep_share) * shares + keep_share * everybody / len(rows)
        functions = by_hand(rows, outputs, blocks, shares)
        optimum = lowest_maximum(functions, np.zeros(len(scores) + 1), steps(blocks))
        assert server_of(last).answer == pytest.approx(optimum, rel=1e-6)
        assert float(scores[:BINS].diff().min()) >= 0.0


def test_without_a_penalty_it_is_isotonic_regression() -> None:
    generator = torch.Generator().manual_seed(3)
    code = torch.randint(BINS, (400,), generator=generator)
    y = 0.4 * code.double() + 2 * torch.randn(400, generator=generator).double()
    rows = Examples(code[:, None].short(), y, torch.zeros_like(code))
    for sign in (1, -1):
        fed = federation(rows, 1, [Block(BINS, rising=sign * BINS)], ridge=1e-9)
        last, _ = trained(fed, FedAvgFast(optimality_gap=1e-12), rounds=100)
        ours = last.model()(torch.arange(BINS)[:, None]).detach().squeeze(1)
        oracle = IsotonicRegression(increasing=sign > 0).fit(code.numpy(), y.numpy())
        wanted = oracle.predict(np.arange(BINS))
        assert len(np.unique(wanted.round(6))) < BINS
        assert ours.numpy() == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize("outputs", [1, 2])
def test_an_optimum_that_already_goes_up_stays_the_same(outputs: int) -> None:
    rows = rows_of(outputs, 0)
    x = torch.sort(rows.x[:, 0].long()).values
    noise = torch.randn(len(x), generator=torch.Generator().manual_seed(1)).double()
    upwards = x.double() + (1.0 if outputs == 1 else 3.0) * noise
    y = upwards if outputs == 1 else (upwards > 4).long()
    rows = Examples(torch.stack([x.short(), rows.x[:, 1], rows.x[:, 2]], 1), y, rows.group)
    method = FedMinMaxFast(optimality_gap=1e-10)
    _, free = trained(federation(rows, outputs, BLOCKS), method)
    assert float(free[:BINS].diff().min()) > 0
    _, bound = trained(federation(rows, outputs, blocks_with(BINS)), method)
    assert bound.numpy() == pytest.approx(free.numpy(), abs=1e-6)


@pytest.mark.parametrize("smoothing", [1e-4, 1e9])
def test_extreme_smoothing_is_no_obstacle(smoothing: float) -> None:
    """Effects that are nearly free, and lines whose slope would be negative."""
    rows = rows_of(2, 5)
    block = replace(BLOCKS[0], smoothing=smoothing, rising=-BINS)
    x = rows.x[:, 0].double()
    chance = torch.sigmoid(0.5 * (x - 4))
    y = (torch.rand(len(rows), generator=torch.Generator().manual_seed(7)) < chance).long()
    last, scores = trained(federation(replace(rows, y=y), 2, [block, *BLOCKS[1:]]), FedMinMaxFast())
    proved = server_of(last).certificate
    assert proved is not None
    assert proved.gap <= 1e-4
    # The best effect that goes down does not go at all.
    assert float(scores[:BINS].diff().max()) <= 0.0
    assert float(scores[:BINS].diff().min()) >= -1e-3


def test_sites_that_stay_away_do_not_bend_it() -> None:
    fed = federation(rows_of(2, 1), 2, blocks_with(BINS), parts=4)
    for done in train(fed, FedMinMaxFast(), rounds=12, participation=0.5):
        model = done.model()
        assert isinstance(model, AdditiveModel)
        effects = model.effects.detach()
        assert float((effects[1] - effects[0])[:BINS].diff().min()) >= 0.0


def test_a_run_is_resumed_to_the_bit(tmp_path: Path) -> None:
    fed = federation(rows_of(2, 1), 2, blocks_with(BINS))
    method = FedMinMaxFast(optimality_gap=0.0)
    whole = fit(fed, method, rounds=7)
    for _ in train_resumably(tmp_path, fed, method, rounds=4):
        pass
    *_, resumed = train_resumably(tmp_path, fed, method, rounds=7)
    assert torch.equal(resumed.progress.state.parameters, whole.progress.state.parameters)
    assert server_of(resumed).lower == server_of(whole).lower
    other = federation(rows_of(2, 1), 2, blocks_with(-BINS))
    with pytest.raises(InputError, match="other"):
        list(train_resumably(tmp_path, other, method, rounds=8))


def test_rounds_after_a_run_certify_it_within_the_same_class() -> None:
    rows, blocks = rows_of(2, 2), blocks_with(BINS)
    fed = federation(rows, 2, blocks, parts=2)
    last, scores = trained(fed, FedAvgFast())
    proved = certify(fed, last.members[0])
    players = torch.nn.functional.one_hot(rows.group, 3).T.double()
    zeros = np.zeros(len(scores) + 1)
    optimum = lowest_maximum(by_hand(rows, 2, blocks, players), zeros, steps(blocks))
    assert proved.lower <= optimum * (1 + 1e-9)
    assert proved.lower == pytest.approx(optimum, rel=2e-4)


def test_columns_that_only_go_up_are_in_no_pair() -> None:
    """Every pair acts together here, and those without the column are found."""
    generator = torch.Generator().manual_seed(0)
    codes = torch.randint(4, (4000, 3), generator=generator)
    score = ((codes[:, :1] + codes[:, 1:]) % 2).sum(dim=1) + (codes[:, 1] + codes[:, 2]) % 2 - 1.5
    y = (torch.rand(4000, generator=generator) < torch.sigmoid(2.0 * score)).long()
    rows = Examples(codes.short(), y, torch.zeros(4000, dtype=torch.int64))
    free = [Block(4, ordered=4)] * 3
    bound = [replace(free[0], rising=4), *free[1:]]
    found = [choose_class([rows], class_structure(2, own, RIDGE), own) for own in (free, bound)]
    pairs = [{(pair.first, pair.second) for pair in own.pairs} for own in found]
    assert pairs == [{(0, 1), (0, 2), (1, 2)}, {(1, 2)}]


@pytest.mark.parametrize("method", [FedMinMax(), FedAvg(), FedMinMaxFast(curvature=False)])
def test_other_methods_are_refused_by_name(method: Any) -> None:
    fed = federation(rows_of(2, 0), 2, blocks_with(BINS))
    with pytest.raises(InputError, match=f"{method.name}.*monotone.*FedMinMaxFast"):
        fit(fed, method, rounds=1)


def test_more_than_two_classes_are_refused() -> None:
    with pytest.raises(InputError, match="3 classes"):
        AdditiveModel(3, blocks_with(BINS), records=10, ridge=RIDGE)
