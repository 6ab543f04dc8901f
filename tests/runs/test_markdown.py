"""Words in Markdown as another program (markdown-it-py) reads them: words, and nothing else."""

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from fedminmax.config.sections import ReportSection
from fedminmax.core.text import markdown_table, markdown_text
from fedminmax.data.tables.census import CensusFile
from fedminmax.findings.records import Results
from fedminmax.methods.catalogue import CARDS
from fedminmax.runs.card import write_card
from tests.exports.saved_models import saved_model
from tests.runs import run_folders

READER = MarkdownIt("commonmark").enable("table")
HOSTILE = (
    "a|b",
    "<script>alert(1)</script>",
    "[x](https://a.b)",
    "![x](y)",
    "*a* _b_ `c` ~~d~~",
    "# a\n\n# b",
    "&lt; &#60;",
    "- a",
    "12. a",
    "===",
    "\\",
    "\\|",
    "$a$",
    "<https://a.b>",
    "hours_per_week",
    "a\x00b\r\nc",
)


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


@pytest.mark.parametrize("name", HOSTILE)
def test_a_card_of_hostile_names_has_no_markup_of_theirs(name: str, tmp_path: Path) -> None:
    groups = (name, "men")
    content = run_folders.results("FedMinMax", (0.3, 0.2), (0.1, 0.1), (50, 60), groups)
    content |= {"notes": [f"columns {name}"], "warnings": [name], "target": name}
    census = CensusFile(format=1, sites=(name,), groups=groups, train=((1, 2),), test=((1, 2),))
    saved = saved_model(("no", "yes"))
    words = ReportSection(title=name, intended_use=name)
    write_card(
        tmp_path,
        saved,
        Results.model_validate(content),
        census=census,
        card=CARDS["fedminmax"],
        section=words,
    )
    card = (tmp_path / "model_card.md").read_text()
    assert "- Not for: not stated" in card
    tokens = READER.parse((tmp_path / "model_card.md").read_text())
    kinds = {part.type for token in tokens for part in token.children or []}
    # The card's own markup: text, and the folder's name as code.
    assert kinds <= {"text", "text_special", "softbreak", "code_inline"}
    assert not [token for token in tokens if token.type.startswith("html")]
    assert sum(token.type == "heading_open" for token in tokens) == 7
