"""`fedminmax watch` in a real Chromium, with a real run in another process."""

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.cli.command import ONE_THREAD, command
from tests.cli.hospitals import write_config, write_hospitals
from tests.integration.browser import PATIENCE, chromium

ROUNDS = 100_000


@contextmanager
def running(*words: str, cwd: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a command until the end of the block."""
    with subprocess.Popen(
        command(*words),
        cwd=cwd,
        env=ONE_THREAD | {"PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def address_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    found = re.search(r"http://127\.0\.0\.1:\d+/\S+/", process.stdout.readline())
    assert found is not None
    return found[0]


@pytest.mark.slow
def test_a_run_is_watched_from_before_its_start_to_its_end(tmp_path: Path) -> None:
    write_hospitals(tmp_path)
    write_config(tmp_path, method=f'name = "fedminmax"\nrounds = {ROUNDS}')
    with running("watch", "run", cwd=tmp_path) as watch, chromium() as browser:
        context = browser.new_context(viewport={"width": 390, "height": 900}, color_scheme="dark")
        context.set_default_timeout(PATIENCE)
        expect.set_options(timeout=PATIENCE)
        page = context.new_page()
        asked: list[str] = []
        complaints: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        address = address_of(watch)
        page.goto(address)
        expect(page.locator(".state")).to_have_text("Not started")
        with running("train", "fedminmax.toml", "--out", "run", cwd=tmp_path):
            expect(page.locator(".state")).to_have_text("Running")
            expect(page.locator("#model-0-narrow svg")).to_be_visible()
            # What the reader has opened and focused stays while rounds come.
            page.locator("#model-0 summary").click()
            page.locator("#pause").focus()
            before = page.locator("#model-0-stage").inner_text()
            expect(page.locator("#model-0-stage")).not_to_have_text(before)
            expect(page.locator("#model-0-numbers-1")).to_be_visible()
            assert page.evaluate("document.activeElement.id") == "pause"
            check_page(page)
            # Paused, nothing changes, but for the button.
            page.keyboard.press("Enter")
            paused = page.locator("#model-0-stage").inner_text()
            page.wait_for_timeout(2500)
            assert page.locator("#model-0-stage").inner_text() == paused
            page.keyboard.press("Enter")
        expect(page.locator(".state")).to_have_text("Interrupted")
        expect(page.locator("#announce")).to_contain_text("run the same 'fedminmax train' command")
        # A run that begins again from nothing is followed, too.
        shutil.rmtree(tmp_path / "run")
        again = command("train", "fedminmax.toml", "--out", "run", "--rounds", "30")
        subprocess.run(again, cwd=tmp_path, env=ONE_THREAD, check=True)
        expect(page.locator(".state")).to_have_text("Finished")
        expect(page.locator("h2", has_text="the baseline")).to_be_visible()
        assert complaints == []
        assert {url for url in asked if not url.startswith("data:")} == {
            address,
            f"{address}watch.css",
            f"{address}watch.js",
        }
        # Ctrl-C is one line and no error, and the page says that nothing comes any more.
        os.kill(watch.pid, signal.SIGINT)
        out, _ = watch.communicate()
        assert (watch.returncode, out.splitlines()) == (
            0,
            ["Stopped watching; the run is not affected."],
        )
        expect(page.locator("#lost")).to_be_visible()
        context.close()


def check_page(page: Page) -> None:
    """No barrier by Deque's rules, nothing to be scrolled sideways, and a name for the picture."""
    # The page's own policy lets no other script in, so the rules come from outside of it.
    session = page.context.new_cdp_session(page)
    script = files("axe_playwright_python").joinpath("axe.min.js").read_text()
    session.send("Runtime.evaluate", {"expression": script})
    found = page.evaluate("axe.run({exclude: ['.plot svg *']})")
    assert "color-contrast" in [rule["id"] for rule in found["passes"]]
    assert found["violations"] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.locator("#model-0-narrow svg title").inner_html() != ""
