"""The site in a real Chromium: on a desk and on a phone, by keyboard, without the internet."""

from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from threading import Thread
from typing import Literal

import pytest
from playwright.sync_api import Page

from tests.integration.browser import PATIENCE, chromium

DESK, PHONE = 1280, 390
LOOKS: tuple[tuple[int, Literal["light", "dark"]], ...] = ((DESK, "light"), (PHONE, "dark"))


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the library's name)
        """Say nothing."""


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(site)))
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with chromium() as browser:
        opened = browser.new_page(viewport={"width": DESK, "height": 900})
        opened.set_default_timeout(PATIENCE)
        yield opened


@pytest.mark.slow
def test_no_page_has_a_barrier_or_asks_anybody(site: Path, address: str, page: Page) -> None:
    """Deque's rules, contrast among them, for every page: light on a desk, dark on a phone."""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    rules = files("axe_playwright_python").joinpath("axe.min.js").read_text()
    names = [path.relative_to(site).as_posix() for path in sorted(site.rglob("*.html"))]
    barriers, wide = set(), set()
    for name in names:
        page.goto(f"{address}/{name}")
        page.evaluate(rules)
        page.add_style_tag(content="* { transition: none !important }")  # no colour in between
        for width, scheme in LOOKS:
            page.set_viewport_size({"width": width, "height": 900})
            page.emulate_media(color_scheme=scheme)
            found = page.evaluate("axe.run()")
            assert "color-contrast" in [rule["id"] for rule in found["passes"]], name
            barriers |= {
                (name, width, rule["id"], rule["nodes"][0]["html"][:200])
                for rule in found["violations"]
            }
            if page.evaluate("document.documentElement.scrollWidth") > width:
                wide.add((name, width))
    assert barriers == set()
    assert wide == set()
    assert len(names) > 60
    assert [url for url in asked if not url.startswith((address, "blob:", "data:"))] == []


@pytest.mark.slow
def test_a_reader_finds_a_page_by_keyboard(address: str, page: Page) -> None:
    page.goto(f"{address}/index.html")
    page.keyboard.press("Tab")
    assert "Skip to content" in page.evaluate("document.activeElement.textContent")
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    page.keyboard.type("masked sums")
    found = page.locator(".md-search-result__link").first
    found.wait_for()
    assert "secure_aggregation" in str(found.get_attribute("href"))


@pytest.mark.slow
def test_formulas_have_a_font_of_their_own(address: str, page: Page) -> None:
    page.goto(f"{address}/theory.html")
    page.locator("math").first.wait_for()
    assert (
        page.evaluate("document.fonts.load('16px \"STIX Two Math\"').then(all => all.length)") == 1
    )
    heights = page.locator(".formula math").evaluate_all("all => all.map(one => one.clientHeight)")
    assert min(heights) > 20
