"""Smoothing: oracles are closed forms of random effects, and the truth of made-up data."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from fedminmax.core.additive.model import Block
from fedminmax.core.additive.smoothing import MAX_SMOOTHING
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
