"""Takes the screenshots of docs/dashboard.md from a real server: `python -m tests.browser.pictures docs/pictures`."""

import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, expect

from tests.browser.chromium import chromium, watched
from tests.browser.site import Site, site_in
from tests.e2e.wait_until import pause

ROUNDS = 70
DESK = {"width": 1280, "height": 860}
PHONE = {"width": 360, "height": 740}


def fill(site: Site) -> dict[str, str]:
    """Creates schedules, a paused queue, and some jobs."""
    site.worker(8, "press-1")
    site.worker(8, "press-2")
    for name, cron in (("nightly-report", "0 2 * * *"), ("thumbnails", "*/5 * * * *"), ("invoices", "0 9 1 * *")):
        site.ask("POST", "/schedules", {"name": name, "type": "resize_image", "cron": cron, "timezone": "Europe/Paris"})
    site.ask("POST", "/queues/archive/pause", {"reason": "the disk is being replaced"})
    site.ask("POST", "/jobs", {"jobs": [{"type": "resize_image", "queue": "archive"}] * 40})
    backoff = {"kind": "fixed", "base_s": 1}
    return {
        "flaky": site.submit("flaky", {"fails": 2}, queue="reports", max_attempts=3, backoff=backoff),
        "running": site.submit("gate", {"path": "never"}, queue="reports", labels={"tenant": "acme"}),
    }


def work(site: Site, number: int) -> None:
    """Submits the jobs of one second, more in the middle of the run than at its ends."""
    amount = 60 + 4 * min(number, ROUNDS - number)
    image = {"type": "resize_image", "payload": {"name": f"photo-{number}.jpg", "width": 640, "pause_s": 0.03}}
    jobs = [
        {**image, "queue": ("images", "thumbs")[index % 2], "labels": {"tenant": "acme"}} for index in range(amount)
    ]
    jobs += [{"type": "send_mail", "queue": "mail", "payload": {"to": f"user{number}@example.com"}}] * (number % 3)
    jobs += [{"type": "charge_card", "queue": "payments", "payload": {"order": number}}] * (number % 2)
    site.ask("POST", "/jobs", {"jobs": jobs})


def shoot(page: Page, site: Site, view: str, path: Path) -> None:
    """Takes one screenshot after the page has loaded its data."""
    page.goto(f"{site.url}#/{view}")
    expect(page.locator("#link")).to_have_text("live")
    expect(page.locator("main td, main dd")).not_to_have_count(0)
    for number in range(4):
        work(site, ROUNDS // 2 + number)
        pause(1)
    page.screenshot(path=path)
    with Image.open(path) as picture:
        picture.convert("RGB").quantize(256, kmeans=8).save(path, optimize=True)


def main() -> None:
    """Takes all screenshots into the given folder."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place, site_in(Path(place)) as site, chromium() as browser:
        jobs = fill(site)
        for number in range(ROUNDS):
            work(site, number)
            pause(1)
        with watched(browser, viewport=DESK) as tab:
            shoot(tab.page, site, "", folder / "dashboard-overview.png")
            shoot(tab.page, site, "jobs?status=FAILED", folder / "dashboard-jobs.png")
            shoot(tab.page, site, f"jobs/{jobs['flaky']}", folder / "dashboard-job.png")
            shoot(tab.page, site, "queues", folder / "dashboard-queues.png")
        with watched(browser, viewport=DESK, color_scheme="dark") as tab:
            shoot(tab.page, site, "", folder / "dashboard-dark.png")
        with watched(browser, viewport=PHONE, device_scale_factor=2) as tab:
            shoot(tab.page, site, "", folder / "dashboard-phone.png")


if __name__ == "__main__":
    main()
