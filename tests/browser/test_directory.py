"""`holdfast dashboard DIR` in a real browser."""

from pathlib import Path

from playwright.sync_api import Page, expect

from holdfast import Holdfast
from tests.browser.site import APP, ROOT
from tests.e2e.preloaded_fleet import loaded_fleet_in
from tests.e2e.preloaded_prompt import LoadedProgram


def test_directory_is_shown_and_changes_by_itself(loaded: LoadedProgram, tmp_path: Path, page: Page) -> None:
    """The page lists the jobs of a directory without a server, and shows their end after a worker has started."""
    with Holdfast(tmp_path / "data") as app:
        for number in range(3):
            app.submit("resize_image", {"name": f"{number}.jpg"})
    with loaded_fleet_in(tmp_path, loaded) as fleet:
        address = fleet.start("dashboard", "data", "--port", "0").ready()["http"]
        page.goto(f"http://{address}/")
        expect(page.locator("#link")).to_have_text("live")
        expect(page.get_by_label("Health")).to_contain_text("no worker")
        expect(page.get_by_text("The ledger backend has no totals")).to_be_visible()
        page.goto(f"http://{address}/#/jobs")
        rows = page.get_by_role("table").get_by_role("row", name="resize_image")
        expect(rows).to_have_count(3)
        fleet.start("worker", "--connect", "data", "-A", APP, PYTHONPATH=str(ROOT)).ready()
        expect(rows.filter(has_text="DONE")).to_have_count(3)
        page.goto("about:blank")  # the page would report the end of the server as an error
