"""No count from 1 to 9 can be told from what is passed on, even by who knows how it is chosen."""

import itertools
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedminmax.findings.disclosure import (
    LEAST,
    Counts,
    decimals_of_count,
    is_small,
    publishable,
    remarks,
)
from fedminmax.findings.records import Results
from tests.runs.run_folders import results

COUNTS = st.lists(
    st.integers(0, 30) | st.integers(0, 9) | st.integers(0, 2000), min_size=1, max_size=9
)


@pytest.mark.parametrize(("cells", "largest"), [(1, 40), (2, 40), (3, 22), (4, 12)])
def test_no_small_table_tells_a_small_count(cells: int, largest: int) -> None:
    """All tables of so many cells: those that look alike differ in every small count."""
    alike: dict[Counts, list[tuple[int, ...]]] = defaultdict(list)
    for table in itertools.product(range(largest + 1), repeat=cells):
        alike[publishable(table)].append(table)
    for shown, tables in alike.items():
        for place in range(cells):
            values = {table[place] for table in tables}
            # At the edge of what is enumerated a larger one may be missing.
            at_edge = (shown.together or 0) > largest + 9
            assert at_edge or len(values) > 1 or not is_small(values.pop())


def other_table(counts: list[int], place: int) -> list[int] | None:
    """Another table that looks the same, with another count at this place, if there is one."""
    hidden = publishable(counts).hidden
    for other in hidden:
        exchanged = list(counts)
        exchanged[place], exchanged[other] = counts[other], counts[place]
        moved = list(counts)
        moved[place], moved[other] = counts[place] - 1, counts[other] + 1
        for found in (exchanged, moved):
            if found[place] != counts[place] and publishable(found) == publishable(counts):
                return found
    for value in range(1, 10):
        alone = [value if own == place else count for own, count in enumerate(counts)]
        if value != counts[place] and publishable(alone) == publishable(counts):
            return alone
    return None


@given(COUNTS)
def test_published_counts_and_totals_never_determine_a_small_count(counts: list[int]) -> None:
    for place, count in enumerate(counts):
        if is_small(count):
            assert other_table(counts, place) is not None


@given(COUNTS)
def test_what_is_published_is_true_and_adds_up(counts: list[int]) -> None:
    found = publishable(counts)
    assert all(shown in (None, own) for shown, own in zip(found.shown, counts, strict=True))
    assert not any(is_small(shown or 0) for shown in (*found.shown, found.together, found.total))
    assert found.total in (None, sum(counts))
    if found.hidden and found.total is not None:
        assert found.together == sum(counts[place] for place in found.hidden)
    if not any(map(is_small, counts)):
        assert found.hidden == ()


@given(st.lists(st.lists(st.integers(0, 40), min_size=3, max_size=3), min_size=2, max_size=4))
def test_counts_of_sites_tell_nothing_more_of_groups(table: list[list[int]]) -> None:
    """Sites and groups are published apart: any groups with the same total fit the same sites."""
    groups = [sum(column) for column in zip(*table, strict=True)]
    sites = [sum(line) for line in table]
    for place, count in enumerate(groups):
        if not is_small(count):
            continue
        other = other_table(groups, place)
        assert other is not None
        if sum(other) == sum(groups):
            filled = northwest_corner(sites, other)
            assert [sum(line) for line in filled] == sites
            assert [sum(column) for column in zip(*filled, strict=True)] == other


@given(rows=st.integers(2 * LEAST - 1, 5000), share=st.floats(0.0, 1.0))
def test_a_rate_of_a_hidden_count_does_not_tell_it(rows: int, share: float) -> None:
    """The sum of a small count and this one is told: each other small count has the same rate.

    With a digit more it would not: 47 of 60 is 0.783, which no other number near 60 can be.
    """
    decimals = decimals_of_count(rows)
    told = f"{round(share * rows) / rows:.{decimals}f}"
    for other in range(rows - LEAST + 2, rows + LEAST - 1):
        nearest = round(float(told) * other)
        assert told in [f"{own / other:.{decimals}f}" for own in range(nearest - 1, nearest + 2)]
    alike = {n for n in range(52, 69) if any(f"{k / n:.3f}" == "0.783" for k in range(n + 1))}
    assert alike == {60}


def northwest_corner(lines: list[int], columns: list[int]) -> list[list[int]]:
    """Fill a table with these margins."""
    left = list(columns)
    filled = []
    for total in lines:
        line = []
        for place, wanted in enumerate(left):
            taken = min(total, wanted)
            line.append(taken)
            left[place] -= taken
            total -= taken
        filled.append(line)
    return filled


def test_remarks_that_tell_of_records_stay_with_the_owner() -> None:
    told = "column 'age' is constant in training: dropped"
    telling = (
        "'north' (4 rows) is the same",
        "a.csv (first: row 19610): rare",
        "/home/ann/a.csv is read as UTF-8",
        "ask ann@example.org",
        "not every site has every group: 'few' with 3 of 40",
        "groups under the minimum of 30 rows: 'few' (7 training rows)",
    )
    content = results("FedMinMax", (0.3, 0.2), (0.1, 0.1), (150, 900), ("a", "b"))
    own = Results.model_validate(content | {"warnings": [told, *telling], "notes": []})
    first, rest = remarks(own)
    assert first == told
    assert rest.startswith("6 further remarks")
