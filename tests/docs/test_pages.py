"""Pages are short, under five tabs, and found by every link to them."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.blocks import PAGES, ROOT

# Pages made from the code are looked up, not read.
MOST_WORDS = 1500
TABS = ["Get started", "Guides", "Deploy", "Research", "Reference"]
MOST_ENTRIES = 7
# Text outside the site that sends readers to a page of docs.
SENDERS = sorted(
    path
    for name in ("*.md", "examples/**/*.md", "examples/*.ipynb", "src/**/*.py", "src/**/*.html")
    for path in ROOT.glob(name)
    if path.name != "CHANGELOG.md"
)


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("docs/")])
def test_a_page_is_read_in_one_sitting(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    made = "made by `scripts/" in text
    assert made or len(text.split()) <= MOST_WORDS


def test_five_tabs_have_few_entries() -> None:
    nav = re.split(r"^nav:\n", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), flags=re.M)[1]
    tabs: list[dict[str, list[Any]]] = yaml.safe_load(nav)
    assert [name for tab in tabs for name in tab] == TABS
    assert max(len(entries) for tab in tabs for entries in tab.values()) <= MOST_ENTRIES


def _anchors(page: Path) -> set[str]:
    text = page.read_text(encoding="utf-8")
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    plain = [re.sub(r"[^\w\s-]", "", title.lower()).strip() for title in titles]
    return {re.sub(r"[\s-]+", "-", title) for title in plain} | set(
        re.findall(r'<a id="([^"]+)"', text)
    )


def test_links_from_elsewhere_lead_to_a_page() -> None:
    found = 0
    for sender in SENDERS:
        text = sender.read_text(encoding="utf-8")
        for name, anchor in re.findall(r"docs/(\w+\.md)(?:#([\w-]+))?", text):
            page = ROOT / "docs" / name
            assert page.is_file(), f"{sender}: {name}"
            assert not anchor or anchor in _anchors(page), f"{sender}: {name}#{anchor}"
            found += 1
    assert found > 10
