"""The pages that repeat the code repeat it as it is: every command, option and key."""

import pytest
from scripts.reference_pages import DOCS, PAGES

from fedminmax.cli.main import ALL


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_the_code_says(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == PAGES[name](), "run: make tables"


def test_every_command_and_key_has_a_place() -> None:
    commands, schemas = (page() for page in PAGES.values())
    for command in ALL:
        assert f"### fedminmax {command}\n" in commands
    assert "--set SECTION.KEY=VALUE |" in commands
    for key in ("held_out", "verdict", "worst_group", "secure_aggregation"):
        assert f"| {key} |" in schemas
