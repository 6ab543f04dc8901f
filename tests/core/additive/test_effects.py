"""Effects on scores: they add up, they are centred, and dense algebra has their standard errors."""

import numpy as np
import pytest
import torch

from fedminmax.core.additive.model import AdditiveModel, Block, Pair, codes_with_pairs, roughness
from fedminmax.core.additive.smoothing import centred_effects, score_contrasts
from fedminmax.core.examples import Examples
from fedminmax.core.linear_structure import LinearStructure
from fedminmax.training.additive_class import choose_class

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
