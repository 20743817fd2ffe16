"""A browser and a site for each module; a page for each test, whose troubles fail it."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.chromium import Watched, chromium, watched
from tests.browser.site import Site, site_in
from tests.e2e.loaded import LoadedProgram, loaded_program


# Not for longer than a module: the browser's driver keeps a loop in this thread, and other tests want their own.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A real Chromium."""
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="session")
def loaded() -> Iterator[LoadedProgram]:
    """The program, loaded once for all sites."""
    with loaded_program() as program:
        yield program


@pytest.fixture(scope="module")
def site(loaded: LoadedProgram, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server with a worker."""
    with site_in(tmp_path_factory.mktemp("site"), program=loaded) as site:
        site.worker()
        yield site


@pytest.fixture
def tab(browser: Browser) -> Iterator[Watched]:
    """A page in which nothing may go wrong."""
    with watched(browser) as tab:
        yield tab
        assert tab.troubles == []


@pytest.fixture
def page(tab: Watched) -> Page:
    """The page itself."""
    return tab.page
