"""mu . r over the allowed weights is nu . R over a plain simplex."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedminmax.core.solvers.max_of_quadratics import highest_mix
from fedminmax.core.solvers.simplex import FixedShares

games = st.integers(2, 6).flatmap(
    lambda size: st.tuples(
        st.lists(st.integers(1, 99), min_size=size, max_size=size),
        st.lists(st.booleans(), min_size=size, max_size=size).filter(any),
        st.lists(st.floats(0, 5), min_size=size, max_size=size),
        st.lists(st.floats(0.01, 1), min_size=size, max_size=size),
        st.floats(0.0, 0.95),
    )
)


@given(games)
def test_a_plain_game_over_mixed_risks_is_the_game_with_fixed_weights(
    drawn: tuple[list[int], list[bool], list[float], list[float], float],
) -> None:
    *lists, keep_share = drawn
    rows, included, risks, wishes = (torch.tensor(own) for own in lists)
    shares, r = rows.double() / rows.sum(), risks.double()
    fixed = FixedShares(shares, included, keep_share)
    chosen = wishes.double()[included] / wishes.double()[included].sum()
    weights = fixed.weights(chosen)
    assert float(weights.sum()) == pytest.approx(1.0)
    assert torch.equal(weights[~included], shares[~included])
    assert bool((weights >= keep_share * shares).all())
    assert fixed.chosen(weights).tolist() == pytest.approx(chosen.tolist())
    assert float(weights @ r) == pytest.approx(float(chosen @ fixed.mix(r)))
    # The worst that is allowed: all that is free, but for the floor, on the highest included risk.
    epsilon = 0.5 * fixed.free / int(included.sum())
    allowed = torch.where(included, keep_share * shares + epsilon, shares)
    allowed[included.nonzero()[int(r[included].argmax())]] += 1.0 - allowed.sum()
    worst = highest_mix(fixed.mix(r), fixed.floor(epsilon))
    assert worst == pytest.approx(float(allowed @ r))


def test_where_all_play_nothing_changes() -> None:
    shares = torch.tensor([0.1, 0.9], dtype=torch.float64)
    fixed = FixedShares(shares, torch.tensor([True, True]))
    values = torch.tensor([[0.3, 7.0], [1.1, 0.1]], dtype=torch.float64)
    assert torch.equal(fixed.mix(values), values)
    assert torch.equal(fixed.chosen(shares), shares)
    assert torch.equal(fixed.weights(values[0]), values[0])
    assert fixed.floor(0.07) == 0.07


def test_if_all_play_the_value_is_a_mixture_of_the_worst_and_the_mean_risk() -> None:
    shares = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
    risks = torch.tensor([0.9, 0.1, 0.4], dtype=torch.float64)
    fixed = FixedShares(shares, torch.ones(3, dtype=torch.bool), keep_share=0.25)
    mean = 0.2 * 0.9 + 0.5 * 0.1 + 0.3 * 0.4
    assert float(fixed.mix(risks).max()) == pytest.approx(0.75 * 0.9 + 0.25 * mean, rel=1e-14)
