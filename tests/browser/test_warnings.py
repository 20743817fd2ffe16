"""Warnings of the processes that store the jobs, on the overview page of every topology."""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.site import Site, site_in
from tests.e2e.preloaded_prompt import LoadedProgram
from tests.e2e.slow_start import process_with
from tests.e2e.wait_until import eventually
from tests.integration.test_snapshot_failures import damage

SMALL = ("--segment-bytes", "65536", "--snapshot-bytes", "200000")


@pytest.fixture(params=["", "monolith"], ids=["server", "front"])
def failing(request: pytest.FixtureRequest, loaded: LoadedProgram, tmp_path: Path) -> Iterator[Site]:
    """A server, or a front over two nodes, with a damaged segment, so that a snapshot fails."""
    topology = request.param
    nodes = ("--nodes", "2", "--data", "data") if topology else ()
    with site_in(tmp_path, *nodes, *SMALL, topology=topology, program=loaded) as site:
        # Without this, a first snapshot could be made before the damage.
        eventually(lambda: _is_damaged(site, tmp_path), what="a sealed segment")
        eventually(lambda: _warns(site), what="a snapshot that fails")
        yield site


def _is_damaged(site: Site, folder: Path) -> bool:
    """Submits a job; damages the oldest segment of a directory as soon as it is sealed."""
    site.submit("nothing", "x" * 20_000)
    for directory in {path.parent for path in folder.rglob("*.seg")}:
        segments = sorted(directory.glob("*.seg"))
        if len(segments) > 1:
            damage(segments[0])
            return True
    return False


def _warns(site: Site) -> bool:
    site.submit("nothing", "x" * 20_000)
    return bool(site.ask("GET", "/stats")["warnings"])


def test_failing_snapshots_are_shown(failing: Site, page: Page) -> None:
    """The page of a server, or of a front over nodes, says that snapshots fail and why."""
    page.goto(failing.url)
    health = page.get_by_label("Health")
    expect(health).to_contain_text("Critical")
    expect(health).to_contain_text(re.compile("[Tt]he journal grows, because making a snapshot failed"))
    expect(health).to_contain_text("do not restart the server")


def test_gateway_without_statistics_shows_its_warnings(loaded: LoadedProgram, page: Page, tmp_path: Path) -> None:
    """The page of a gateway shows the warnings of its readiness page, and drops them when they are over."""
    with site_in(tmp_path, topology="microservices", program=loaded) as site:
        page.goto(site.url)
        health = page.get_by_label("Health")
        expect(health).to_contain_text("No statistics")
        owner = process_with(site.server, b"service", b"result")
        os.kill(owner, signal.SIGSTOP)
        try:
            expect(health).to_contain_text("Critical")
            expect(health).to_contain_text("The result service does not answer.")
        finally:
            os.kill(owner, signal.SIGCONT)
        expect(health).to_contain_text("No statistics")
        expect(health).not_to_contain_text("does not answer")
