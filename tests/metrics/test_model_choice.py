"""The richer model is chosen only if its worst group's gain is beyond one standard error."""

import math

import pytest
import torch

from fedminmax.metrics.model_choice import compare_models

# 400 rows of group 0, 300 of group 1.
GROUP = torch.tensor([0] * 400 + [1] * 300)
ROWS = torch.tensor([400, 300])


def spread(mean: float, rows: int, half: float) -> torch.Tensor:
    """Half of the rows above the mean by ``half``, half below it."""
    signs = torch.tensor([1.0, -1.0]).repeat(rows // 2)
    return mean + half * signs


def test_the_same_worst_group_is_compared_row_by_row() -> None:
    plain = torch.cat([spread(0.2, 400, 0.1), spread(1.0, 300, 0.5)])
    # Every row of the worst group is lower by 0.1 but for a change of 0.3 up and down.
    richer = plain - torch.cat([spread(-0.5, 400, 0.0), spread(0.1, 300, 0.3)])
    found = compare_models(plain, richer, GROUP, ROWS)
    assert found.gain == pytest.approx(0.1)
    assert found.error == pytest.approx(0.3 / math.sqrt(299))
    assert found.prefers_richer
    assert not compare_models(plain, plain - 0.5 * (plain - richer) + 0.01, GROUP, ROWS).gain > 0.05


def test_a_gain_within_the_noise_is_none() -> None:
    plain = torch.cat([spread(0.2, 400, 0.1), spread(1.0, 300, 0.5)])
    richer = plain - torch.cat([spread(0.0, 400, 0.0), spread(0.01, 300, 0.3)])
    found = compare_models(plain, richer, GROUP, ROWS)
    assert 0.0 < found.gain < found.error
    assert not found.prefers_richer


def test_different_worst_groups_have_errors_that_add_up() -> None:
    plain = torch.cat([spread(0.2, 400, 0.1), spread(1.0, 300, 0.5)])
    richer = torch.cat([spread(0.7, 400, 0.2), spread(0.1, 300, 0.05)])
    found = compare_models(plain, richer, GROUP, ROWS)
    assert (found.plain.group, found.richer.group) == (1, 0)
    assert found.gain == pytest.approx(0.3)
    assert found.error == pytest.approx(math.hypot(0.5 / math.sqrt(299), 0.2 / math.sqrt(399)))


def test_groups_that_are_too_small_do_not_count() -> None:
    plain, richer = torch.ones(700), torch.ones(700)
    richer[GROUP == 1] = 0.0
    only_first = torch.tensor([400, 0])
    assert not compare_models(plain, richer, GROUP, only_first).prefers_richer
    assert compare_models(plain, richer - 0.1, GROUP, only_first).gain == pytest.approx(0.1)
    nobody = compare_models(plain, richer, GROUP, torch.tensor([0, 0]))
    assert (nobody.gain, nobody.prefers_richer) == (0.0, False)
