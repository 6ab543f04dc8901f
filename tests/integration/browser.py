"""A real Chromium for tests: nothing else proves a page."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

from tests.needs import lacking

# Whatever a page asks for, no name resolves but this machine's; tests run as root in containers,
# without a sandbox.
ARGUMENTS = ["--no-sandbox", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
# Milliseconds: a busy machine is no reason to fail.
PATIENCE = 300_000


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start the system's Chromium without a window."""
    program = shutil.which("chromium")
    if program is None:
        lacking("these tests need Chromium; on Debian: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=ARGUMENTS, timeout=PATIENCE
        )
        yield browser
        browser.close()
