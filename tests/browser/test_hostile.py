"""All data of a job is shown as text: nothing in it runs, links to other pages, or hides text."""

import json

import pytest
from playwright.sync_api import Page, expect

from tests.browser.chromium import Watched
from tests.browser.site import Site

MARKUP = "<img src=x onerror=\"trespass('image')\"><script>trespass('script')</script>"
LINK = "javascript:trespass('link')"
HOSTILE = [
    MARKUP,
    f'<svg onload="trespass(\'svg\')"><a href="{LINK}">click</a></svg>',
    "</pre></td></table><iframe srcdoc=\"<script>parent.trespass('frame')</script>\"></iframe>",
    "\"><style>*{display:none}</style>' onfocus='trespass(1)' autofocus='",
    "{{constructor.constructor('trespass(1)')()}}${trespass(2)}",
]


@pytest.mark.parametrize("words", HOSTILE)
def test_nothing_that_a_job_carries_runs(site: Site, tab: Watched, words: str) -> None:
    """Labels, headers, payload, failure, log lines and traceback are shown as plain text on every page."""
    page = tab.page
    job = site.submit("shout", {"words": words}, labels={"note": words, words[:60]: "x"}, headers={"from": words})
    site.until(job, "FAILED")
    page.goto(f"{site.url}#/jobs/{job}")
    expect(page.get_by_label("Payload").last).to_have_text(json.dumps({"words": words}, indent=2), use_inner_text=True)
    expect(page.get_by_label("Log lines").last).to_contain_text(words)
    expect(page.get_by_label("Traceback").last).to_contain_text(f"RuntimeError: {words}")
    expect(page.get_by_role("link", name=f"note:{words}")).to_be_visible()
    page.goto(f"{site.url}#/jobs?status=FAILED")
    expect(page.get_by_role("row").filter(has_text=job)).to_contain_text(words)
    page.goto(f"{site.url}#/")
    expect(page.get_by_role("table", name="Reasons")).to_contain_text(words[:40])
    assert page.locator("main iframe, main script, main style, main img").count() == 0
    assert page.evaluate(_OUTSIDE) == []


#: Links to other pages, and attributes that contain code.
_OUTSIDE = """[...document.querySelectorAll('*')].flatMap((node) => [...node.attributes]
  .filter((one) => one.name.startsWith('on') || (one.name === 'href' && !/^(#|\\/assets\\/)/.test(one.value)))
  .map((one) => `${node.tagName} ${one.name}=${one.value}`))"""


def test_filters_and_ids_in_the_address_are_shown_as_plain_text(site: Site, tab: Watched) -> None:
    """Filters and ids in the address of the page are shown as plain text."""
    tab.refusal = "4"  # the server refuses such names and ids
    for address in (f"#/jobs?queue={MARKUP}&type={MARKUP}", f"#/jobs/{MARKUP}", f"#{LINK}", f"#/{MARKUP}"):
        tab.page.goto("about:blank")
        tab.page.goto(f"{site.url}{address}")
        expect(tab.page.get_by_role("heading", level=1)).to_be_visible()
        assert tab.page.evaluate("window.trespasses") == []
        assert tab.page.locator("main img, main script").count() == 0


def test_text_cannot_hide_or_turn_around(site: Site, page: Page) -> None:
    """Characters that reorder or hide text are escaped."""
    job = site.submit("shout", {"words": "invoice\u202egpj.exe\u200b"})
    site.until(job, "FAILED")
    page.goto(f"{site.url}#/jobs/{job}")
    expect(page.get_by_label("Traceback").last).to_contain_text("invoice\\u{202e}gpj.exe\\u{200b}")
