"""The tables of methods in README.md and docs/methods.md are those that the cards give."""

import pytest
from scripts.method_tables import ROOT, STUB, TABLES, names_of_the_room, with_table

from fedminmax.methods.catalogue import BUILT_IN


@pytest.mark.parametrize("page", TABLES)
def test_a_table_is_what_the_cards_say(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert with_table(text, TABLES[page]()) == text, "run: make tables"


def test_the_room_offers_every_method() -> None:
    assert STUB.read_text(encoding="utf-8") == names_of_the_room(), "run: make tables"


@pytest.mark.parametrize("page", TABLES)
def test_every_method_is_in_the_table(page: str) -> None:
    table = TABLES[page]()
    for card in BUILT_IN.values():
        assert table.count(f"`{card.make.__name__}`") == 1
