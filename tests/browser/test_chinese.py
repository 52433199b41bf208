"""The page in Chinese: no control, message, reason or tooltip of ours is left in English."""

from __future__ import annotations

import re

from sd_webui_spillway.host_port import ImageRequest
from sd_webui_spillway.placement.profile import Profile
from tests.fakes.host import DEAD_PROMPT, LOST_PROMPT, OOM_PROMPT

SAID = """
() => {
  const roots = [...document.querySelectorAll(
    '.spillway, .spillway-details, #spillway-message, .spillway-badge, .spillway-buttons,'
    + ' [id^="spillway-"] [data-testid="block-info"], #spillway-gallery [data-testid="block-label"]')];
  const found = new Set();
  for (const root of roots) {
    for (const line of root.innerText.split('\\n')) found.add(line.trim());
    for (const node of [root, ...root.querySelectorAll('*')]) {
      for (const name of ['title', 'aria-label', 'placeholder']) found.add(node.getAttribute(name) ?? '');
      if (node.localName === 'option' || node.localName === 'title') found.add(node.textContent);
    }
  }
  for (const field of document.querySelectorAll('[id^="spillway-"] textarea')) found.add(field.placeholder);
  return [...found].filter(Boolean);
}
"""
SAME_IN_BOTH = {
    "Spillway", "GiB", "MiB", "UNet", "VAE", "GPU", "CPU", "CUDA", "CSV", "JSON", "Windows",
    "drawn <b>shapes</b>", "Fake card", *(profile.value for profile in Profile),
}


def english(lines: list[str]) -> dict[str, list[str]]:
    left = {}
    for line in lines:
        text = line
        for name in sorted(SAME_IN_BOTH, key=len, reverse=True):
            text = text.replace(name, "")
        words = re.findall(r"[A-Za-z]{3,}", text)
        if words:
            left[line] = words
    return left


def wait_for_words(page, words: str, milliseconds: int) -> None:
    page.locator("#spillway-message .spillway-sentence", has_text=words).wait_for(timeout=milliseconds)


def test_nothing_of_ours_is_left_in_english(open_page, served):
    request = ImageRequest(prompt=f"{OOM_PROMPT}, {LOST_PROMPT}", width=64, height=64, steps=3, batch_size=2)
    served.session.generate(request)
    page = open_page("?lang=zh&__theme=light").page
    page.wait_for_selector(".spillway-table td")
    page.wait_for_selector(".spillway-badge")
    page.hover(".spillway-badge")
    page.wait_for_selector(".spillway-details:not([hidden]) .spillway-stage-bar")
    page.evaluate("document.querySelector('#spillway-profile-medvram').click()")
    page.locator("#spillway-profiles .spillway-notice", has_text="已切换到 medvram").wait_for(timeout=5000)
    assert english(page.evaluate(SAID)) == {}
    served.session.set_profile(Profile.AUTO)


def test_what_the_form_refuses_and_what_a_job_ends_with_is_said_in_chinese(open_page):
    page = open_page("?lang=zh&__theme=light").page
    page.fill("#spillway-width input", "100")
    page.click("button#spillway-generate")
    wait_for_words(page, "宽度必须是 8 的倍数，而不是 100。", 8000)
    assert english(page.evaluate(SAID)) == {}
    page.fill("#spillway-width input", "64")
    page.fill("#spillway-height input", "64")
    page.fill("#spillway-steps input", "2")
    page.fill("#spillway-prompt textarea", f"{LOST_PROMPT}")
    page.fill("#spillway-batch-size input", "2")
    page.click("button#spillway-generate")
    wait_for_words(page, "的图像已放弃：", 15_000)
    assert english(page.evaluate(SAID)) == {}


def test_what_the_program_does_not_know_by_heart_is_shown_as_it_is(open_page):
    page = open_page("?lang=zh&__theme=light").page
    page.fill("#spillway-prompt textarea", DEAD_PROMPT)
    page.fill("#spillway-width input", "64")
    page.fill("#spillway-height input", "64")
    page.click("button#spillway-generate")
    wait_for_words(page, "The fake card has no memory left at all.", 8000)
    shown = page.locator("#spillway-message .spillway-sentence").inner_text()
    assert shown == "The fake card has no memory left at all."
