"""What can be said of looks by measuring: contrast in both themes, and a phone that scrolls in one direction."""

from __future__ import annotations

import pytest

from sd_webui_spillway.host_port import ImageRequest
from tests.fakes.host import OOM_PROMPT

from .chromium import WORST_CONTRAST

TEXTS = (
    ".spillway-name", ".spillway-host", ".spillway-host-notice", ".spillway-switch", ".spillway-title",
    ".spillway-state-word", ".spillway-label", ".spillway-figure", ".spillway-parts",
    ".spillway-history figcaption span",
    ".spillway-caption", ".spillway-profile-text b", ".spillway-profile-line", ".spillway-need", ".spillway-took",
    ".spillway-headline", ".spillway-rungs li", ".spillway-button:enabled", ".spillway-input:enabled",
    ".spillway-link", ".spillway-key", ".spillway-table th", ".spillway-table td", ".spillway-tag", ".spillway-badge",
)


@pytest.fixture
def made(served):
    request = ImageRequest(prompt=OOM_PROMPT, width=64, height=64, steps=2, batch_size=2, batch_count=2)
    return served.session.generate(request)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_text_is_readable(open_page, made, theme):
    page = open_page(f"?__theme={theme}", color_scheme=theme).page
    page.wait_for_function("document.querySelectorAll('.spillway-badge').length === 4", timeout=10_000)
    page.wait_for_selector(".spillway-table td")
    page.click("button#spillway-stop")
    page.wait_for_selector(".spillway-message .spillway-sentence")
    found = page.evaluate(WORST_CONTRAST, [*TEXTS, ".spillway-sentence"])
    assert [name for name, ratio in found.items() if ratio is None] == []
    assert {name: round(ratio, 2) for name, ratio in found.items() if ratio < 4.5} == {}


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_sticks_out_to_the_side(open_page, made, width):
    page = open_page(width=width, height=844).page
    page.wait_for_selector(".spillway-table td")
    assert page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0
    outside = page.evaluate(
        """() => [...document.querySelectorAll('.spillway-card')]
          .map((card) => card.getBoundingClientRect())
          .filter((box) => box.left < 0 || box.right > window.innerWidth || box.width < 200).length"""
    )
    assert outside == 0


def test_the_keyboard_reaches_every_control(open_page):
    page = open_page().page
    names = page.evaluate(
        """() => [...document.querySelectorAll('.spillway :is(button, input, select, a[href])')]
          .filter((node) => node.offsetParent && !node.disabled)
          .filter((node) => node.tabIndex < 0 || !(node.textContent.trim() || node.ariaLabel || node.labels?.length
            || node.getAttribute('aria-describedby')))
          .map((node) => node.outerHTML)"""
    )
    assert names == []
