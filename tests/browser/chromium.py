"""A real Chromium, and a page that records its errors."""

import shlex
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

from scripts.engines import CHROMIUM
from tests.engines import require

#: Only a failing test waits this long.
PATIENCE_MS = 60_000
#: Runs before the page's own scripts: records violations of its policy, and injected code that runs.
_WATCH = """
window.trespasses = [];
document.addEventListener("securitypolicyviolation", (event) =>
  window.trespasses.push(`${event.violatedDirective} ${event.blockedURI} ${event.sample}`));
window.trespass = (what) => window.trespasses.push(`ran: ${what}`);
window.alert = (text) => window.trespasses.push(`alert: ${text}`);
"""
#: Keeps the messages that the page shows for six seconds (dialog.js), because a slow test may check them later.
_KEEP = """
const later = window.setTimeout.bind(window);
window.setTimeout = (act, ms, ...more) => (ms === 6000 ? 0 : later(act, ms, ...more));
"""
_UNDISTURBED = Path(__file__).with_name("isolated_program.py")
expect.set_options(timeout=PATIENCE_MS)


class Watched:
    """A page and its errors."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.errors: list[str] = []
        #: The status of refused requests that the test expects; the browser reports each of them as an error.
        self.refusal = ""
        page.set_default_timeout(PATIENCE_MS)
        page.add_init_script(_WATCH)
        page.add_init_script(_KEEP)
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.errors.append(str(error)))

    def _said(self, message: ConsoleMessage) -> None:
        is_meant = bool(self.refusal) and f"status of {self.refusal}" in message.text
        if message.type in {"error", "warning"} and not is_meant:
            self.errors.append(message.text)

    @property
    def troubles(self) -> list[str]:
        """Errors, violations of the content security policy, and code of a job that ran."""
        trespasses: list[str] = self.page.evaluate("window.trespasses")
        return [*self.errors, *trespasses]


@contextmanager
def chromium() -> Iterator[Browser]:
    """Yields a browser."""
    require(CHROMIUM)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        program = Path(folder) / "chromium"
        program.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, str(_UNDISTURBED), CHROMIUM.path()])} "$@"\n')
        program.chmod(0o700)
        # Chromium's sandbox needs rights that containers rarely have; it opens only the test pages.
        arguments = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=program, args=arguments, timeout=PATIENCE_MS)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def watched(browser: Browser, **options: Any) -> Iterator[Watched]:  # noqa: ANN401 - the options of a context
    """Yields a page in a browser context of its own."""
    context = browser.new_context(**{"viewport": {"width": 1360, "height": 900}, **options})
    try:
        yield Watched(context.new_page())
    finally:
        context.close()
