"""The login page, and the actions that the scopes of a token allow."""

import json
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.chromium import Watched, watched
from tests.browser.site import Site, site_in
from tests.e2e.preloaded_prompt import LoadedProgram, LoadedShell


@pytest.fixture(scope="module")
def guarded(loaded: LoadedProgram, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, dict[str, str]]]:
    """Yields a server with tokens, and the tokens by name."""
    folder = tmp_path_factory.mktemp("guarded")
    with site_in(folder, program=loaded) as site:
        shell = LoadedShell(loaded, folder)
        made = {}
        for name, scope in (("reader", "read"), ("boss", "admin")):
            done = shell.run("token", "create", "--name", name, "--scopes", scope, "--data", "data", "--json")
            assert done.returncode == 0, done.stderr
            made[name] = json.loads(done.stdout)["token"]
        yield site, made


def log_in(page: Page, site: Site, token: str) -> None:
    """Logs in with the form."""
    page.goto(site.url)
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Log in").click()


@pytest.fixture
def visitor(browser: Browser) -> Iterator[Watched]:
    """Yields a page without a session, whose first requests are refused."""
    with watched(browser) as tab:
        tab.refusal = "401"
        yield tab
        assert tab.troubles == []


def test_a_reader_looks_and_changes_nothing(guarded: tuple[Site, dict[str, str]], visitor: Watched) -> None:
    """A wrong token shows an error; a token with the scope read shows all pages without buttons that change jobs."""
    site, tokens = guarded
    page = visitor.page
    log_in(page, site, "wrong")
    expect(page.get_by_role("alert")).not_to_be_empty()
    log_in(page, site, tokens["reader"])
    expect(page.get_by_label("Health")).to_be_visible()
    expect(page.locator("#who")).to_contain_text("reader")
    page.goto(f"{site.url}#/queues")
    expect(page.get_by_role("heading", level=1)).to_have_text("Queues")
    expect(page.get_by_role("button", name="Pause")).to_have_count(0)
    assert page.evaluate("document.cookie") == ""
    page.reload()
    expect(page.locator("#link")).to_have_text("live")
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("Token")).to_be_focused()
