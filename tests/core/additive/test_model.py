"""Additive models: effects, penalty, and what a linear model of indicators has to say of them."""

import numpy as np
import pytest
import torch
from torch import Tensor

from fedminmax.core.additive.model import (
    AdditiveModel,
    Block,
    Pair,
    codes_with_pairs,
    fixed_roughness,
    roughness,
)

RECORDS, RIDGE = 200, 1e-4
BLOCKS = (Block(6, ordered=5, smoothing=30.0), Block(4, smoothing=2.0), Block(3))


def indicators(codes: Tensor, blocks: tuple[Block, ...]) -> Tensor:
    columns = [
        torch.nn.functional.one_hot(codes[:, number].long(), block.size)
        for number, block in enumerate(blocks)
    ]
    return torch.cat(columns, dim=1).double()


def test_outputs_are_those_of_a_linear_model_of_indicators() -> None:
    torch.manual_seed(0)
    model = AdditiveModel(2, BLOCKS, records=RECORDS, ridge=RIDGE)
    effects, intercepts = torch.randn(2, 13).double(), torch.randn(2).double()
    model.load_effects(effects, intercepts)
    codes = torch.stack([torch.randint(block.size, (50,)) for block in BLOCKS], dim=1).short()
    expected = indicators(codes, BLOCKS) @ effects.T + intercepts
    assert torch.allclose(model(codes), expected, atol=1e-9)
    assert torch.allclose(model.effects, effects, atol=1e-9)


def test_the_penalty_of_the_effects_is_the_ridge_of_the_parameters() -> None:
    torch.manual_seed(1)
    model = AdditiveModel(1, BLOCKS, records=RECORDS, ridge=RIDGE)
    effects = torch.randn(1, 13).double()
    model.load_effects(effects, torch.zeros(1))
    penalty, start = 0.5 * RIDGE * effects.square().sum(), 0
    for block in BLOCKS[:2]:
        own = effects[0, start : start + block.size]
        bends = own @ roughness(block) @ own
        penalty += 0.5 * (block.smoothing * bends + fixed_roughness(block) @ own**2) / RECORDS
        start += block.size
    ridge_penalty = 0.5 * RIDGE * model.weight.detach().square().sum()
    assert float(ridge_penalty) == pytest.approx(float(penalty))


def test_effects_between_nodes_are_on_straight_lines() -> None:
    places, nodes = (-3.0, -1.0, 0.0, 0.5, 4.0, 9.0), (0, 2, 5)
    block = Block(7, ordered=6, smoothing=4.0, positions=places, nodes=nodes)
    model = AdditiveModel(1, [block], records=RECORDS, ridge=RIDGE)
    effects = np.interp(places, np.array(places)[list(nodes)], [2.0, -1.0, 5.0])
    expected = torch.tensor([[*effects, 8.0]])
    # What stands between nodes is not read.
    given = torch.tensor([[2.0, 99.0, -1.0, 99.0, 99.0, 5.0, 8.0]]).double()
    assert torch.allclose(model.load_effects(given, torch.zeros(1)).effects, expected)
    assert torch.allclose(model(torch.arange(7)[:, None]).flatten(), expected[0])
    assert model.weight.shape == (1, 4)
    shares = block.line_shares()
    assert float(shares.square().sum(dim=1).max()) <= 1.0


def test_straight_lines_over_bins_are_not_rough() -> None:
    block = Block(6, ordered=5, smoothing=1.0)
    line = torch.tensor([1.0, 3.0, 5.0, 7.0, 9.0, 0.0]).double()
    assert float(line @ roughness(block) @ line) == pytest.approx(0.0, abs=1e-12)
    assert int(torch.linalg.matrix_rank(roughness(block))) == block.rank == 3


def test_no_transform_lengthens_a_record() -> None:
    model = AdditiveModel(1, BLOCKS, records=RECORDS, ridge=RIDGE)
    codes = torch.cartesian_prod(*[torch.arange(block.size) for block in BLOCKS])
    rows = model.design.transformed(indicators(codes, BLOCKS))
    assert float(rows.square().sum(dim=1).max()) <= len(BLOCKS) + 1e-9


def test_more_smoothing_leaves_less_but_lines() -> None:
    """As smoothing grows, effects of bins become a line and those of categories 0."""
    smooth = (Block(5, ordered=5, smoothing=1e12), Block(4, smoothing=1e12))
    model = AdditiveModel(1, smooth, records=1, ridge=RIDGE)
    torch.manual_seed(2)
    with torch.no_grad():
        model.weight.normal_()
    bins, categories = torch.split(model.effects[0].detach(), [5, 4])
    assert float(bins.diff().diff().abs().max()) < 1e-6
    assert float(categories.abs().max()) < 1e-6


def test_pairs_with_many_cells_need_wider_codes() -> None:
    codes = torch.tensor([[19, 19], [0, 3]], dtype=torch.int8)
    pair = Pair(0, 1, tuple(range(20)), tuple(range(20)))
    assert codes_with_pairs(codes, [pair])[:, 2].tolist() == [399, 3]
