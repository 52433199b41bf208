"""A job on the page: progress, pictures, and the right badge on each of them."""

from __future__ import annotations

import pytest

from sd_webui_spillway.timing.summary import badge_text
from tests.fakes.host import DEAD_PROMPT, LOST_PROMPT, OOM_PROMPT

ON_IMAGES = """
() => [...document.querySelectorAll('#spillway-gallery .thumbnail-lg')].map((thumbnail) => ({
  file: decodeURIComponent(thumbnail.querySelector('img').src.split('/').pop()),
  badges: [...thumbnail.querySelectorAll('.spillway-badge')].map((badge) => badge.textContent),
}))
"""


def fill(page, prompt="", **numbers):
    values = {"width": 64, "height": 64, "steps": 3, "batch-size": 1, "batch-count": 1, "seed": -1, **numbers}
    page.fill("#spillway-prompt textarea", prompt)
    for name, value in values.items():
        page.fill(f"#spillway-{name} input", str(value))


def press_generate(page):
    page.click("button#spillway-generate")


def wait_for_badges(page, count, job_before):
    """Until that many images carry a badge and none is of the job before."""
    page.wait_for_function(
        f"""([count, before]) => {{
          const found = ({ON_IMAGES})();
          const right = (one) => one.badges.length === 1 && !one.file.startsWith(before);
          return found.length === count && found.every(right);
        }}""",
        arg=[count, job_before],
        timeout=20_000,
    )
    return page.evaluate(ON_IMAGES)


def last_job_prefix(served):
    last = served.session.last_job()
    return last.job_id[:8] if last else "none"


def assert_right(found, served):
    records = served.session.log.by_file_names([one["file"] for one in found])
    assert len({one["file"] for one in found}) == len(found)
    for one in found:
        assert one["badges"] == [badge_text(records[one["file"]])]


def test_four_images_have_four_right_badges_and_new_ones_after_that(open_page, served):
    watched = open_page()
    page = watched.page
    fill(page, **{"batch-size": 2, "batch-count": 2, "seed": 10})
    before = last_job_prefix(served)
    press_generate(page)
    first = wait_for_badges(page, 4, before)
    assert_right(first, served)
    assert len({one["badges"][0] for one in first}) == 4, "the fake host gives each seed a time of its own"

    fill(page, **{"batch-size": 3, "seed": 40})
    before = last_job_prefix(served)
    press_generate(page)
    second = wait_for_badges(page, 3, before)
    assert_right(second, served)
    assert watched.complaints == []

    page.reload(wait_until="domcontentloaded")
    third = wait_for_badges(page, 3, "none")
    assert [one["file"] for one in third] == [one["file"] for one in second]
    assert_right(third, served)


def test_a_badge_opens_by_pointer_and_by_keyboard_and_moves_nothing(open_page, served):
    page = open_page().page
    fill(page, OOM_PROMPT, **{"batch-size": 2, "seed": 21})
    before = last_job_prefix(served)
    press_generate(page)
    wait_for_badges(page, 2, before)
    boxes = """() => {
      const origin = document.querySelector('#spillway-gallery .grid-container').getBoundingClientRect();
      const box = (at) => [at.left - origin.left, at.top - origin.top, at.width, at.height].map(Math.round);
      return [...document.querySelectorAll('#spillway-gallery .thumbnail-lg')]
        .map((thumbnail) => box(thumbnail.getBoundingClientRect()));
    }"""
    placed = page.evaluate(boxes)
    details = page.locator("#spillway-details")
    page.locator("#spillway-gallery").scroll_into_view_if_needed()
    page.wait_for_timeout(500)
    page.locator(".spillway-badge").first.hover()
    details.wait_for(state="visible", timeout=3000)
    text = details.inner_text()
    assert "sampling" in text
    assert "went from" in text
    page.mouse.move(2, 2)
    details.wait_for(state="hidden", timeout=3000)
    page.locator("#spillway-gallery .thumbnail-lg").nth(1).evaluate("(node) => node.focus({ focusVisible: true })")
    details.wait_for(state="visible", timeout=3000)
    page.keyboard.press("Escape")
    details.wait_for(state="hidden", timeout=3000)
    page.uncheck("#spillway-badges-shown")
    page.wait_for_function("document.querySelectorAll('.spillway-badge').length === 0", timeout=3000)
    assert page.evaluate(boxes) == placed
    page.wait_for_timeout(1200)
    assert page.locator(".spillway-badge").count() == 0
    assert served.session.settings.badges is False
    page.check("#spillway-badges-shown")
    page.wait_for_function("document.querySelectorAll('.spillway-badge').length === 2", timeout=3000)


def test_the_opened_picture_has_its_own_badge(open_page, served):
    page = open_page().page
    fill(page, **{"batch-size": 2, "seed": 33})
    before = last_job_prefix(served)
    press_generate(page)
    wait_for_badges(page, 2, before)
    page.locator("#spillway-gallery .thumbnail-lg img").nth(1).click(position={"x": 5, "y": 5})
    page.wait_for_function(
        "document.querySelectorAll('#spillway-gallery .preview .spillway-badge').length === 1", timeout=5000
    )
    badge = page.locator("#spillway-gallery .preview .spillway-badge")
    assert badge.get_attribute("data-file").endswith("-00034.png")


def test_progress_rungs_and_stop(open_page, served, monkeypatch):
    page = open_page().page
    monkeypatch.setattr(served.host, "step_pause_seconds", 0.06)
    fill(page, OOM_PROMPT, steps=40, **{"batch-size": 2, "batch-count": 4})
    before = last_job_prefix(served)
    press_generate(page)
    page.wait_for_function("/Image 1 of 8 · sampling, step \\d+ of 40/.test("
                           "document.querySelector('.spillway-headline').textContent)", timeout=8000)
    page.locator(".spillway-rungs li", has_text="ran out at step 1").wait_for(timeout=5000)
    page.wait_for_selector('.spillway-state[data-state="recovering"]', timeout=3000)
    assert page.locator("#spillway-progress .spillway-tag").inner_text() == "lowvram"
    page.wait_for_function("/left$/.test(document.querySelector('.spillway-facts').textContent)", timeout=5000)
    # The page answers while the job runs: pictures of the first batch come before the last.
    job = served.session.progress().job_id[:8]
    page.wait_for_selector(f"#spillway-gallery .thumbnail-lg img[src*='{job}']", timeout=10_000)
    page.click("button#spillway-stop")
    page.locator("#spillway-message .spillway-sentence", has_text="what was finished is kept").wait_for(timeout=8000)
    done = len(served.session.last_job().images)
    assert 2 <= done < 8
    found = wait_for_badges(page, done, before)
    assert_right(found, served)


@pytest.mark.parametrize(
    ("prompt", "numbers", "words"),
    [
        ("", {"width": 100}, "The width must be a multiple of 8, not 100."),
        ("", {"height": ""}, "The height must be a number; type one."),
        ("", {"steps": 0}, "The steps must be from 1 to 1000, not 0."),
        (DEAD_PROMPT, {}, "The fake card has no memory left at all."),
    ],
)
def test_what_cannot_be_made_is_one_sentence_in_the_panel(open_page, prompt, numbers, words):
    page = open_page().page
    fill(page, prompt, **numbers)
    press_generate(page)
    message = page.locator("#spillway-message .spillway-message")
    message.locator(".spillway-sentence", has_text=words).wait_for(timeout=8000)
    assert message.get_attribute("role") == "alert"
    assert "Traceback" not in page.content()
    if prompt:
        assert message.locator(".spillway-detail").inner_text() == "RuntimeError: planned"


def test_an_image_given_up_is_said_and_stays_in_the_log(open_page, served):
    page = open_page().page
    fill(page, LOST_PROMPT, **{"batch-size": 2, "seed": 50})
    before = last_job_prefix(served)
    press_generate(page)
    wait_for_badges(page, 1, before)
    page.locator("#spillway-message .spillway-sentence", has_text="seed 51 was given up").wait_for(timeout=5000)
    page.locator("#spillway-log .spillway-tag", has_text="given up").first.wait_for(timeout=5000)


def test_another_pages_job_fills_this_ones_gallery(open_page, served):
    one, two = open_page().page, open_page().page
    fill(two, **{"batch-size": 2, "seed": 60, "steps": 60})
    before = last_job_prefix(served)
    press_generate(two)
    assert_right(wait_for_badges(one, 2, before), served)


def test_the_log_filters_pages_and_asks_before_it_is_cleared(open_page, served):
    page = open_page().page
    fill(page, width=128, steps=1, **{"batch-size": 10, "batch-count": 2, "seed": 70})
    press_generate(page)
    log = page.locator("#spillway-log")
    log.locator('select[aria-label="Size"] option[value="128x64"]').wait_for(state="attached", timeout=15_000)
    log.locator('select[aria-label="Size"]').select_option("128x64")
    page.wait_for_function("document.querySelector('.spillway-pager .spillway-caption').textContent === '1–15 of 20'")
    assert log.locator("tbody tr").count() == 15
    assert log.locator(".spillway-log-plot circle").count() == 20
    log.locator("button", has_text="Older").click()
    page.wait_for_function("document.querySelectorAll('#spillway-log tbody tr').length === 5")
    assert "width=128" in log.locator("a", has_text="CSV").get_attribute("href")
    log.locator("button", has_text="Clear the log").click()
    log.locator(".spillway-confirm").wait_for(state="visible", timeout=3000)
    log.locator("button", has_text="Keep").click()
    assert served.session.log.count() >= 20
    log.locator("button", has_text="Clear the log").click()
    log.locator("button", has_text="Delete").click()
    log.locator(".spillway-empty", has_text="No image has been made yet.").wait_for(timeout=5000)
    assert served.session.log.count() == 0
