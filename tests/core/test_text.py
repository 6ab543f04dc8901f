"""Words in Markdown as another program (markdown-it-py) reads them: words, and nothing else.

Bounds are true as printed, for every number and every number of digits.
"""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from fedminmax.core.text import (
    bounds_text,
    lower_text,
    markdown_table,
    markdown_text,
    upper_percent,
    upper_text,
)
from tests.hostile_names import HOSTILE

READER = MarkdownIt("commonmark").enable("table")


def _plain(text: str) -> str:
    """What is left of a text on one line; signs that no one sees are boxes."""
    words = " ".join(text.split())
    return "".join(c if c.isprintable() else "\ufffd" for c in words)


@given(st.one_of(st.text(), st.text("|<>[]()*_`~&#!\\-+=1. :/aw\n")))
@example("*")
@example("a * b*")
def test_any_text_is_shown_as_it_is(text: str) -> None:
    expected = _plain(text)
    shown = READER.parse(f"- x {markdown_text(text)} y")
    (inline,) = [token for token in shown if token.type == "inline"]
    assert {part.type for part in inline.children or []} <= {"text", "text_special"}
    assert "".join(part.content for part in inline.children or []) == f"x {expected} y"
    at_the_start = READER.parse(f"- {markdown_text(text)}")
    kinds = {token.type for token in at_the_start if token.nesting >= 0}
    assert kinds <= {"bullet_list_open", "list_item_open", "paragraph_open", "inline"}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_cell_stays_a_cell(name: str) -> None:
    tokens = READER.parse(markdown_table(["group", "rows"], [[name, "1"], ["b", "2"]]))
    cells = [token.content for token in tokens if token.type == "inline"]
    assert len(cells) == 6
    shown = READER.parseInline(cells[2])[0].children or []
    assert "".join(part.content for part in shown) == _plain(name)


numbers = st.floats(-1e9, 1e9).filter(lambda own: own == 0 or abs(own) > 1e-12)


@given(value=numbers, digits=st.integers(1, 9))
def test_no_text_is_on_the_wrong_side(value: float, digits: int) -> None:
    below, above = float(lower_text(value, digits)), float(upper_text(value, digits))
    assert below <= value <= above
    # No further than one unit of the last digit.
    assert above - below <= 10.0 ** (1 - digits) * abs(value) * (1 + 1e-9)


@given(share=st.floats(1e-12, 1.0))
def test_a_gap_in_percent_is_not_below_it(share: float) -> None:
    assert float(upper_percent(share).removesuffix("%")) >= 100 * share


@given(upper=st.floats(1e-3, 10.0), gap=st.floats(0.0, 1.0))
def test_two_bounds_are_not_printed_far_apart(upper: float, gap: float) -> None:
    lower = upper * (1.0 - gap)
    below, above = (float(text) for text in bounds_text(lower, upper))
    assert below <= lower
    assert upper <= above
    assert above - below <= max(2.0 * (upper - lower), 2e-8 * upper) * (1 + 1e-9)
