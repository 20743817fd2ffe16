"""Searching, canceling and retrying jobs, in a real browser."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.chromium import Watched
from tests.browser.site import Site

IDS = "table[aria-label=Jobs] td.id a"


@pytest.fixture(scope="module")
def halted(site: Site) -> str:
    """Pauses a queue and returns its name."""
    site.ask("POST", "/queues/halted/pause", {"reason": "for the test"})
    return "halted"


def test_filters_keep_matching_jobs(site: Site, page: Page, halted: str) -> None:
    """State, queue, type and label filter the list, and the filters are in the address of the page."""
    wanted = site.submit("resize_image", queue=halted, labels={"tenant": "acme"})
    site.submit("resize_image", queue=halted, labels={"tenant": "other"})
    site.submit("send_mail", queue=halted, labels={"tenant": "acme"})
    page.goto(f"{site.url}#/jobs")
    page.locator("label.chip", has_text="queued").click()
    page.get_by_label("Queue", exact=True).fill(halted)
    page.get_by_label("Type", exact=True).fill("resize_image")
    page.get_by_label("Label", exact=True).fill("tenant:acme")
    page.keyboard.press("Enter")
    expect(page.locator(IDS)).to_have_text([wanted])
    assert page.url.endswith("#/jobs?status=QUEUED&queue=halted&type=resize_image&label=tenant%3Aacme")
    page.reload()
    expect(page.locator(IDS)).to_have_text([wanted])
    page.get_by_role("button", name="Clear").click()
    expect(page.get_by_label("Queue", exact=True)).to_have_value("")


def test_form_keeps_text_that_is_typed_before_the_address_has_changed(site: Site, page: Page) -> None:
    """The browser reports a new address after the click that set it; text typed in between is kept."""
    page.goto(f"{site.url}#/jobs")
    page.locator("label.chip", has_text="queued").evaluate(
        "(chip) => { chip.click(); document.getElementById('by-queue').value = 'typed'; }"
    )
    page.wait_for_url("**/#/jobs?status=QUEUED")
    page.evaluate("() => new Promise((done) => setTimeout(done))")  # after the browser's event
    expect(page.get_by_label("Queue", exact=True)).to_have_value("typed")
    page.get_by_role("button", name="Clear").click()
    expect(page.get_by_label("Queue", exact=True)).to_have_value("")


def test_times_narrow_the_list(site: Site, page: Page, halted: str) -> None:
    """Jobs that were created before the given time are left out."""
    job = site.submit("resize_image", queue=halted, labels={"when": "now"})
    page.goto(f"{site.url}#/jobs?label=when:now&created_from=2020-01-01T00:00:00Z")
    expect(page.locator(IDS)).to_have_text([job])
    page.get_by_label("Created from").fill("2099-01-01T00:00:00")
    page.get_by_role("button", name="Filter").click()
    expect(page.get_by_text("No job matches.")).to_be_visible()


def test_a_filter_that_is_wrong_is_explained(site: Site, tab: Watched) -> None:
    """The page shows the error message of the server."""
    tab.refusal = "400"
    tab.page.goto(f"{site.url}#/jobs?label=nonsense")
    expect(tab.page.get_by_text("label must be name:value")).to_be_visible()


def test_a_job_that_finishes_is_seen_without_a_reload(site: Site, page: Page, tmp_path: Path) -> None:
    """The row of a running job shows its end without a reload."""
    job = site.submit("gate", {"path": str(tmp_path / "open")}, labels={"live": "row"})
    page.goto(f"{site.url}#/jobs?label=live:row")
    row = page.get_by_role("row").filter(has_text=job)
    expect(row.locator(".badge")).to_have_text("running")
    expect(row).to_contain_text("40 % waiting for the file")
    (tmp_path / "open").touch()
    expect(row.locator(".badge")).to_have_text("done")


def test_selected_jobs_are_canceled_together(site: Site, page: Page, halted: str) -> None:
    """After a confirmation, and not before, every selected job is canceled with the given reason."""
    jobs = [site.submit("resize_image", queue=halted, labels={"many": "cancel"}) for _ in range(3)]
    page.goto(f"{site.url}#/jobs?label=many:cancel")
    expect(page.locator(IDS)).to_have_count(3)
    page.get_by_label("Select all jobs on this page").check()
    page.get_by_role("button", name="Cancel selected").click()
    dialog = page.get_by_role("dialog", name="Cancel 3 jobs?")
    dialog.get_by_role("button", name="Go back").click()
    expect(dialog).to_be_hidden()
    assert {site.status(job) for job in jobs} == {"QUEUED"}
    page.get_by_role("button", name="Cancel selected").click()
    dialog.get_by_label("Reason").fill("not needed any more")
    dialog.get_by_role("button", name="Cancel 3 jobs").click()
    expect(page.locator("td .badge[data-status=canceled]")).to_have_count(3)
    expect(page.get_by_text("3 jobs canceled or asked to stop")).to_be_visible()
    history = site.ask("GET", f"/jobs/{jobs[0]}/history")["entries"]
    assert history[-1]["reason"] == "not needed any more"


def test_selected_jobs_are_retried_together(site: Site, page: Page) -> None:
    """Each selected job that has ended is submitted again exactly once."""
    jobs = [site.submit("send_mail", {"to": f"{name}@example.com"}, labels={"many": "retry"}) for name in "ab"]
    for job in jobs:
        site.until(job, "FAILED")
    page.goto(f"{site.url}#/jobs?label=many:retry")
    expect(page.locator(IDS)).to_have_count(2)
    page.get_by_label("Select all jobs on this page").check()
    page.get_by_role("button", name="Retry selected").click()
    page.get_by_role("button", name="Retry 2 jobs").click()
    expect(page.get_by_text("2 jobs submitted again")).to_be_visible()
    expect(page.locator(IDS)).to_have_count(4)
    found = site.ask("GET", "/jobs?label=many:retry")["jobs"]
    assert sorted(job["retry_of"] for job in found if job["retry_of"]) == sorted(jobs)


def test_a_running_job_is_followed_and_canceled(site: Site, page: Page, tmp_path: Path) -> None:
    """The page of a running job shows its state, progress and log lines, and its end after a cancel."""
    job = site.submit("gate", {"path": str(tmp_path / "never"), "line": "opened the gate"})
    page.goto(f"{site.url}#/jobs/{job}")
    expect(page.get_by_text("It runs: leased by press-1")).to_be_visible()
    expect(page.get_by_label("Log lines").last).to_contain_text("opened the gate")
    expect(page.get_by_label("Progress")).to_have_attribute("value", "400")
    page.get_by_role("button", name="Cancel job").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel job").click()
    expect(page.locator(".heading .badge")).to_have_text("canceled")
    expect(page.get_by_text("It ended CANCELED")).to_be_visible()
    expect(page.get_by_role("button", name="Cancel job")).to_be_disabled()


def test_why_a_job_does_not_run(site: Site, page: Page, halted: str) -> None:
    """The page of a waiting job shows why it waits."""
    job = site.submit("resize_image", queue=halted)
    page.goto(f"{site.url}#/jobs/{job}")
    expect(page.get_by_text(re.compile(r"Its queue 'halted' was paused .* ago \(for the test\)"))).to_be_visible()


def test_the_life_of_a_job_is_drawn(site: Site, page: Page) -> None:
    """The timeline has a bar per attempt, and the page also shows the result and the history."""
    backoff = {"kind": "fixed", "base_s": 0}
    job = site.submit("flaky", {"fails": 2}, max_attempts=3, backoff=backoff)
    site.until(job, "DONE")
    page.goto(f"{site.url}#/jobs/{job}")
    expect(page.locator("svg.timeline rect.queued")).to_have_count(2)
    expect(page.locator("svg.timeline rect.done")).to_have_count(1)
    expect(page.get_by_label("Result").last).to_have_text("at last")
    expect(page.get_by_role("table", name="History").get_by_role("row")).to_have_count(8)


def test_a_failed_job_is_retried_from_its_page(site: Site, page: Page) -> None:
    """A retry opens the page of the new job, which links to the old one."""
    job = site.submit("send_mail", {"to": "ann@example.com"})
    site.until(job, "FAILED")
    page.goto(f"{site.url}#/jobs/{job}")
    page.get_by_role("button", name="Retry job").click()
    page.get_by_role("dialog").get_by_role("button", name="Retry job").click()
    expect(page.get_by_role("link", name=job)).to_be_visible()
    assert job not in page.url


def test_numbers_of_a_payload_stay_as_they_were_written(site: Site, page: Page, halted: str) -> None:
    """A number that exceeds the precision of JavaScript is shown exactly."""
    job = site.submit("resize_image", {"width": 12345678901234567890}, queue=halted)
    page.goto(f"{site.url}#/jobs/{job}")
    expect(page.get_by_label("Payload").last).to_contain_text("12345678901234567890")


def test_a_job_that_is_not_there(site: Site, tab: Watched) -> None:
    """The page of an unknown job says that there is no such job."""
    tab.refusal = "404"
    tab.page.goto(f"{site.url}#/jobs/00000000-0000-4000-8000-000000000000")
    expect(tab.page.get_by_text("There is no such job")).to_be_visible()


def test_every_attempt_is_shown_with_its_traceback(site: Site, page: Page) -> None:
    """The page of a failed job has its payload, and each attempt with worker, outcome and traceback."""
    job = site.submit("flaky", {"fails": 3}, max_attempts=3, backoff={"kind": "fixed", "base_s": 0})
    site.until(job, "FAILED")
    told = site.ask("GET", f"/jobs/{job}/attempts")
    assert [(one["number"], one["outcome"]) for one in told["attempts"]] == [
        (1, "FAILED"),
        (2, "FAILED"),
        (3, "FAILED"),
    ]
    assert told["missing"] == ""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{site.url}#/jobs/{job}")
    expect(page.get_by_label("Payload").last).to_contain_text('"fails": 3')
    items = page.get_by_role("region", name="Attempts").get_by_role("listitem")
    expect(items).to_have_count(3)
    for number, one in enumerate(told["attempts"], 1):
        item = items.nth(number - 1)
        expect(item).to_contain_text(f"Attempt {number} failed")
        expect(item).to_contain_text(one["worker_id"])
        expect(item.get_by_label("Traceback")).to_contain_text(f"ValueError: attempt {number} went wrong")
    history = site.ask("GET", f"/jobs/{job}/history")
    details = [entry["detail"] for entry in history["entries"] if entry["detail"]]
    assert details == [one["detail"] for one in told["attempts"]]
    assert (history["attempts"], history["missing"]) == (told["attempts"], "")
    assert not [url for url in asked if url.endswith("/attempts")], (
        "the page requested the attempts in addition to the history"
    )
