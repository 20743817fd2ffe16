"""The dashboard with two hundred thousand jobs, in a real browser."""

import pytest
from playwright.sync_api import Page, Request, expect

from holdfast.proto import holdfast_pb2 as own
from tests.browser.site import Site

JOBS = 200_000
PART = 1_000
IDS = "table[aria-label=Jobs] td.id a"


@pytest.fixture(scope="module")
def full(site: Site) -> Site:
    """Submits the jobs to a paused queue, with two jobs of another type among them."""
    site.ask("POST", "/queues/flood/pause", {})
    template = own.JobTemplate(type="resize_image", queue="flood")
    rare = own.JobTemplate(type="send_mail", queue="flood")
    site.wire.batch(own.SubmitJobsRequest(templates=[rare], jobs=[own.NewJob(), own.NewJob()]))
    for _ in range(JOBS // PART):
        site.wire.batch(own.SubmitJobsRequest(templates=[template], jobs=[own.NewJob() for _ in range(PART)]))
    return site


@pytest.mark.slow
def test_the_page_stays_small(full: Site, page: Page) -> None:
    """The browser holds one page of jobs, and moves to the next page and back."""
    asked: list[Request] = []
    page.on("request", lambda request: asked.append(request))  # noqa: PLW0108 - playwright checks the signature
    page.goto(f"{full.url}#/jobs?status=QUEUED")
    expect(page.locator(IDS)).to_have_count(50)
    expect(page.get_by_text("50 of 200,002 jobs")).to_be_visible()
    seen: set[str] = set()
    for _ in range(5):
        ids = page.locator(IDS).all_text_contents()
        assert len(ids) == 50
        assert seen.isdisjoint(ids)
        seen.update(ids)
        page.get_by_role("button", name="Next").click()
        expect(page.locator(IDS).first).not_to_have_text(ids[0])
    page.get_by_role("button", name="Back").click()
    expect(page.locator(IDS).first).to_have_text(ids[0])
    assert page.locator("*").count() < 2_000
    assert all("limit=" in request.url for request in asked if "/api/v1/jobs?" in request.url)


@pytest.mark.slow
def test_a_rare_job_is_found_among_many(full: Site, page: Page) -> None:
    """A search over all jobs continues until it has found every match."""
    page.goto(f"{full.url}#/jobs?type=send_mail&queue=flood")
    expect(page.locator(IDS)).to_have_count(2)
    page.goto(f"{full.url}#/")
    expect(page.get_by_role("table", name="Queues")).to_contain_text("200 k")
