"""Fixtures: a browser and a site per module, and a page per test, which fails on errors in the page."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.chromium import Watched, chromium, watched
from tests.browser.site import Site, site_in
from tests.e2e.preloaded_prompt import LoadedProgram, loaded_program


# Per module: the browser's driver keeps an event loop in this thread, and other tests need their own.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Yields a real Chromium."""
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="session")
def loaded() -> Iterator[LoadedProgram]:
    """Yields the program, loaded once for all sites."""
    with loaded_program() as program:
        yield program


@pytest.fixture(scope="module")
def site(loaded: LoadedProgram, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Yields a server with a worker."""
    with site_in(tmp_path_factory.mktemp("site"), program=loaded) as site:
        site.worker()
        yield site


@pytest.fixture
def tab(browser: Browser) -> Iterator[Watched]:
    """Yields a page that must end without errors."""
    with watched(browser) as tab:
        yield tab
        assert tab.troubles == []


@pytest.fixture
def page(tab: Watched) -> Page:
    """Returns the page of the tab."""
    return tab.page
