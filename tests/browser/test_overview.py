"""The overview page, in a real browser."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.browser.chromium import watched
from tests.browser.site import Site, site_in
from tests.e2e.fleet import stable_port
from tests.e2e.preloaded_prompt import LoadedProgram
from tests.e2e.wait_until import eventually

#: Runs before the page's own scripts: limits its timeouts to two seconds.
IMPATIENT = """
const patient = AbortSignal.timeout.bind(AbortSignal);
AbortSignal.timeout = (ms) => patient(Math.min(ms, 2000));
"""


def test_the_first_page_says_that_all_is_well(site: Site, page: Page) -> None:
    """The page of an idle server with a worker shows it as healthy, and loads nothing from other hosts."""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    answer = page.goto(site.url)
    assert answer is not None
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    expect(page.get_by_label("Health")).to_contain_text("Healthy")
    expect(page.locator("#link")).to_have_text("live")
    expect(page.locator("#foot")).to_contain_text("Holdfast 0.")
    assert [url for url in asked if not url.startswith(site.url)] == []


def test_numbers_and_plots_move_by_themselves(site: Site, page: Page) -> None:
    """Jobs that run after the page was opened appear in numbers and plots without a reload."""
    page.goto(site.url)
    throughput = page.get_by_role("region", name="Throughput (jobs per second)")
    expect(throughput.locator(".key", has_text="done")).to_contain_text("0")

    def is_moving() -> bool:
        site.submit("resize_image", {"name": "one.jpg"})
        return re.search(r"done\s+[1-9]", throughput.locator(".key", has_text="done").inner_text()) is not None

    eventually(is_moving, what="jobs that are done")
    expect(throughput.locator("path.line.tone-good")).to_have_attribute("d", re.compile(r"^M.*L"))


def test_failures_are_grouped_by_reason(site: Site, page: Page) -> None:
    """Failures that differ in a name or a number share one row, which links to the newest of them."""
    page.goto(site.url)
    for number in range(5):
        site.submit("send_mail", {"to": f"person-{number}@example.com"}, queue="mail")
    row = page.get_by_role("table", name="Reasons").get_by_role("row", name="send_mail")
    expect(row).to_have_count(1)
    expect(row.get_by_role("cell").first).to_have_text("5")
    row.get_by_role("link", name=re.compile("ConnectionError")).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("send_mail")
    expect(page.get_by_label("Traceback").first).to_contain_text("ConnectionError: mail.example refused")


def test_a_paused_queue_is_a_finding(site: Site, page: Page) -> None:
    """A paused queue is shown with its reason until it is resumed."""
    site.ask("POST", "/queues/archive/pause", {"reason": "the disk is full"})
    site.submit("resize_image", queue="archive")
    page.goto(site.url)
    health = page.get_by_label("Health")
    expect(health).to_contain_text("Queue archive is paused and holds 1 job: the disk is full.")
    site.ask("POST", "/queues/archive/resume", {})
    expect(health).not_to_contain_text("archive")


def test_a_type_that_no_worker_knows_is_a_finding(site: Site, page: Page) -> None:
    """The overview and the page of the job show that no worker knows its type."""
    job_id = site.submit("renamed.long.ago")
    page.goto(site.url)
    health = page.get_by_label("Health")
    expect(health).to_contain_text("1 job waits of a type that no connected worker knows: renamed.long.ago (1).")
    expect(health).to_contain_text("Critical")
    page.goto(f"{site.url}#/jobs/{job_id}")
    expect(page.get_by_label("Details")).to_contain_text("No worker knows the type 'renamed.long.ago'")
    site.ask("POST", f"/jobs/{job_id}/cancel", {})
    page.goto(f"{site.url}#/")
    expect(health).not_to_contain_text("renamed.long.ago")


def test_slots_that_are_all_busy_are_not_called_healthy(
    browser: Browser, loaded: LoadedProgram, tmp_path: Path
) -> None:
    """If all slots are busy while a job waits, the overview shows both instead of "Healthy"."""
    with site_in(tmp_path, program=loaded) as site, watched(browser) as tab:
        site.worker(slots=2)
        gate = {"path": str(tmp_path / "never")}
        for job_id in [site.submit("gate", gate), site.submit("gate", gate)]:
            site.until(job_id, "RUNNING")
        site.submit("gate", gate)
        tab.page.goto(site.url)
        health = tab.page.get_by_label("Health")
        expect(health).to_contain_text("All 2 slots are busy and 1 job waits, the oldest for")
        expect(health).not_to_contain_text("Healthy")


#: The verdict on a backlog while all slots are busy, after samples at these milliseconds.
VERDICT = """
async (looks) => {
  const [{ health }, { Series }] = await Promise.all([import("./assets/health.js"), import("./assets/series.js")]);
  const stats = { states: { QUEUED: 7, RUNNING: 4 }, workers: 1, started_at_ms: 1, totals: null };
  const series = new Series();
  for (const now_ms of looks) series.add({ ...stats, now_ms });
  const queues = [{ name: "images", mode: "OPEN", ready: 5, delayed: 2, oldest_age_ms: 30_000 }];
  const workers = [{ worker_id: "anna", slots: 4, running: 4, types: [], heard_ms_ago: 100 }];
  return health({ able: new Set(["administration"]), live: { state: "live" }, stats, queues, workers, series }).word;
}
"""


@pytest.mark.parametrize(
    ("looks", "word"),
    [([1_000], "Busy"), ([1_000, 3_000], "Busy"), ([1_000, 6_000], "Warning")],
)
def test_jobs_are_stalled_only_after_a_window_in_which_none_ended(
    site: Site, page: Page, looks: list[int], word: str
) -> None:
    """A backlog that is observed for a moment is busy, as in `holdfast top`, however long its oldest job has waited."""
    page.goto(site.url)
    assert page.evaluate(VERDICT, looks) == word


def test_a_server_that_goes_away_is_noticed(browser: Browser, loaded: LoadedProgram, tmp_path: Path) -> None:
    """The page shows a lost connection, and continues by itself after the server has restarted."""
    port = str(stable_port())
    with site_in(tmp_path, "--http-port", port, program=loaded) as site, watched(browser) as tab:
        link, health = tab.page.locator("#link"), tab.page.get_by_label("Health")
        tab.page.goto(site.url)
        expect(link).to_have_text("live")
        site.server.kill()
        expect(link).to_have_text("no connection")
        expect(health).to_contain_text("The server has not answered for")
        site.fleet.server("--http-port", port)
        expect(link).to_have_text("live")
        expect(health).to_contain_text("Healthy")


def test_page_without_its_numbers_claims_nothing(browser: Browser, site: Site) -> None:
    """Before the first statistics, health and queues show "Loading", and a job has no state."""
    with watched(browser) as tab:
        tab.page.route("**/api/v1/events?*", lambda _: None)
        tab.page.route("**/api/v1/jobs/*", lambda _: None)
        tab.page.goto(site.url)
        health = tab.page.get_by_label("Health")
        expect(health).to_contain_text("Loading")
        expect(health).to_have_attribute("data-level", "unknown")
        expect(tab.page.get_by_role("region", name="Queues").locator("p")).to_have_text("Loading")
        tab.page.goto(f"{site.url}#/jobs/{site.submit('resize_image')}")
        expect(tab.page.locator(".heading .badge")).to_have_text("\u2013")


def test_failures_are_counted_since_the_page_knows(browser: Browser, tmp_path: Path, loaded: LoadedProgram) -> None:
    """A page that is open for less than a minute shows the time since which it counts failures."""
    with site_in(tmp_path, program=loaded) as site, watched(browser) as tab:
        tab.page.goto(site.url)
        expect(tab.page.locator(".fact", has_text="Failed")).to_contain_text(re.compile(r"0since \d"))
        tab.page.goto("about:blank")  # the page would report the end of the server as an error


def test_a_server_that_stands_still_is_noticed_where_there_is_no_feed(browser: Browser, site: Site) -> None:
    """A request without a response counts as a lost connection, until the server responds again."""
    with watched(browser) as tab:
        tab.page.add_init_script(IMPATIENT)
        link = tab.page.locator("#link")
        tab.page.route("**/api/v1/capabilities", without_feed)
        tab.page.goto(site.url)
        expect(link).to_have_text("live")
        tab.page.route("**/api/v1/stats", lambda _: None)
        expect(link).to_have_text("no connection")
        tab.page.unroute("**/api/v1/stats")
        expect(link).to_have_text("live")


def without_feed(route: Route) -> None:
    """Removes the event stream from the capabilities of the server."""
    answer = route.fetch()
    able = answer.json()
    able["capabilities"].remove("feed")
    able["missing"]["feed"] = "it has none"
    route.fulfill(response=answer, json=able)


def test_a_backend_without_numbers_still_has_its_jobs(browser: Browser, loaded: LoadedProgram, tmp_path: Path) -> None:
    """Without statistics the page says so, sends no requests for missing capabilities, and polls the jobs."""
    # The page is closed before its server, because it would report failed requests.
    with site_in(tmp_path, topology="microservices", program=loaded) as site, watched(browser) as tab:
        page = tab.page
        page.goto(site.url)
        health, link = page.get_by_label("Health"), page.locator("#link")
        expect(health).to_contain_text("The microservices backend has no administration")
        expect(link).to_have_text("live")
        expect(page.locator("nav a:visible")).to_have_text(["Overview", "Jobs"])
        expect(page.get_by_role("region", name="Queues")).to_be_hidden()
        failed = site.submit("send_mail", {"to": "x@example.com"})
        expect(page.get_by_role("table", name="Reasons").get_by_role("row", name="send_mail")).to_be_visible()
        page.goto(f"{site.url}#/jobs")
        expect(page.get_by_role("link", name=failed)).to_be_visible()
        later = site.submit("gate", {"path": str(tmp_path / "gate")})
        expect(page.get_by_role("row", name=later)).to_contain_text("running")
        page.get_by_role("link", name=later).click()
        expect(page.get_by_text("The microservices backend has no history")).to_be_visible()
        page.get_by_role("button", name="Cancel job").click()
        page.get_by_role("dialog").get_by_role("button", name="Cancel job").click()
        expect(page.locator(".heading .badge")).to_have_text("canceled")
        page.goto(f"{site.url}#/schedules")
        expect(page.get_by_label("Not available")).to_contain_text("The microservices backend has no schedules")
        assert tab.troubles == []


def test_plots_start_with_samples_from_before_the_page_was_opened(site: Site, page: Page) -> None:
    """The plots start with the samples that the server recorded before the page was opened."""
    eventually(lambda: len(site.ask("GET", "/stats/recent")["samples"]) >= 2, what="two samples of the server")
    page.goto(site.url)
    depth = page.get_by_role("region", name="Queue depth (jobs)")
    expect(depth.locator("path.line.tone-run")).to_have_attribute("d", re.compile(r"^M[\d.]+ [\d.]+L"))
