"""docs/methods.md names every method, with its paper and what a holder shows."""

from pathlib import Path

import pytest

from fedminmax.methods.catalogue import CARDS

PAGE = (Path(__file__).parents[2] / "docs" / "methods.md").read_text()


@pytest.mark.parametrize("key", list(CARDS))
def test_the_page_says_what_the_card_says(key: str) -> None:
    card = CARDS[key]
    line = next(line for line in PAGE.splitlines() if line.startswith(f"| `{key}` |"))
    assert f"`{card.make.__name__}`" in line
    assert card.paper in line
    assert card.optimises in line
    assert card.reveals in line
