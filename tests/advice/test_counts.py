"""The adviser: what follows from Lemma 1 and from numbers of rows, and in which words.

How many rounds a run takes is known roughly before.

Lemma 1's P_A Delta: is a mix of groups within the hull, and how far is it? Against scipy.
"""

import math
import re
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linprog, nnls
from torch import Tensor

from fedminmax.advice.cost import MessageBytes, Rounds, usual_rounds
from fedminmax.advice.counts import (
    Advice,
    Reach,
    RunCost,
    advise,
    mixes_of,
    nearest_mix,
    nearest_to_weights,
)
from fedminmax.core.errors import InputError
from fedminmax.core.losses import LOSSES_BY_NAME
from fedminmax.core.messages import Census
from fedminmax.core.models import linear
from fedminmax.core.small_groups import largest_standard_error
from fedminmax.data.adult import load_adult
from fedminmax.findings.advice import answer, costs_table, groups_table, remedies
from fedminmax.findings.text import NOTHING
from fedminmax.methods.catalogue import CARDS
from fedminmax.methods.look_ahead import FedMinMaxFast
from fedminmax.training.simulation import Simulation
from fedminmax.training.train import train

Table = list[list[int]]


def of(counts: Table, **more: object) -> Advice:
    return advise(Census(torch.tensor(counts)), **more)  # type: ignore[arg-type]


@st.composite
def tables(draw: st.DrawFn) -> Table:
    groups = draw(st.integers(2, 4))
    line = st.lists(st.integers(0, 60), min_size=groups, max_size=groups).filter(any)
    return draw(st.lists(line, min_size=1, max_size=6))


@settings(max_examples=25)
@given(tables(), st.randoms())
def test_a_site_of_its_own_for_every_group_is_equivalent(others: Table, random: Random) -> None:
    groups = len(others[0])
    own = [[9 * (place == a) for place in range(groups)] for a in range(groups)]
    table = [*others, *own]
    random.shuffle(table)
    advice = of(table)
    assert advice.equivalent
    assert answer(advice).startswith("Yes")
    assert {group.distance for group in advice.groups} == {0.0}


@settings(max_examples=25)
@given(tables(), st.lists(st.integers(1, 7), min_size=1, max_size=4))
def test_sites_with_one_mix_reach_one_mix(table: Table, sizes: list[int]) -> None:
    first = [rows + 1 for rows in table[0]]
    advice = of([[size * rows for rows in first] for size in sizes])
    assert advice.reach is Reach.ONE_MIX
    assert answer(advice).startswith("No")
    mix = np.array(first) / sum(first)
    for place, group in enumerate(advice.groups):
        alone = np.eye(len(mix))[place]
        assert group.distance == pytest.approx(float(np.linalg.norm(alone - mix)), abs=1e-12)


@settings(max_examples=25)
@given(tables(), st.randoms())
def test_the_order_of_sites_does_not_matter(table: Table, random: Random) -> None:
    before = of(table)
    shuffled = list(table)
    random.shuffle(shuffled)
    after = of(shuffled)
    assert after.reach is before.reach
    for one, other in zip(before.groups, after.groups, strict=True):
        assert (one.rows, one.sites, one.largest_share) == (
            other.rows,
            other.sites,
            other.largest_share,
        )
        assert one.distance == pytest.approx(other.distance, abs=1e-10)


@settings(max_examples=25)
@given(tables(), st.integers(0, 4))
def test_a_group_without_rows_is_named_and_changes_nothing_else(table: Table, place: int) -> None:
    place = min(place, len(table[0]))
    without = of(table)
    names = [f"g{number}" for number in range(len(table[0]))]
    names.insert(place, "ghosts")
    advice = of([[*line[:place], 0, *line[place:]] for line in table], group_names=names)
    assert advice.reach is without.reach
    left = [group for group in advice.groups if group.name != "ghosts"]
    assert [group.distance for group in left] == pytest.approx(
        [group.distance for group in without.groups], abs=1e-10
    )
    assert "“ghosts”" in remedies(advice)[0]
    ghosts = advice.groups[place]
    assert (ghosts.largest_site, ghosts.standard_error) == (None, None)
    assert groups_table(advice).lines[place][1] == "0"


def test_one_site_cannot_favour_a_group() -> None:
    advice = of([[30, 70]])
    assert advice.reach is Reach.ONE_MIX
    assert "one site" in answer(advice)
    assert of([[30]]).equivalent


@pytest.mark.parametrize(
    ("table", "distance"),
    [([[9, 1], [6, 4]], math.sqrt(2) * 0.1), ([[9, 1], [3, 7]], 0.0), ([[1, 0], [0, 1]], 0.0)],
)
def test_the_games_of_lemma_1(table: Table, distance: float) -> None:
    """Their minimax weights are (1/2, 1/2); AFL ends elsewhere exactly if they are not reached."""
    found = nearest_to_weights(table, (0.5, 0.5))
    assert found.distance == pytest.approx(distance, abs=1e-12)
    assert found.is_reached == (distance == 0.0)


def test_groups_that_no_site_is_mostly_of_are_named() -> None:
    advice = of([[80, 20, 10], [20, 70, 10]], group_names=["a", "b", "rare"])
    assert "“rare”" in answer(advice)
    assert "“a”" not in answer(advice)
    assert [group.has_own_site for group in advice.groups] == [True, True, False]


@pytest.mark.parametrize("rows", [2, 64, 1000])
def test_the_standard_error_is_the_largest_that_scores_from_0_to_2_can_have(rows: int) -> None:
    widest = np.repeat([0.0, 2.0], rows // 2).std() / math.sqrt(rows)
    assert largest_standard_error(rows, regression=False) == pytest.approx(float(widest), rel=1e-12)


def test_small_groups_and_few_test_rows_are_said_with_what_would_help() -> None:
    advice = of([[5, 400]], group_names=["few", "many"], test_rows=[2, 100])
    words = " ".join(remedies(advice))
    assert "“few” has fewer than 30 training records" in words
    # How many it has, or how many more it needs, would tell a count below ten.
    assert not {"5", "25"} & set(re.findall(r"\d+", words))
    assert "400 in total" in words
    assert "test records of “few”:" in words


def test_a_method_over_sites_is_advised_against_where_it_cannot_reach_the_groups() -> None:
    assert "afl protects the worst site" in remedies(of([[9, 1], [6, 4]], chosen="afl"))[0]
    own = of([[90, 0], [0, 40]], chosen="afl")
    assert not any("protects the worst site" in words for words in remedies(own))


def test_every_method_is_listed_by_what_it_shows_of_a_site() -> None:
    shown = of([[1]]).reveals
    assert {key: words for words, keys in shown.items() for key in keys} == {
        key: card.reveals for key, card in CARDS.items()
    }


def test_costs_multiply_rounds_and_bytes() -> None:
    usual = RunCost("fedminmax", Rounds(10, 20), None, MessageBytes(100, 3_000))
    assert usual.bytes_up == (30_000, 60_000)
    (line,) = costs_table(of([[40]], costs=[usual])).lines
    assert line[1:] == ("10 to 20", NOTHING, "100 bytes", "3 kB", "30 kB to 60 kB")
    asked = RunCost("fedminmax", Rounds(10, 20), 5, MessageBytes(100, 3_000))
    assert asked.bytes_up == (15_000, 15_000)
    words = remedies(of([[40]], chosen="fedminmax", costs=[asked]))
    assert "the configuration has 5" in words[-1]


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ({"group_names": ["a"]}, "group_names has 1 names for 2 groups"),
        ({"site_names": ["a"]}, "site_names has 1 names for 2 sites"),
        ({"test_rows": [1]}, "test_rows has 1 numbers for 2 groups"),
        ({"loss": "hinge"}, "loss 'hinge' is unknown"),
    ],
)
def test_what_does_not_fit_is_refused(more: dict[str, object], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        of([[1, 2], [3, 4]], **more)
    with pytest.raises(InputError, match="no site has a training row"):
        of([[0, 0]])


def test_the_page_about_advice_runs_as_written(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "advise.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    exec(block, {})  # noqa: S102 - our own page
    assert "('old', 0.3," in capsys.readouterr().out


def test_a_method_that_stops_by_itself_sends_what_the_needed_rounds_take() -> None:
    """200 configured rounds of 24 MB are no estimate where 3 to 8 are needed."""
    messages = MessageBytes(down=100, up=24_000_000)
    fast = RunCost("fedminmax-fast", Rounds(3, 8), 200, messages)
    assert fast.bytes_up == (3 * 24_000_000, 8 * 24_000_000)
    assert replace(fast, max_rounds=5).bytes_up == (3 * 24_000_000, 5 * 24_000_000)
    assert replace(fast, rounds=None).bytes_up == (200 * 24_000_000,) * 2
    assert replace(fast, method="fedminmax").bytes_up == (200 * 24_000_000,) * 2


@pytest.mark.parametrize("loss", ["cross_entropy", "brier"])
def test_a_run_on_adult_takes_as_many_rounds_as_were_estimated(loss: str) -> None:
    rows = load_adult().train
    federation = Simulation(
        linear(rows.x.shape[1], 2).double(),
        LOSSES_BY_NAME[loss],
        [(rows.x.double(), rows.y, rows.group)],
        ridge=1e-4,
    )
    usual = usual_rounds("fedminmax-fast", linear=True, loss=loss)
    assert usual is not None
    *_, last = train(federation, FedMinMaxFast(), rounds=100)
    assert usual.low <= last.number <= usual.high
    assert last.remaining is not None
    assert last.remaining <= 1e-4


Array = NDArray[np.float64]


@st.composite
def tables_of_mixes(draw: st.DrawFn) -> Tensor:
    """Counts of up to 8 sites and 5 groups, at least one site with rows, some alike."""
    groups = draw(st.integers(1, 5))
    line = st.lists(st.sampled_from([0, 0, 1, 2, 7, 1000]), min_size=groups, max_size=groups)
    lines = draw(st.lists(line, min_size=1, max_size=8))
    lines[0][draw(st.integers(0, groups - 1))] += 1
    return torch.tensor(lines)


def is_mean_of(mixes: Array, target: Array) -> bool:
    """Tell by a linear programme whether some weights over sites give exactly this mix."""
    equations = np.vstack([mixes.T, np.ones(len(mixes))])
    solved = linprog(np.zeros(len(mixes)), A_eq=equations, b_eq=np.append(target, 1.0))
    return bool(solved.status == 0)


def distance_by_nnls(mixes: Array, target: Array) -> float:
    """Least squares over weights >= 0; their sum is 1 by an equation that outweighs all others."""
    heavy = 1e4
    equations = np.vstack([mixes.T, np.full(len(mixes), heavy)])
    weights, _ = nnls(equations, np.append(target, heavy))
    return float(np.linalg.norm(weights / weights.sum() @ mixes - target))


@settings(max_examples=60)
@given(tables_of_mixes(), st.integers(0, 2**32 - 1))
def test_membership_and_distance_agree_with_scipy(counts: Tensor, seed: int) -> None:
    mixes, random = mixes_of(counts), np.random.default_rng(seed)
    targets = [
        random.dirichlet(np.full(counts.shape[1], 0.5)),
        random.dirichlet(np.full(len(mixes), 0.5)) @ mixes.numpy(),
        np.eye(counts.shape[1])[random.integers(counts.shape[1])],
    ]
    for target in targets:
        found = nearest_mix(mixes, torch.from_numpy(target))
        assert found.distance == pytest.approx(distance_by_nnls(mixes.numpy(), target), abs=1e-8)
        assert found.is_reached == is_mean_of(mixes.numpy(), target)
        # What is called the nearest mix is one, and is as far as it is said to be.
        assert nearest_mix(mixes, found.mix).is_reached
        gap = torch.linalg.vector_norm(found.mix - torch.from_numpy(target))
        assert float(gap) == pytest.approx(found.distance, abs=1e-12)


def test_a_thousand_sites_of_twenty_groups() -> None:
    counts = torch.from_numpy(np.random.default_rng(0).poisson(5.0, (1000, 20)))
    mixes = mixes_of(counts)
    for corner in torch.eye(20, dtype=torch.float64):
        found = nearest_mix(mixes, corner)
        # No mix lies farther on the corner's side of the nearest one: that proves it.
        side = corner - found.mix
        assert float((mixes @ side).max()) <= float(found.mix @ side) + 1e-12
