"""Effects on scores: they add up, they are centred, and dense algebra has their standard errors."""

import numpy as np
import pytest
import torch

from fedminmax.core.additive.effects import centred_effects, score_contrasts
from fedminmax.core.additive.model import AdditiveModel, Block, Pair, codes_with_pairs, roughness
from fedminmax.core.examples import Examples
from fedminmax.core.linear_structure import LinearStructure
from fedminmax.training.additive_class import choose_class

BLOCKS = (Block(9, ordered=8), Block(4), Block(2))
RIDGE = 1e-6


def rows_of(outputs: int, count: int = 500, deviation: float = 1.0) -> Examples:
    generator = torch.Generator().manual_seed(outputs)
    codes = [torch.randint(block.size, (count,), generator=generator) for block in BLOCKS]
    strength = (codes[0] - 4.0) * (codes[2] * 2.0 - 1.0)
    noise = deviation * torch.randn(count, generator=generator).double()
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
    centred = centred_effects(model.effects, model.bias, [s for _, s in SIZES], (), counts)
    contributions = centred.contributions(rows.x)
    scores = model(rows.x) @ score_contrasts(outputs).T
    assert torch.allclose(centred.base + contributions.sum(dim=2), scores, rtol=0, atol=1e-12)
    assert torch.allclose(centred.base, scores.mean(dim=0), atol=1e-12)
    assert float(contributions.mean(dim=0).abs().max()) < 1e-12


SIZES = list(enumerate(block.size for block in BLOCKS))
PAIR = Pair(0, 1, (0, 0, 0, 1, 1, 1, 2, 2, 3), (0, 1, 2, 3))


def test_what_a_column_of_a_pair_does_by_itself_is_its_own_effect() -> None:
    """Least squares over records leaves of the pair's effects what no column has."""
    rows = rows_of(2)
    codes = codes_with_pairs(rows.x, [PAIR]).long()
    sizes = [*(size for _, size in SIZES), PAIR.block.size]
    counts = torch.cat([torch.bincount(codes[:, b], minlength=s) for b, s in enumerate(sizes)])
    effects = torch.randn(2, sum(sizes), generator=torch.Generator().manual_seed(3)).double()
    found = centred_effects(effects, torch.zeros(2), sizes, [PAIR], counts)
    added = found.contributions(codes)[:, 0].numpy()
    as_fitted = centred_effects(effects, torch.zeros(2), sizes, (), counts)
    np.testing.assert_allclose(
        float(found.base) + added.sum(axis=1),
        (as_fitted.base + as_fitted.contributions(codes)[:, 0].sum(dim=1)).numpy(),
        atol=1e-12,
    )
    half = [np.eye(4)[codes[:, 3].numpy() // 4], np.eye(4)[codes[:, 3].numpy() % 4]]
    columns = np.concatenate(half, axis=1)
    pair = as_fitted.contributions(codes)[:, 0, 3].numpy()
    left = pair - columns @ np.linalg.lstsq(columns, pair)[0]
    np.testing.assert_allclose(added[:, 3], left, atol=1e-12)
    assert abs(columns.T @ added[:, 3]).max() < 1e-9


def test_the_score_of_two_classes_is_their_log_odds() -> None:
    outputs = torch.tensor([[0.3, -1.2]], dtype=torch.float64)
    chance = torch.softmax(outputs, dim=1)[0, 1]
    assert float(score_contrasts(2) @ outputs[0]) == pytest.approx(float(torch.logit(chance)))


def test_codes_that_nobody_counted_leave_effects_as_they_are() -> None:
    effects = torch.tensor([[1.0, 3.0]], dtype=torch.float64)
    centred = centred_effects(effects, torch.zeros(1), [2], (), torch.zeros(2))
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
    rows = rows_of(outputs, 2000, deviation=16.0)
    chosen = choose_class([rows], structure_of(outputs), BLOCKS, max_pairs=1)
    (pair,) = chosen.pairs
    codes = codes_with_pairs(rows.x, chosen.pairs).numpy()
    sizes = [block.size for block in chosen.blocks]
    one_hot = [np.eye(size)[codes[:, number]] for number, size in enumerate(sizes)]
    x = np.concatenate([*one_hot, np.ones((2000, 1))], axis=1)
    width = x.shape[1]
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
    ends = np.cumsum(sizes)
    spans = [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]
    # Contributions of records are linear in the parameters; those of a pair without its margins.
    cells, own = one_hot[-1], np.eye(width)
    halves = [codes[:, -1] // pair.width, codes[:, -1] % pair.width]
    columns = [np.eye(half.max() + 1)[half] for half in halves]
    by_cell = np.linalg.lstsq(np.concatenate(columns, axis=1), cells)[0]
    margins = np.split(by_cell, [columns[0].shape[1]])
    for number, span in enumerate(spans):
        shown = one_hot[number] @ own[span]
        for column, half, margin in zip((pair.first, pair.second), columns, margins, strict=True):
            if number == column:
                shown = shown + half @ margin @ own[spans[-1]]
            elif number == len(BLOCKS):
                shown = shown - half @ margin @ own[spans[-1]]
        shown -= shown.mean(axis=0)
        errors = np.sqrt(np.einsum("ij,jk,ik->i", shown, inverse, shown))
        ours = chosen.standard_errors[0, span].numpy()[codes[:, number]]
        np.testing.assert_allclose(ours, errors, rtol=0.02, err_msg=str(number))
