"""The model card: names of users stay text, whatever is in them."""

import pytest
from markdown_it import MarkdownIt

from fedminmax.config.sections import ReportSection
from fedminmax.data.tables.census import CensusFile
from fedminmax.findings.card import render_card
from fedminmax.findings.records import Results
from fedminmax.methods.catalogue import CARDS
from tests.exports.saved_models import saved_model
from tests.hostile_names import HOSTILE
from tests.runs import run_folders

READER = MarkdownIt("commonmark").enable("table")


@pytest.mark.parametrize("name", HOSTILE)
def test_a_card_of_hostile_names_has_no_markup_of_theirs(name: str) -> None:
    groups = (name, "men")
    content = run_folders.results("FedMinMax", (0.3, 0.2), (0.1, 0.1), (50, 60), groups)
    content |= {"notes": [f"columns {name}"], "warnings": [name], "target": name}
    census = CensusFile(format=1, sites=(name,), groups=groups, train=((1, 2),), test=((1, 2),))
    words = ReportSection(title=name, intended_use=name)
    card = render_card(
        Results.model_validate(content),
        saved_model(("no", "yes")).encoding,
        census=census,
        card=CARDS["fedminmax"],
        section=words,
    )
    assert "- Not for: not stated" in card
    tokens = READER.parse(card)
    kinds = {part.type for token in tokens for part in token.children or []}
    # The card's own markup: text, and the folder's name as code.
    assert kinds <= {"text", "text_special", "softbreak", "code_inline"}
    assert not [token for token in tokens if token.type.startswith("html")]
    assert sum(token.type == "heading_open" for token in tokens) == 7
