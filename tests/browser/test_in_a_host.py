"""The panel in a host's page: no form of its own, badges in the host's gallery, a compact form beside its fields."""

from __future__ import annotations

import threading

import pytest

from sd_webui_spillway.placement.profile import Profile
from tests.fakes.host import FakeHost
from tests.fakes.session import open_session

from .conftest import Served, serve_app

BADGED = """
() => [...document.querySelectorAll('#txt2img_gallery .thumbnail-lg')].map((thumbnail) => ({
  file: decodeURIComponent(thumbnail.querySelector('img').src.split('/').pop()),
  badge: thumbnail.querySelector('.spillway-badge')?.dataset.file ?? null,
}))
"""
TWO_BADGES = "document.querySelectorAll('#txt2img_gallery .thumbnail-lg .spillway-badge').length === 2"


@pytest.fixture(scope="module")
def hosted(tmp_path_factory):
    pytest.importorskip("gradio", reason="the page needs gradio")
    from .host_page import build_host_page

    host = FakeHost(makes_its_own_images=True, step_pause_seconds=0.001)
    folder = tmp_path_factory.mktemp("hosted")
    session = open_session(host, folder)
    with serve_app(build_host_page(session, folder)) as url:
        yield Served(url, session, host)
    session.close()


@pytest.fixture
def page(hosted, browser):
    context = browser.new_context(locale="en-US", viewport={"width": 1280, "height": 1000})
    page = context.new_page()
    page.goto(hosted.url, wait_until="domcontentloaded")
    page.wait_for_selector(".spillway-compact .spillway-bar[data-name=dedicated] .spillway-figure", timeout=60_000)
    yield page
    context.close()
    hosted.session.set_profile(Profile.AUTO)


def show(page, tab):
    page.get_by_role("tab", name=tab).or_(page.locator(".tab-nav button", has_text=tab)).first.click()


def test_every_module_loaded_by_itself_leaves_one_panel_without_a_form(page):
    page.wait_for_timeout(800)
    show(page, "Spillway")
    page.wait_for_selector("#spillway-meter > .spillway-card", state="visible", timeout=10_000)
    for name in ("meter", "progress", "profiles", "cap", "settings", "log"):
        assert page.locator(f"#spillway-{name} > .spillway-card").count() == 1, name
    assert page.locator("#spillway-generate, #spillway-gallery, #spillway-prompt").count() == 0


@pytest.mark.parametrize("kind", ["saved", "unsaved"])
def test_badges_are_on_the_images_and_on_nothing_else(page, hosted, kind):
    page.click(f"#txt2img_{kind}")
    page.wait_for_function(TWO_BADGES, timeout=15_000)
    grid, first, mask, second = page.evaluate(BADGED)
    assert (grid["badge"], mask["badge"]) == (None, None)
    assert first["badge"] == first["file"]
    assert second["badge"] == second["file"]
    before = [first["file"], second["file"]]
    show(page, "Spillway")
    show(page, "txt2img")
    page.wait_for_function(TWO_BADGES, timeout=5000)
    page.click(f"#txt2img_{kind}")
    page.wait_for_function(
        "(before) => { const found = (" + BADGED + ")().filter(({ badge }) => badge);"
        " return found.length === 2 && found.every(({ file, badge }) => file === badge && !before.includes(file)); }",
        arg=before, timeout=15_000,
    )


def test_a_badge_moves_nothing(page):
    page.click("#txt2img_saved")
    page.wait_for_function(TWO_BADGES, timeout=15_000)
    boxes = """() => [...document.querySelectorAll('#txt2img_gallery img')]
      .map((image) => JSON.stringify(image.getBoundingClientRect()))"""
    shown = page.evaluate(boxes)
    page.evaluate("document.querySelectorAll('.spillway-badge').forEach((badge) => { badge.style.display = 'none'; })")
    assert page.evaluate(boxes) == shown


def test_the_size_is_the_hosts_even_where_no_event_tells_of_it(page):
    show(page, "Spillway")
    caption = "document.querySelector('#spillway-profiles .spillway-caption').textContent"
    page.wait_for_function(f"{caption} === 'at 64×64, 2 steps, batch of 2'", timeout=8000)
    page.evaluate("document.querySelector('#txt2img_width input').value = '128'")
    page.wait_for_function(f"{caption} === 'at 128×64, 2 steps, batch of 2'", timeout=8000)


def test_the_compact_form_switches_and_follows(page, hosted):
    select = page.locator(".spillway-compact select")
    assert select.input_value() == "auto"
    assert select.locator('option[value="stream"]').is_disabled()
    select.select_option("medvram")
    page.locator(".spillway-compact .spillway-notice", has_text="Switched to medvram").wait_for(timeout=5000)
    assert hosted.session.settings.profile is Profile.MEDVRAM
    threading.Thread(target=hosted.session.set_profile, args=(Profile.LOWVRAM,)).start()
    page.wait_for_function("document.querySelector('.spillway-compact select').value === 'lowvram'", timeout=5000)


def test_settings_take_effect_and_what_cannot_be_says_why(page, hosted, monkeypatch):
    show(page, "Spillway")
    settings = page.locator("#spillway-settings")
    settings.locator("#spillway-set-dedicated_percent").fill("70")
    settings.locator("#spillway-set-dedicated_percent").press("Tab")
    settings.locator("#spillway-set-ladder_tile").uncheck()
    settings.locator("#spillway-set-vae_tiling").select_option("always")
    page.wait_for_function("document.querySelector('[data-name=dedicated]').title.includes('70 %')", timeout=5000)
    now = hosted.session.settings
    assert (now.dedicated_percent, now.ladder_tile, now.vae_tiling) == (70, False, "always")
    settings.locator("#spillway-set-dedicated_percent").fill("20")
    settings.locator("#spillway-set-dedicated_percent").press("Tab")
    settings.locator(".spillway-sentence", has_text="from 50 to 100 %").wait_for(timeout=5000)
    page.wait_for_function("document.querySelector('#spillway-set-dedicated_percent').value === '70'", timeout=5000)
    hosted.session.change_settings(dedicated_percent=90, ladder_tile=True, vae_tiling="auto")
