"""A real Chromium, and a page that remembers everything that went wrong in it."""

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

#: Only a failing test ever waits this long.
PATIENCE_MS = 60_000
#: Run before anything of the page: whatever breaks its policy, or runs though it should not, is remembered.
_WATCH = """
window.trespasses = [];
document.addEventListener("securitypolicyviolation", (event) =>
  window.trespasses.push(`${event.violatedDirective} ${event.blockedURI} ${event.sample}`));
window.trespass = (what) => window.trespasses.push(`ran: ${what}`);
window.alert = (text) => window.trespasses.push(`alert: ${text}`);
"""
#: The same for what the page says for six seconds (dialog.js): it stays, for whoever looks may come later than that.
_KEEP = """
const later = window.setTimeout.bind(window);
window.setTimeout = (act, ms, ...more) => (ms === 6000 ? 0 : later(act, ms, ...more));
"""
_UNDISTURBED = Path(__file__).with_name("undisturbed.py")
expect.set_options(timeout=PATIENCE_MS)


class Watched:
    """A page, and what went wrong in it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.errors: list[str] = []
        #: A browser tells of every request that was refused; where one is meant to be, this is its status.
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
        """Errors, breaches of the content security policy, and code that came from a job."""
        trespasses: list[str] = self.page.evaluate("window.trespasses")
        return [*self.errors, *trespasses]


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser for the length of a block."""
    require(CHROMIUM)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        program = Path(folder) / "chromium"
        program.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, str(_UNDISTURBED), CHROMIUM.path()])} "$@"\n')
        program.chmod(0o700)
        # Its own sandbox needs rights that containers rarely have; it opens nothing but our pages.
        arguments = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=program, args=arguments, timeout=PATIENCE_MS)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def watched(browser: Browser, **options: Any) -> Iterator[Watched]:  # noqa: ANN401 - those of a context
    """A page of its own, with nothing of any other."""
    context = browser.new_context(**{"viewport": {"width": 1360, "height": 900}, **options})
    try:
        yield Watched(context.new_page())
    finally:
        context.close()
