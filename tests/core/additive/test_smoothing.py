"""Smoothing: oracles are closed forms of random effects, and the truth of made-up data.

Effects on scores: they add up, they are centred, and dense algebra has their standard errors.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from fedminmax.core.additive.model import AdditiveModel, Block, Pair, codes_with_pairs, roughness
from fedminmax.core.additive.smoothing import MAX_SMOOTHING, centred_effects, score_contrasts
from fedminmax.core.examples import Examples
from fedminmax.core.linear_structure import LinearStructure
from fedminmax.training.additive_class import CELLS, choose_class


def plain(blocks: list[Block], outputs: int, loss: str) -> LinearStructure:
    columns = sum(block.size for block in blocks)
    return LinearStructure(outputs, columns, intercept=True, loss=loss, ridge=1e-8, coded=True)


def test_the_variance_of_random_effects_is_that_of_one_way_anova() -> None:
    """Balanced groups: REML has a closed form (Searle, Casella, McCulloch 1992, section 3.8)."""
    groups, size = 40, 25
    generator = torch.Generator().manual_seed(3)
    effects = 0.7 * torch.randn(groups, generator=generator).double()
    code = torch.arange(groups).repeat_interleave(size)
    y = 2.0 + effects[code] + torch.randn(groups * size, generator=generator).double()
    means = y.reshape(groups, size).mean(dim=1)
    within = (y - means[code]).square().sum() / (groups * (size - 1))
    between = size * (means - y.mean()).square().sum() / (groups - 1)
    variance = float((between - within) / size)
    rows = Examples(code[:, None].short(), y, torch.zeros_like(code))
    blocks = [Block(groups)]
    chosen = choose_class([rows], plain(blocks, 1, "squared_error"), blocks, max_pairs=0)
    # Squared errors are twice the error variance times minus the log-likelihood.
    assert 2.0 * float(within) / chosen.blocks[0].smoothing == pytest.approx(variance, rel=0.02)


def curve_rows(bend: float, count: int = 4000) -> Examples:
    generator = torch.Generator().manual_seed(5)
    code = torch.randint(40, (count,), generator=generator)
    x = code.double() / 20 - 1
    chance = torch.sigmoid(1.5 * x + bend * torch.sin(6 * x))
    y = (torch.rand(count, generator=generator).double() < chance).long()
    return Examples(code[:, None].short(), y, torch.zeros_like(code))


def fitted(rows: Examples) -> tuple[float, Tensor]:
    blocks = [Block(40, ordered=40)]
    chosen = choose_class([rows], plain(blocks, 2, "cross_entropy"), blocks, max_pairs=0)
    return chosen.blocks[0].smoothing, chosen.effects[1] - chosen.effects[0]


def test_lines_stay_lines_and_curves_are_followed() -> None:
    smoothing, line = fitted(curve_rows(0.0))
    assert smoothing > 1e3
    slope = (line[-1] - line[0]) / 39
    assert float((line.diff() - slope).abs().max()) < 0.1 * abs(float(slope)) + 0.02
    rougher, curve = fitted(curve_rows(2.0))
    x = torch.arange(40).double() / 20 - 1
    truth = 1.5 * x + 2.0 * torch.sin(6 * x)
    error = (curve - curve.mean()) - (truth - truth.mean())
    assert rougher < smoothing / 10
    assert float(error.square().mean().sqrt()) < 0.25


def test_noise_is_smoothed_away() -> None:
    generator = torch.Generator().manual_seed(6)
    codes = torch.randint(10, (2000, 3), generator=generator).short()
    y = torch.randint(2, (2000,), generator=generator)
    blocks = [Block(10)] * 3
    rows = Examples(codes, y, torch.zeros_like(y))
    chosen = choose_class([rows], plain(blocks, 2, "cross_entropy"), blocks, max_pairs=10)
    assert chosen.pairs == ()
    assert float(chosen.effects.abs().max()) < 0.15
    assert max(block.smoothing for block in chosen.blocks) <= MAX_SMOOTHING


def test_any_partition_gives_the_same_class() -> None:
    rows = curve_rows(1.0)
    second = torch.randint(4, (len(rows),), generator=torch.Generator().manual_seed(8))
    rows = replace(rows, x=torch.cat([rows.x, second[:, None].short()], dim=1))
    blocks = [Block(40, ordered=40), Block(4)]
    structure = plain(blocks, 2, "cross_entropy")
    together = choose_class([rows], structure, blocks)
    order = torch.argsort(rows.x[:, 0].long())
    parts = [rows.rows(order[start::3]) for start in range(3)] + [rows.rows(order[:0])]
    apart = choose_class(parts, structure, blocks)
    assert apart.blocks == together.blocks
    assert apart.pairs == together.pairs
    assert torch.allclose(apart.effects, together.effects, atol=1e-9)


def test_a_separable_target_ends_at_finite_effects() -> None:
    code = torch.arange(400) % 8
    rows = Examples(code[:, None].short(), (code > 3).long(), torch.zeros_like(code))
    blocks = [Block(8, ordered=8)]
    chosen = choose_class([rows], plain(blocks, 2, "cross_entropy"), blocks)
    assert bool(torch.isfinite(chosen.effects).all())
    scores = chosen.effects[1] - chosen.effects[0] + chosen.intercepts[1] - chosen.intercepts[0]
    assert bool(((scores > 0) == (torch.arange(8) > 3)).all())


def test_pairs_that_matter_are_chosen() -> None:
    """An exclusive or of two columns, which no sum of effects can express."""
    generator = torch.Generator().manual_seed(9)
    codes = torch.randint(3, (3000, 4), generator=generator)
    chance = torch.where((codes[:, 1] > 0) ^ (codes[:, 3] > 0), 0.8, 0.2)
    y = (torch.rand(3000, generator=generator) < chance).long()
    blocks = [Block(3)] * 4
    rows = Examples(codes.short(), y, torch.zeros_like(y))
    chosen = choose_class([rows], plain(blocks, 2, "cross_entropy"), blocks, max_pairs=2)
    assert (1, 3) in [(pair.first, pair.second) for pair in chosen.pairs]


def test_missing_values_have_a_cell_of_their_own_in_pairs() -> None:
    """Missing beside many bins, which reverses the effect of another column."""
    generator = torch.Generator().manual_seed(10)
    first = torch.randint(31, (4000,), generator=generator)
    second = torch.randint(2, (4000,), generator=generator)
    chance = torch.where((first == 30) ^ (second > 0), 0.8, 0.2)
    y = (torch.rand(4000, generator=generator) < chance).long()
    blocks = [Block(31, ordered=30), Block(2)]
    rows = Examples(torch.stack([first, second], dim=1).short(), y, torch.zeros_like(y))
    chosen = choose_class([rows], plain(blocks, 2, "cross_entropy"), blocks, max_pairs=1)
    (pair,) = chosen.pairs
    assert pair.first_cells[30] not in pair.first_cells[:30]
    assert list(pair.first_cells) == sorted(pair.first_cells)
    # As many cells as sites allow, no more.
    assert max(pair.first_cells) < CELLS


BLOCKS = (Block(9, ordered=8), Block(4), Block(2))
RIDGE = 1e-6


def rows_of(outputs: int, count: int = 500) -> Examples:
    generator = torch.Generator().manual_seed(outputs)
    codes = [torch.randint(block.size, (count,), generator=generator) for block in BLOCKS]
    strength = (codes[0] - 4.0) * (codes[2] * 2.0 - 1.0)
    noise = torch.randn(count, generator=generator).double()
    y = strength + noise if outputs == 1 else (strength + noise > 0).long() * (outputs - 1)
    if outputs > 2:
        y[::5] = 1
    return Examples(torch.stack(codes, dim=1).short(), y, torch.zeros(count).long())


def structure_of(outputs: int) -> LinearStructure:
    loss = "squared_error" if outputs == 1 else "cross_entropy"
    columns = sum(block.size for block in BLOCKS)
    return LinearStructure(outputs, columns, intercept=True, loss=loss, ridge=RIDGE, coded=True)


@pytest.mark.parametrize("outputs", [1, 2, 3])
def test_base_and_contributions_add_up_to_the_score(outputs: int) -> None:
    torch.manual_seed(outputs)
    rows = rows_of(outputs)
    model = AdditiveModel(outputs, BLOCKS, records=1, ridge=0.0)
    model.load_effects(torch.randn(outputs, 15), torch.randn(outputs))
    counts = torch.cat([torch.bincount(rows.x[:, b].long(), minlength=s) for b, s in SIZES])
    centred = centred_effects(model.effects, model.bias, [s for _, s in SIZES], counts)
    contributions = centred.contributions(rows.x)
    scores = model(rows.x) @ score_contrasts(outputs).T
    assert torch.allclose(centred.base + contributions.sum(dim=2), scores, rtol=0, atol=1e-12)
    assert torch.allclose(centred.base, scores.mean(dim=0), atol=1e-12)
    assert float(contributions.mean(dim=0).abs().max()) < 1e-12


SIZES = list(enumerate(block.size for block in BLOCKS))


def test_the_score_of_two_classes_is_their_log_odds() -> None:
    outputs = torch.tensor([[0.3, -1.2]], dtype=torch.float64)
    chance = torch.softmax(outputs, dim=1)[0, 1]
    assert float(score_contrasts(2) @ outputs[0]) == pytest.approx(float(torch.logit(chance)))


def test_codes_that_nobody_counted_leave_effects_as_they_are() -> None:
    effects = torch.tensor([[1.0, 3.0]], dtype=torch.float64)
    centred = centred_effects(effects, torch.zeros(1), [2], torch.zeros(2))
    assert centred.effects.tolist() == [[1.0, 3.0]]
    assert centred.base.tolist() == [0.0]


@pytest.mark.parametrize("outputs", [1, 2, 3])
def test_the_first_round_counts_records_by_code_and_by_pair(outputs: int) -> None:
    rows = rows_of(outputs)
    chosen = choose_class([rows], structure_of(outputs), BLOCKS)
    assert Pair(0, 2, tuple(range(9)), (0, 1), chosen.pairs[0].smoothing) in chosen.pairs
    codes = codes_with_pairs(rows.x, chosen.pairs).numpy()
    expected = np.concatenate(
        [
            np.bincount(codes[:, number], minlength=block.size)
            for number, block in enumerate(chosen.blocks)
        ]
    )
    assert chosen.counts.tolist() == expected.tolist()


@pytest.mark.parametrize("outputs", [1, 2])
def test_standard_errors_are_those_of_dense_algebra(outputs: int) -> None:
    """The log-odds have curvature p (1 - p) x x', a likelihood's; lines have 2 x x' / (2 s^2)."""
    rows = rows_of(outputs, 2000)
    chosen = choose_class([rows], structure_of(outputs), BLOCKS, max_pairs=0)
    width = sum(block.size for block in BLOCKS) + 1
    x = np.concatenate(
        [np.eye(s)[rows.x[:, b].numpy()] for b, s in SIZES] + [np.ones((2000, 1))], 1
    )
    contrasts = score_contrasts(outputs)
    matrix = torch.cat([chosen.effects, chosen.intercepts[:, None]], dim=1)
    theta = (contrasts @ matrix)[0].numpy()
    scores, y = x @ theta, rows.y.numpy()
    penalty = RIDGE * 2000 * np.eye(width)
    start = 0
    for block in chosen.blocks:
        span = slice(start, start + block.size)
        penalty[span, span] += block.smoothing * roughness(block).numpy()
        start += block.size
    penalty[8, 8] += 1.0
    if outputs == 1:
        bends = 2 * x.T @ x
        inverse = np.linalg.inv(bends + penalty)
        freedom = 2000 - np.trace(inverse @ bends)
        inverse *= 2 * ((y - scores) ** 2).sum() / freedom
    else:
        chance = 1 / (1 + np.exp(-scores))
        bends = x.T @ (x * (chance * (1 - chance))[:, None])
        # Both outputs are penalised, each half the log-odds away from 0.
        inverse = np.linalg.inv(bends + penalty / 2)
    start = 0
    for number, size in SIZES:
        span = slice(start, start + size)
        share = np.bincount(rows.x[:, number].numpy(), minlength=size) / 2000
        centre = np.eye(size) - share[None, :]
        variance = np.diag(centre @ inverse[span, span] @ centre.T)
        ours = chosen.standard_errors[0, span].numpy()
        np.testing.assert_allclose(ours, np.sqrt(variance), rtol=0.02, err_msg=str(number))
        start += size
