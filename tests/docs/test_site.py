"""The site builds without a warning, asks nobody for anything, and reads as the files do elsewhere.

What mkdocs reads is compared with a reader of CommonMark, the dialect of most other readers.
"""

import re
from collections import Counter
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for name in ("docs/*.md", "experiments/*/README.md", "CHANGELOG.md", "CONTRIBUTING.md")
    for path in ROOT.glob(name)
)
LISTS = {"li", "ol", "ul", "table", "tr"}
TEXT = {"blockquote", "code", "h2", "h3", "img", "pre", "strong"}
COUNTED = LISTS | TEXT
# What a browser fetches for a page: each of these attributes of each of these elements.
FETCHED = {"img": "src", "script": "src", "iframe": "src", "source": "src", "use": "href"}


class _Elements(HTMLParser):
    """The elements of an article, and what the whole page makes a browser fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = Counter[str]()
        self.fetched: list[str] = []
        self.inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "article":
            self.inside = True
        if self.inside and tag in COUNTED:
            self.counts[tag] += 1
        if tag in FETCHED:
            self.fetched.append(values.get(FETCHED[tag]) or "")
        if tag == "link" and values.get("rel") not in ("canonical", "next", "prev"):
            self.fetched.append(values.get("href") or "")

    def handle_endtag(self, tag: str) -> None:
        if tag == "article":
            self.inside = False


def _read(html: str) -> _Elements:
    found = _Elements()
    found.feed(html)
    return found


def _on_site(page: str) -> str:
    place = page.removeprefix("docs/").replace("README.md", "index.md")
    return place.removesuffix(".md") + ".html"


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_the_parts_that_other_readers_see(page: str, site: Path) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    elsewhere = MarkdownIt("commonmark").enable("table").render(text)
    here = (site / _on_site(page)).read_text(encoding="utf-8")
    assert _read(here).counts == _read(f"<article>{elsewhere}</article>").counts


def test_no_page_fetches_anything_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) >= len(PAGES)
    for page in pages:
        fetched = _read(page.read_text(encoding="utf-8")).fetched
        assert fetched, page
        assert [at for at in fetched if re.match(r"(\w+:)?//", at)] == [], page
    for sheet in site.rglob("*.css"):
        assert re.findall(r"url\(['\"]?(?:\w+:)?//", sheet.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "module",
    ["", *["methods", "models", "losses", "metrics", "data", "training", "extend", "testing"]],
)
def test_the_reference_has_every_public_name(module: str, site: Path) -> None:
    name = f"fedminmax.{module}".rstrip(".")
    page = (site / "reference" / f"{module or name}.html").read_text(encoding="utf-8")
    public = {f"{name}.{own}" for own in import_module(name).__all__}
    rooms = {f"fedminmax.{room}" for room in ("data", "training", "losses", "methods")}
    rooms |= {"fedminmax.metrics", "fedminmax.models"}
    assert public - rooms
    assert {own for own in public - rooms if f'id="{own}"' not in page} == set()


def test_formulas_are_drawn_without_a_script(site: Path) -> None:
    page = (site / "theory.html").read_text(encoding="utf-8")
    source = (ROOT / "docs" / "theory.md").read_text(encoding="utf-8")
    blocks, rest = re.findall(r"\$\$.*?\$\$", source, re.DOTALL), source
    for block in blocks:
        rest = rest.replace(block, "")
    assert page.count('display="block"') == len(blocks) > 5
    assert page.count('display="inline"') == rest.count("$") // 2
    assert "arithmatex" not in page
