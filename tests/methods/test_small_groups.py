"""A group of too few rows weighs what its share is, and the adversary cannot choose it.

The game: r_a = (theta - c_a)^2 / 2 with c = 0 and 1 for two groups of 50 rows, and one row at 3. If
it plays, theta is half way between 0 and 3. With its share s = 1/101 alone, the objective is
(1 - s) max(theta^2, (theta - 1)^2) / 2 + s (theta - 3)^2 / 2, lowest at the edge theta = 1/2: the
gradient there, mu_0 / 2 - mu_1 / 2 - 5/2 s, vanishes at mu_0 = (1 + 4 s) / 2, mu_1 = (1 - 6 s) / 2.
"""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fedminmax.core.errors import DivergedError, InputError
from fedminmax.core.losses import brier_loss
from fedminmax.core.messages import Census
from fedminmax.core.small_groups import MERGED_NAME, SmallGroupRule, small_group_notes
from fedminmax.core.solvers.simplex import ascend_on_simplex
from fedminmax.methods.ap_star import APStar
from fedminmax.methods.drfa import GroupDRFA
from fedminmax.methods.fedminmax import FedMinMax, FedMinMaxLocal
from fedminmax.methods.group_scaff_pd import GroupSCAFFPD
from fedminmax.methods.method import AnyMethod
from fedminmax.methods.minimax_fair import MinimaxFair, RelaxedMinimaxFair
from fedminmax.methods.oracle_minimax import OracleMinimax
from fedminmax.methods.shared.replies import shares_within_floor
from fedminmax.methods.term import GroupTERM
from fedminmax.training.simulation import Simulation
from fedminmax.training.train import Round, train
from tests.problems import Point, half_squared_distance, points, pooled, softmax_problem

S = 1 / 101
ROWS = [points([[[0.0]] * 20, [[1.0]] * 30]), points([[[0.0]] * 30, [[1.0]] * 20, [[3.0]]])]
METHODS: list[tuple[AnyMethod[Any], int]] = [
    (FedMinMax(0.5, 0.5), 200),
    (FedMinMaxLocal(0.5, 0.5, epochs=1, batch_size=None), 200),
    (GroupSCAFFPD(0.5, 0.5, epochs=1, batch_size=None), 100),
    (GroupDRFA(0.5, 0.5, steps=1, batch_size=None), 200),
    (GroupTERM(100.0, learning_rate=0.02), 300),
    (MinimaxFair(0.5, 3.0, fit_rounds=5), 240),
    (OracleMinimax(50, learning_rate=0.5, fit_rounds=5), 300),
    (APStar(learning_rate=0.5, fit_rounds=5), 150),
    (RelaxedMinimaxFair(0.13, learning_rate=0.5, fit_rounds=5, discard=50), 600),
]


def game(**rule: Any) -> Simulation:
    return Simulation(Point([0.0]), half_squared_distance, ROWS, **rule)


def last(federation: Simulation, method: AnyMethod[Any], rounds: int) -> Round[Any]:
    return list(train(federation, method, rounds=rounds))[-1]


@pytest.mark.parametrize(("method", "rounds"), METHODS, ids=lambda own: getattr(own, "name", ""))
def test_a_small_group_has_its_share_and_no_more(method: AnyMethod[Any], rounds: int) -> None:
    done = last(game(minimum_group=30), method, rounds)
    assert float(done.members.mean()) == pytest.approx(0.5, abs=0.06)
    if not isinstance(method, RelaxedMinimaxFair):
        assert float(done.weights[2]) == S
        assert float(done.weights.sum()) == pytest.approx(1.0, abs=1e-12)
    assert done.worst_group in ("0", "1")
    assert done.worst_risk == float(done.risks[:2].max()) < float(done.risks[2])


@pytest.mark.parametrize(("method", "rounds"), METHODS, ids=lambda own: getattr(own, "name", ""))
def test_one_row_owns_the_game_if_it_plays(method: AnyMethod[Any], rounds: int) -> None:
    try:
        done = last(game(minimum_group=30, small=SmallGroupRule.INCLUDE), method, rounds)
    except DivergedError:
        assert isinstance(method, RelaxedMinimaxFair)
        return
    assert float(done.members.mean()) > 0.9


def test_the_weights_are_those_of_the_saddle_point() -> None:
    done = last(game(minimum_group=30), FedMinMax(0.5, 0.5), 400)
    assert float(done.progress.iterates.last) == pytest.approx(0.5, abs=1e-6)
    assert done.weights.tolist() == pytest.approx([(1 + 4 * S) / 2, (1 - 6 * S) / 2, S], abs=1e-5)


@pytest.mark.parametrize("method", [own for own, _ in METHODS], ids=lambda own: own.name)
def test_without_small_groups_nothing_changes(method: AnyMethod[Any]) -> None:
    federation = softmax_problem([[4, 0, 2], [1, 5, 1]])
    plain = last(federation.federation(), method, 12)
    model, rows = federation.model(), federation.sites
    for rule in (SmallGroupRule.BY_SIZE, SmallGroupRule.MERGE):
        same = Simulation(model, brier_loss, rows, minimum_group=3, small=rule)
        done = last(same, method, 12)
        assert torch.equal(done.members, plain.members)
        assert torch.equal(done.weights, plain.weights)


@pytest.mark.parametrize("method", [own for own, _ in METHODS[:5]], ids=lambda own: own.name)
def test_who_holds_the_rows_does_not_matter(method: AnyMethod[Any]) -> None:
    together = Simulation(Point([0.0]), half_squared_distance, [pooled(ROWS)], minimum_group=30)
    one, other = last(together, method, 30), last(game(minimum_group=30), method, 30)
    assert one.members.tolist() == [pytest.approx(other.members[0].tolist(), abs=1e-12)]
    assert one.weights.tolist() == pytest.approx(other.weights.tolist(), abs=1e-12)


def test_merged_groups_are_one_group_from_the_start() -> None:
    problem = softmax_problem([[40, 2, 30, 3], [0, 1, 9, 0]])
    merged = Simulation(
        problem.model(), brier_loss, problem.sites, minimum_group=6, small=SmallGroupRule.MERGE
    )
    assert merged.group_names == ("0", "2", MERGED_NAME)
    assert merged.census.counts.tolist() == [[40, 30, 5], [0, 9, 1]]
    assert merged.census.included.tolist() == [True, True, True]
    by_hand = [(x, y, torch.tensor([0, 2, 1, 2])[group]) for x, y, group in problem.sites]
    expected = last(Simulation(problem.model(), brier_loss, by_hand), FedMinMax(), 5)
    assert torch.equal(last(merged, FedMinMax(), 5).members, expected.members)


def test_a_merged_group_that_is_still_small_does_not_play() -> None:
    problem = softmax_problem([[40, 2, 30, 3]])
    merged = Simulation(
        problem.model(), brier_loss, problem.sites, minimum_group=30, small=SmallGroupRule.MERGE
    )
    assert merged.census.included.tolist() == [True, True, False]


def test_a_name_that_merged_groups_have_is_refused() -> None:
    problem = softmax_problem([[40, 2, 3]])
    with pytest.raises(InputError, match=f"a group is named '{MERGED_NAME}'"):
        Simulation(
            problem.model(),
            half_squared_distance,
            problem.sites,
            group_names=(MERGED_NAME, "b", "c"),
            minimum_group=30,
            small=SmallGroupRule.MERGE,
        )


def test_where_all_are_small_all_play() -> None:
    census = Census(torch.tensor([[5, 3], [2, 9]]), minimum_group=30)
    assert census.included.tolist() == [True, True]
    (note,) = small_group_notes([7, 12], ["a", "b"], 30, SmallGroupRule.BY_SIZE)
    assert note.startswith("every group has fewer than 30 training rows")


def test_a_single_playable_group_makes_the_game_ordinary_training() -> None:
    rows = [points([[[0.0]] * 60, [[1.0]] * 20, [[3.0]]])]
    alone = Simulation(Point([0.0]), half_squared_distance, rows, minimum_group=30)
    done = last(alone, FedMinMax(0.5), 60)
    assert float(done.progress.iterates.last) == pytest.approx(23 / 81, abs=1e-9)
    notes = small_group_notes([60, 20, 1], ["a", "b", "c"], 30, SmallGroupRule.BY_SIZE)
    assert "only 'a' has enough training rows" in notes[1]


def test_no_group_is_said_to_be_small_if_it_plays() -> None:
    assert small_group_notes([100, 2], ["a", "b"], 30, SmallGroupRule.INCLUDE) == []
    assert small_group_notes([100, 30], ["a", "b"], 30, SmallGroupRule.BY_SIZE) == []


def test_a_floor_must_fit_into_what_the_small_groups_leave() -> None:
    census = Census(torch.tensor([[50, 50, 25]]), minimum_group=30)
    assert shares_within_floor("x", census, 0.4).tolist() == pytest.approx([0.4, 0.4, 0.2])
    with pytest.raises(InputError, match=r"choose min_weight at most 0\.4"):
        shares_within_floor("x", census, 0.41)


def test_what_is_no_rule_is_refused() -> None:
    with pytest.raises(InputError, match=r"small = 'by_size'; give SmallGroupRule.BY_SIZE"):
        game(minimum_group=30, small="by_size")
    with pytest.raises(InputError, match="minimum_group = -1; give a whole number of at least 0"):
        game(minimum_group=-1)


weight_vectors = st.integers(2, 6).flatmap(
    lambda size: st.tuples(
        st.lists(st.integers(1, 500), min_size=size, max_size=size),
        st.lists(st.floats(0, 3), min_size=size, max_size=size),
        st.floats(0, 2),
        st.integers(0, 2**16),
    )
)


@given(weight_vectors)
def test_the_ascent_is_the_projection_on_what_is_allowed(
    drawn: tuple[list[int], list[float], float, int],
) -> None:
    """x is the projection of v on a convex set iff (v - x) . (y - x) <= 0 for all y in the set."""
    rows, risks, rate, seed = drawn
    census = Census(torch.tensor([rows]), minimum_group=60)
    shares, included = census.group_shares, census.included
    floor = 0.5 * float(shares[included].sum()) / int(included.sum())
    start = shares_within_floor("x", census, floor)
    wanted = start + rate * torch.tensor(risks, dtype=torch.float64)
    found = ascend_on_simplex(
        start, torch.tensor(risks, dtype=torch.float64), included, rate=rate, floor=floor
    )
    assert torch.equal(found[~included], shares[~included])
    assert float(found.sum()) == pytest.approx(1.0, abs=1e-12)
    assert float(found[included].min()) >= floor - 1e-12
    generator = np.random.default_rng(seed)
    size = int(included.sum())
    spare = float(shares[included].sum()) - floor * size
    corners = [*np.eye(size), generator.dirichlet(np.ones(size))]
    for corner in corners:
        allowed = _with(found, included, floor + spare * torch.from_numpy(corner))
        assert float((wanted - found) @ (allowed - found)) <= 1e-9


def _with(weights: Tensor, included: Tensor, values: Tensor) -> Tensor:
    changed = weights.clone()
    changed[included] = values
    return changed
