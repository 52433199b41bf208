"""The panel in the real AUTOMATIC1111, in a real browser."""

from __future__ import annotations

import json

import pytest

from tests.browser.chromium import PRETEND_HIDDEN, WORST_CONTRAST, running_browser
from tests.hosts.webui import NEEDED, WEBUI

from .real_page import SEEN_METER, RealPage, idle, running_host

pytestmark = [pytest.mark.a1111, pytest.mark.skipif(not WEBUI, reason=NEEDED)]

ONE_OF_EACH = {"meter": 1, "progress": 1, "profiles": 1, "cap": 1, "settings": 1, "log": 1}
TAKEN_AT = f"Number(document.querySelector('{SEEN_METER}').dataset.takenAt)"
STATE = "#spillway-meter .spillway-state"
TAB_TEXTS = (
    ".spillway-name", ".spillway-host", ".spillway-host-notice", ".spillway-switch", ".spillway-title",
    ".spillway-state-word", ".spillway-label", ".spillway-figure", ".spillway-parts",
    ".spillway-history figcaption span", ".spillway-caption", ".spillway-profile-text b", ".spillway-profile-line",
    ".spillway-need", ".spillway-took",
    ".spillway-headline", ".spillway-button:enabled", ".spillway-input:enabled", ".spillway-link", ".spillway-key",
    ".spillway-table th", ".spillway-table td", ".spillway-tag",
)


@pytest.fixture(scope="module")
def browser():
    with running_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def host(browser, tmp_path_factory):
    with running_host(tmp_path_factory.mktemp("a1111-browser")) as host:
        yield host


@pytest.fixture
def open_page(host, browser):
    contexts = []

    def open_it(query: str = "?__theme=light", **options) -> RealPage:
        settings = {"locale": "en-US", "viewport": {"width": 1280, "height": 1000}, **options}
        contexts.append(browser.new_context(**settings))
        return RealPage(contexts[-1].new_page(), f"{host.address}/{query}")

    yield open_it
    for context in contexts:
        context.close()
    idle(host)


def test_the_meter_moves_while_a_job_runs(open_page):
    real = open_page()
    page = real.page
    real.fill(width=128, height=128, steps=12)
    page.click("#txt2img_generate")
    real.show("spillway")
    page.wait_for_selector("#spillway-progress [data-running]", timeout=20_000)
    page.locator(".spillway-headline", has_text="Image 1 of 1 · sampling, step").wait_for(timeout=20_000)
    first, line = page.evaluate(TAKEN_AT), page.locator(".spillway-plot-dedicated").get_attribute("d")
    widths = set()
    page.expose_function("spillwaySees", lambda width: widths.add(width))
    page.evaluate(
        """setInterval(() => {
          window.spillwaySees(document.querySelector('#spillway-meter [data-part=process]').style.width);
        }, 100)"""
    )
    page.wait_for_function(f"(first) => {TAKEN_AT} > first + 1", arg=first, timeout=6000)
    assert page.locator(".spillway-plot-dedicated").get_attribute("d") != line
    page.locator(".spillway-headline", has_text="1 of 1 image in").wait_for(timeout=60_000)
    assert len(widths) > 1, "the bar moved with what the job took"
    assert page.locator('#spillway-meter [data-name="dedicated"] .spillway-figure').inner_text().endswith("of 400 MiB")
    assert real.broken == []


def test_a_profile_switch_shows_everywhere_and_takes_effect(open_page, host):
    real = open_page()
    page = real.page
    real.open_accordion()
    page.locator("#tab_txt2img .spillway-compact select").select_option("medvram")
    page.locator("#tab_txt2img .spillway-notice", has_text="Switched to medvram in").wait_for(timeout=10_000)
    assert host.ask("/spillway/v1/memory")["profile"] == "medvram"
    (image,) = real.generate(1)
    ((name, words),) = image["badges"]
    assert name == image["file"]
    assert "medvram" in words
    record = host.ask(f"/spillway/v1/images?files={name}")["files"][name]
    assert (record["profile_asked"], record["profile_used"]) == ("medvram", "medvram")
    real.show("spillway")
    assert page.locator("#spillway-profile-medvram").is_checked()
    page.check("#spillway-profile-lowvram")
    page.locator("#spillway-profiles .spillway-notice", has_text="Switched to lowvram in").wait_for(timeout=10_000)
    assert page.locator("#tab_txt2img .spillway-compact select").input_value() == "lowvram"
    assert host.ask("/sdapi/v1/options")["spillway_profile"] == "lowvram"


def test_the_needs_are_those_of_the_size_set_in_txt2img(open_page):
    real = open_page()
    real.fill(width=512, height=768, steps=7, batch_size=3)
    real.show("spillway")
    caption = real.page.locator("#spillway-profiles .spillway-caption", has_text="at 512×768, 7 steps, batch of 3")
    caption.wait_for(timeout=8000)


def test_what_nobody_sees_asks_for_nothing(open_page):
    real = open_page()
    page = real.page
    page.wait_for_timeout(1500)
    real.asked.clear()
    page.wait_for_timeout(2000)
    assert real.asked == [], "the tab is closed and so is the accordion"
    real.show("spillway")
    page.wait_for_timeout(2000)
    assert any("/memory" in url for url in real.asked)
    page.evaluate(PRETEND_HIDDEN, True)
    page.wait_for_timeout(800)
    real.asked.clear()
    page.wait_for_timeout(2500)
    assert real.asked == []
    page.evaluate(PRETEND_HIDDEN, False)
    page.wait_for_timeout(1500)
    assert any("/memory" in url for url in real.asked)


def test_a_dead_server_is_said_and_found_again(open_page):
    real = open_page()
    page = real.page
    real.show("spillway")
    page.wait_for_selector(f'{STATE}[data-state="comfortable"]', timeout=8000)
    page.route("**/spillway/v1/**", lambda route: route.abort())
    page.wait_for_selector(f'{STATE}[data-state="unavailable"]', timeout=10_000)
    assert page.locator(f"{STATE} .spillway-state-word").inner_text() == "unavailable"
    real.asked.clear()
    page.wait_for_timeout(4000)
    assert len([url for url in real.asked if "/memory" in url]) <= 4, "it is asked less and less often"
    page.unroute("**/spillway/v1/**")
    page.wait_for_selector(f'{STATE}[data-state="comfortable"]', timeout=20_000)
    before = page.evaluate(TAKEN_AT)
    page.wait_for_function(f"(before) => {TAKEN_AT} > before", arg=before, timeout=4000)


def test_a_reload_and_reload_ui_leave_one_panel(open_page, host):
    real = open_page()
    assert real.panels() == ONE_OF_EACH
    real.page.reload(wait_until="domcontentloaded")
    real.ready()
    assert real.panels() == ONE_OF_EACH
    real.reload_ui()
    real.ready()
    real.page.wait_for_timeout(1000)
    assert real.panels() == ONE_OF_EACH
    assert real.page.locator(".spillway-header").count() == 1
    assert real.page.locator(".spillway-compact-body").count() == 2, "txt2img and img2img"
    real.show("spillway")
    real.page.wait_for_selector(f'{STATE}[data-state="comfortable"]', timeout=8000)
    real.show("txt2img")
    (image,) = real.generate(1)
    assert [name for name, _ in image["badges"]] == [image["file"]]
    assert real.broken == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_text_is_readable(open_page, theme):
    real = open_page(f"?__theme={theme}", color_scheme=theme)
    page = real.page
    real.open_accordion()
    real.generate(1)
    shown = page.evaluate(WORST_CONTRAST, [".spillway-badge", *(f".spillway-compact {name}" for name in (
        ".spillway-label", ".spillway-figure", ".spillway-parts", ".spillway-state-word", ".spillway-profile-line",
        ".spillway-input", "label",
    ))])
    real.show("spillway")
    page.wait_for_selector("#spillway-log .spillway-table td", timeout=8000)
    page.wait_for_selector("#spillway-profiles .spillway-took", timeout=8000)
    shown |= page.evaluate(WORST_CONTRAST, list(TAB_TEXTS))
    assert [name for name, ratio in shown.items() if ratio is None] == []
    assert {name: round(ratio, 2) for name, ratio in shown.items() if ratio < 4.5} == {}


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_sticks_out_to_the_side(open_page, width):
    real = open_page(viewport={"width": width, "height": 844})
    real.show("spillway")
    real.page.wait_for_selector("#spillway-profiles .spillway-profile", timeout=8000)
    assert real.page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0
    outside = real.page.evaluate(
        """() => [...document.querySelectorAll('.spillway-card')].filter((card) => card.offsetParent)
          .map((card) => card.getBoundingClientRect())
          .filter((box) => box.left < 0 || box.right > window.innerWidth || box.width < 200).length"""
    )
    assert outside == 0


def test_the_settings_page_saves_our_options(open_page, host):
    real = open_page()
    page = real.page
    real.show("settings")
    page.locator("#settings button", has_text="Spillway").first.click()
    page.locator("#setting_spillway_profile input").click()
    page.locator("#setting_spillway_profile .options li", has_text="sequential").click()
    page.locator("#setting_spillway_cap_gib input").fill("1.5")
    page.locator("#setting_spillway_badges input").uncheck()
    page.click("#settings_submit")
    page.locator("#settings_result").first.get_by_text("settings changed").wait_for(timeout=10_000)
    saved = host.ask("/spillway/v1/settings")
    assert (saved["profile"], saved["cap_bytes"], saved["badges"]) == ("sequential", int(1.5 * 2**30), False)
    kept = json.loads((host.log.parent / "config.json").read_text(encoding="utf-8"))
    assert (kept["spillway_profile"], kept["spillway_cap_gib"], kept["spillway_badges"]) == ("sequential", 1.5, False)
    host.ask("/sdapi/v1/options", {"spillway_cap_gib": 0, "spillway_badges": True})


def test_disabled_there_is_no_trace_of_us_in_the_page(open_page, host):
    real = open_page()
    host.ask("/sdapi/v1/options", {"disabled_extensions": ["sd-webui-spillway"]})
    try:
        real.reload_ui()
        real.asked.clear()
        real.page.wait_for_timeout(2500)
        assert real.asked == []
        traces = real.page.evaluate(
            """() => [...document.querySelectorAll('*')].filter((node) => !node.closest('#tab_extensions'))
              .filter((node) => [...node.attributes].some(({ name, value }) => /spillway/i.test(name + value)))
              .map((node) => node.outerHTML.slice(0, 200))"""
        )
        assert traces == []
        assert "Spillway" not in real.page.locator("#tabs > .tab-nav").inner_text()
        assert "Spillway" not in real.page.locator("#tab_settings").text_content()
    finally:
        host.ask("/sdapi/v1/options", {"disabled_extensions": []})
        real.reload_ui()
    real.ready()
    assert real.panels() == ONE_OF_EACH
