"""Accessibility: keyboard, phone, dark mode and reduced motion."""

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.chromium import watched
from tests.browser.site import Site

VIEWS = ("", "jobs", "queues", "workers", "schedules")


@pytest.fixture(scope="module")
def waiting(site: Site) -> str:
    """Creates a waiting job with long words in it."""
    site.ask("POST", "/queues/keys/pause", {"reason": "word" * 40})
    site.ask("POST", "/schedules", {"name": "n" * 60, "type": "resize_image", "cron": "0 2 * * *"})
    job = site.submit("shout", {"words": "long" * 200})
    site.until(job, "FAILED")
    return site.submit("resize_image", {"name": "x" * 500}, queue="keys", labels={"l" * 60: "v" * 200})


def test_a_job_is_canceled_with_the_keyboard_alone(site: Site, page: Page, waiting: str) -> None:
    """Tab reaches everything from the skip link to the dialog, and Escape changes nothing."""
    page.goto(f"{site.url}#/jobs?status=QUEUED&queue=keys")
    expect(page.get_by_label(f"Select {waiting}")).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    tab_to(page, f"Select {waiting}")
    page.keyboard.press("Space")
    shift_tab_to(page, "Cancel selected")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Cancel 1 job?")
    expect(dialog.get_by_label("Reason")).to_be_focused()
    for _ in range(8):
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement === document.body || !!document.activeElement.closest('dialog')")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(page.get_by_role("button", name="Cancel selected")).to_be_focused()
    assert site.status(waiting) == "QUEUED"
    page.keyboard.press("Enter")
    expect(dialog.get_by_label("Reason")).to_be_focused()
    page.keyboard.type("by keyboard")
    page.keyboard.press("Enter")
    site.until(waiting, "CANCELED")


def tab_to(page: Page, name: str) -> None:
    """Presses Tab until the element has the focus."""
    press_until(page, "Tab", name)


def shift_tab_to(page: Page, name: str) -> None:
    """Presses Shift+Tab until the element has the focus."""
    press_until(page, "Shift+Tab", name)


def press_until(page: Page, key: str, name: str) -> None:
    for _ in range(60):
        page.keyboard.press(key)
        focused = page.evaluate("document.activeElement.ariaLabel || document.activeElement.textContent")
        if focused == name:
            return
    raise AssertionError(f"{key} never reached {name!r}")


def test_views_take_the_focus_when_they_open(site: Site, page: Page) -> None:
    """After a followed link, the heading of the view has the focus."""
    page.goto(site.url)
    for name in ("Jobs", "Queues", "Workers", "Schedules", "Overview"):
        page.get_by_role("navigation").get_by_role("link", name=name).click()
        expect(page.get_by_role("heading", level=1)).to_be_focused()
        expect(page.get_by_role("heading", level=1)).to_have_text(name)
        expect(page.get_by_role("navigation").get_by_role("link", name=name)).to_have_attribute("aria-current", "page")


def test_everything_that_can_be_used_has_a_name(site: Site, page: Page, waiting: str) -> None:
    """Every control has an accessible name."""
    for view in (*VIEWS, f"jobs/{waiting}"):
        page.goto(f"{site.url}#/{view}")
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        assert page.evaluate(_NAMELESS) == []


_NAMELESS = """[...document.querySelectorAll('a, button, input, select')]
  .filter((one) => !(one.ariaLabel || one.textContent.trim() || one.labels?.[0]?.textContent))
  .map((one) => one.outerHTML)"""


def test_a_phone_shows_everything_without_moving_sideways(site: Site, browser: Browser, waiting: str) -> None:
    """At 320 pixels no view is wider than the screen, even with long words."""
    with watched(browser, viewport={"width": 320, "height": 640}, has_touch=True) as phone:
        for view in (*VIEWS, f"jobs/{waiting}", "jobs?status=FAILED"):
            phone.page.goto(f"{site.url}#/{view}")
            expect(phone.page.locator("#link")).to_have_text("live")
            expect(phone.page.get_by_role("heading", level=1)).to_be_visible()
            expect(phone.page.locator("main td, main dd")).not_to_have_count(0)
            assert phone.page.evaluate("document.documentElement.scrollWidth") == 320, view
        assert phone.troubles == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_can_be_read(site: Site, browser: Browser, scheme: str, waiting: str) -> None:
    """Every text has the contrast ratio that WCAG requires."""
    with watched(browser, color_scheme=scheme) as tab:
        for view in (*VIEWS, f"jobs/{waiting}"):
            tab.page.goto(f"{site.url}#/{view}")
            expect(tab.page.locator("main td, main dd")).not_to_have_count(0)
            assert tab.page.evaluate(_FAINT) == []
        ground = tab.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, ground[4:-1].split(","))) < 3 * 128) == (scheme == "dark")


#: Texts with a contrast below 4.5 to their background, without those of disabled controls.
_FAINT = """(() => {
  const parts = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255)
    .map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (node) => {
    for (let one = node; one; one = one.parentElement) {
      const ground = parts(getComputedStyle(one).backgroundColor);
      if (ground.length === 3 || ground[3] === 1) return ground;
    }
    return [255, 255, 255];
  };
  return [...document.querySelectorAll('body *')]
    .filter((node) => [...node.childNodes].some((one) => one.nodeType === 3 && one.data.trim()))
    .filter((node) => node.checkVisibility() && !node.closest(':disabled, svg, script, .skip'))
    .map((node) => {
      const [one, two] = [light(parts(getComputedStyle(node).color)), light(behind(node))].sort((a, b) => b - a);
      return [node.className, node.textContent.slice(0, 30), (one + 0.05) / (two + 0.05)];
    })
    .filter(([, , ratio]) => ratio < 4.5);
})()"""


def test_reduced_motion_disables_transitions_and_animations(site: Site, browser: Browser) -> None:
    """With reduced motion no element has a transition or an animation."""
    with watched(browser, reduced_motion="reduce") as tab:
        tab.page.goto(f"{site.url}#/jobs")
        expect(tab.page.get_by_role("heading", level=1)).to_be_visible()
        moving = (
            "[...document.querySelectorAll('*')].filter((one) => getComputedStyle(one).transitionDuration !== '0s')"
        )
        assert tab.page.evaluate(f"{moving}.length") == 0
