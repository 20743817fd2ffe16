"""Queues, workers and schedules, in a real browser."""

import re
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.browser.site import Site


def test_a_queue_is_paused_resumed_and_purged(site: Site, page: Page) -> None:
    """Each action asks for confirmation, takes a reason, and is shown at once."""
    site.ask("POST", "/queues/later/pause", {})
    jobs = [site.submit("resize_image", queue="later") for _ in range(2)]
    page.goto(f"{site.url}#/queues")
    row = page.get_by_role("row").filter(has_text="later")
    expect(row.locator(".badge")).to_have_text("paused")
    row.get_by_role("button", name="purge later").click()
    page.get_by_role("dialog").get_by_label("Reason").fill("a test")
    page.get_by_role("dialog").get_by_role("button", name="Purge later").click()
    expect(page.get_by_text("2 jobs of later canceled.")).to_be_visible()
    assert {site.status(job) for job in jobs} == {"CANCELED"}
    row.get_by_role("button", name="resume later").click()
    page.get_by_role("dialog").get_by_role("button", name="Resume later").click()
    expect(row).to_have_count(0)


def test_worker_row_links_to_its_jobs_and_drains_the_worker(site: Site, page: Page, tmp_path: Path) -> None:
    """The row of a worker links to its jobs, and a drained worker stops when its jobs have ended."""
    worker = site.worker(1, "press-2")
    jobs = [site.submit("gate", {"path": str(tmp_path / "open")}) for _ in range(5)]
    for job in jobs:
        site.until(job, "RUNNING")
    page.goto(f"{site.url}#/workers")
    row = page.get_by_role("row").filter(has_text="press-2")
    expect(row.get_by_role("link")).not_to_have_count(0)
    row.get_by_role("button", name="drain press-2").click()
    page.get_by_role("dialog").get_by_role("button", name="Drain worker").click()
    expect(row.locator(".badge")).to_have_text("draining")
    (tmp_path / "open").touch()
    assert worker.wait() == 0
    expect(row).to_have_count(0)


def test_a_schedule_shows_its_next_runs_and_is_triggered_and_paused(site: Site, page: Page) -> None:
    """The next runs are listed, a manual run creates a job, and a pause is shown."""
    body = {"name": "nightly", "type": "resize_image", "cron": "0 2 * * *", "timezone": "Europe/Paris"}
    site.ask("POST", "/schedules", body)
    page.goto(f"{site.url}#/schedules")
    row = page.get_by_role("row").filter(has_text="nightly")
    expect(row).to_contain_text("0 2 * * * Europe/Paris")
    row.get_by_role("button", name="next runs of nightly").click()
    expect(row.get_by_role("listitem")).to_have_count(5)
    row.get_by_role("button", name="trigger nightly").click()
    page.get_by_role("dialog").get_by_role("button", name="Run now").click()
    expect(page.get_by_text(re.compile("nightly created the job [0-9a-f-]{36}"))).to_be_visible()
    row.get_by_role("button", name="pause nightly").click()
    page.get_by_role("dialog").get_by_role("button", name="Pause schedule").click()
    expect(row.locator(".badge")).to_have_text("paused")
    row.get_by_role("button", name="resume nightly").click()
    page.get_by_role("dialog").get_by_role("button", name="Resume schedule").click()
    expect(row.locator(".badge")).to_have_text("active")
