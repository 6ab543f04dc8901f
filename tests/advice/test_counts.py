"""The adviser: what follows from Lemma 1 and from numbers of rows, and in which words."""

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

from fedminmax.advice.cost import MessageBytes, Rounds
from fedminmax.advice.counts import Advice, Reach, RunCost, advise, nearest_to_weights
from fedminmax.core.errors import InputError
from fedminmax.core.messages import Census
from fedminmax.core.small_groups import largest_standard_error
from fedminmax.findings.advice import answer, costs_table, groups_table, remedies
from fedminmax.findings.text import NOTHING
from fedminmax.methods.catalogue import CARDS

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
    assert "“few” has 5 training records" in words
    assert "25 more" in words
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
