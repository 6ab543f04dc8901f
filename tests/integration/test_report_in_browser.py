"""The report in a real headless Chromium: it shows, asks for nothing, and works without a mouse."""

import io
import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from playwright.sync_api import Browser, Locator, Page

from fedminmax.report.page import build_report, render_report
from fedminmax.report.read_run import read_runs
from tests.integration.browser import PATIENCE, chromium
from tests.runs.run_folders import FALLING, write_run

# A trade-off, and for each of two runs: rounds.
FIGURES = 3
NAMES = ('<b onclick="x()">women</b> & "x"', "men", "few of a group with quite a long name")
WIDTHS = (1200, 400)
SHOWN = "figure .plot svg:visible"
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    numbers: dict[str, Any] = {
        "groups": NAMES,
        "before": (0.4, 0.2, 0.9),
        "after": (0.3, 0.24, 0.1),
        "halves": (0.03, 0.01, 0.5),
        "rows": (150, 900, 7),
        "census": ((60, 240, 9), (0, 500, 20_000)),
    }
    first = write_run(folder / "a", **numbers, warnings=["Few rows."])
    second = write_run(folder / "b", **numbers, name="AFL", weights_over="sites")
    path = folder / "report.html"
    path.write_text(render_report(build_report(read_runs([first, second])), "1.0"))
    return path


@pytest.fixture
def page(browser: Browser, report: Path) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    context.set_default_timeout(PATIENCE)
    opened = context.new_page()
    opened.goto(report.as_uri())
    opened.locator(".question").evaluate_all("all => all.forEach(one => one.open = true)")
    yield opened
    context.close()


def pixels(element: Locator) -> NDArray[np.uint8]:
    with Image.open(io.BytesIO(element.screenshot())) as image:
        return np.asarray(image.convert("L"))


def test_it_asks_for_nothing_and_says_nothing(browser: Browser, report: Path) -> None:
    context = browser.new_context()
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    requests: list[str] = []
    complaints: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(report.as_uri())
    page.locator("details").evaluate_all("all => all.forEach(one => one.open = true)")
    page.wait_for_load_state("networkidle")
    context.close()
    assert [url for url in requests if not url.startswith("data:")] == [report.as_uri()]
    assert complaints == []


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_every_figure_is_drawn(scheme: Literal["light", "dark"], width: int, page: Page) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)
    figures = page.locator(SHOWN)
    assert figures.count() == FIGURES
    for number in range(FIGURES):
        box = figures.nth(number).bounding_box()
        assert box is not None
        assert min(box["width"], box["height"]) > 100
        shades = pixels(figures.nth(number))
        # Paper in a corner, and ink elsewhere.
        assert shades[1, 1] > 240 if scheme == "light" else shades[1, 1] < 60
        assert shades.std() > 10


@pytest.mark.parametrize("width", [400, 700])
def test_nothing_is_cut_on_a_small_screen(width: int, page: Page) -> None:
    """No part of the page or of a table has to be scrolled sideways, and words can be read."""
    page.set_viewport_size({"width": width, "height": 900})
    page.locator("details").evaluate_all("all => all.forEach(one => one.open = true)")
    wide = page.locator("html, section, .scroll, .plot, table, dd, p, td, th").evaluate_all(
        "all => all.filter(one => one.checkVisibility() && one.scrollWidth > one.clientWidth + 1"
        " && getComputedStyle(one).display !== 'inline' && one.clientWidth > 1)"
        ".map(one => one.outerHTML.slice(0, 80))"
    )
    assert [one for one in wide if width == 400 or not one.startswith('<div class="scroll"')] == []
    if width == 400:
        sizes = page.locator(SHOWN).evaluate_all(
            "all => all.map(one => one.getBoundingClientRect().width / one.viewBox.baseVal.width)"
        )
        # Points of the drawing in pixels: words of 9.5 points are at least 9 pixels high.
        assert min(sizes) > 9 / 9.5


@pytest.mark.parametrize("width", WIDTHS)
def test_words_in_figures_stay_inside_them(width: int, page: Page) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    outside = page.locator(SHOWN).evaluate_all(
        """all => all.flatMap(svg => {
            const frame = svg.getBoundingClientRect();
            return [...svg.querySelectorAll("text")].filter(text => {
                const box = text.getBoundingClientRect();
                return box.left < frame.left - 1 || box.right > frame.right + 1
                    || box.top < frame.top - 1 || box.bottom > frame.bottom + 1;
            }).map(text => text.textContent);
        })"""
    )
    assert outside == []


# One of the four is with the quick tests: each takes a quarter of a minute.
@pytest.mark.parametrize(
    ("scheme", "width"),
    [
        pytest.param(
            scheme, width, marks=[] if (scheme, width) == ("dark", 400) else [pytest.mark.slow]
        )
        for scheme in SCHEMES
        for width in WIDTHS
    ],
)
def test_axe_finds_no_barrier(scheme: Literal["light", "dark"], width: int, page: Page) -> None:
    """Deque's rules for WCAG, contrast among them, with all details open."""
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)
    page.locator("details").evaluate_all("all => all.forEach(one => one.open = true)")
    page.evaluate(files("axe_playwright_python").joinpath("axe.min.js").read_text())
    # What is inside a figure is one image to a screen reader.
    found = page.evaluate("axe.run({exclude: ['.plot svg *']})")
    assert "color-contrast" in [rule["id"] for rule in found["passes"]]
    assert found["violations"] == []


def test_a_screen_reader_has_a_name_and_a_description_for_every_figure(page: Page) -> None:
    session = page.context.new_cdp_session(page)
    nodes = session.send("Accessibility.getFullAXTree")["nodes"]
    images = [node for node in nodes if node["role"]["value"] in {"image", "img"}]
    assert len(images) == FIGURES
    for image in images:
        assert image["name"]["value"]
        assert image["description"]["value"].endswith("tables that follow.")
    assert page.locator("html").get_attribute("lang") == "en"


def test_the_keyboard_reaches_everything_in_reading_order(page: Page) -> None:
    focusable = page.locator("a[href], summary, [tabindex='0']")
    # What a closed details hides cannot have the focus.
    expected = [number for number in range(focusable.count()) if focusable.nth(number).is_visible()]
    focusable.evaluate_all("all => all.forEach((one, number) => one.dataset.place = number)")
    reached = []
    for _ in expected:
        page.keyboard.press("Tab")
        place, outline = page.evaluate(
            "[Number(document.activeElement.dataset.place),"
            " parseFloat(getComputedStyle(document.activeElement).outlineWidth)]"
        )
        reached.append(place)
        assert outline >= 2
    assert reached == expected


def test_the_skip_link_and_the_tables_open_by_keyboard(page: Page) -> None:
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    table = page.locator("#trade table")
    assert not table.is_visible()
    page.locator("#trade summary").focus()
    page.keyboard.press("Enter")
    assert table.is_visible()


def test_names_are_words_not_markup(page: Page) -> None:
    assert page.locator("main [onclick]").count() == 0
    assert NAMES[0] in page.locator("#run-1 .verdict").inner_text()
    assert NAMES[0] in page.locator("#run-1 .forest").inner_text()


def test_paper_is_white_and_has_what_is_open(page: Page) -> None:
    page.emulate_media(media="print", color_scheme="dark")
    open_ones = page.locator(".question[open] > .inside")
    assert open_ones.evaluate_all("all => all.every(one => one.checkVisibility())")
    page.locator(".question").evaluate_all("all => all.forEach(one => one.open = false)")
    assert not page.locator(".question .inside").first.is_visible()
    assert page.locator(".question > summary").first.is_visible()
    assert np.median(pixels(page.locator("body"))) > 240


def test_every_line_has_its_drawing_where_its_numbers_are(page: Page) -> None:
    """The mark of women is left of zero, that of men right of it, as their changes are."""
    lines = page.locator("#run-1 .forest tbody tr")
    assert lines.count() == 3
    sides = lines.evaluate_all(
        """all => all.map(line => {
            const zero = line.querySelector(".zero").getBoundingClientRect();
            const mark = line.querySelector("svg svg > *").getBoundingClientRect();
            return (mark.left + mark.right) / 2 - (zero.left + zero.right) / 2;
        })"""
    )
    assert sides[0] < -10
    assert sides[1] > 5


def pages_of(paper: bytes) -> int:
    """Count the pages of a PDF: every page is an object of this type."""
    return len(re.findall(rb"/Type\s*/Page\b", paper))


@pytest.mark.parametrize("size", ["A4", "Letter"])
def test_the_first_screen_and_all_answers_are_one_sheet(
    size: str, browser: Browser, tmp_path: Path
) -> None:
    """With many small groups, long names and nothing converged."""
    names = tuple(f"people of region {k} with a rather long name, and more" for k in range(12))
    run = write_run(
        tmp_path / "run",
        groups=names,
        before=tuple(0.4 - 0.01 * k for k in range(12)),
        after=tuple(0.3 - 0.01 * k for k in range(12)),
        halves=(0.03,) * 12,
        rows=(60,) * 6 + (12,) * 6,
        census=((40,) * 12, (70,) * 12),
        convergence=FALLING,
    )
    path = tmp_path / "report.html"
    path.write_text(render_report(build_report(read_runs([run])), "1.0"))
    page = browser.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(path.as_uri())
    assert pages_of(page.pdf(format=size)) == 1
    page.close()


@pytest.mark.parametrize("width_in_mm", [182, 188])
def test_paper_cuts_no_table_and_no_figure(width_in_mm: int, page: Page) -> None:
    """A4 and Letter have this width between our margins."""
    page.set_viewport_size({"width": round(width_in_mm / 25.4 * 96), "height": 1000})
    page.emulate_media(media="print")
    wide = page.locator("table, .plot, dl, p").evaluate_all(
        "all => all.filter(one => one.checkVisibility()"
        " && one.getBoundingClientRect().right > document.documentElement.clientWidth + 1)"
        ".map(one => one.outerHTML.slice(0, 80))"
    )
    assert wide == []
