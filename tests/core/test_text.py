"""Words in Markdown as another program (markdown-it-py) reads them: words, and nothing else."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from fedminmax.core.text import markdown_table, markdown_text
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
